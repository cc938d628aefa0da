"""If these fail, a fault of ours reaches people as a traceback, or scripts as the wrong exit code."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click
import pytest

from warmgate.cli import app as command_line
from warmgate.cli.app import run
from warmgate.errors import InputError


class Panic(BaseException):
    """What a library in Rust raises when it panics."""


@pytest.fixture
def failing():
    """Registers commands that fail as told, under the names of real ones too."""

    def register(fault: BaseException, name: str = "failing") -> str:
        @click.command(name)
        def command() -> None:
            raise fault

        command_line.app.add_command(command)
        return name

    before = dict(command_line.app.commands)
    yield register
    command_line.app.commands.clear()
    command_line.app.commands.update(before)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (MemoryError(), "MemoryError: out of memory"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), "UnicodeEncodeError"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UnicodeDecodeError"),
        (FileNotFoundError(2, "No such file or directory", "/x\x1b[31m\n"), "FileNotFoundError"),
        (ConnectionResetError(104, "Connection reset by peer"), "ConnectionResetError"),
        (AssertionError(), "AssertionError: no reason given"),
        (Panic("called `Option::unwrap()`\non a `None` value"), "Panic: called `Option::unwrap()` on a `None` value"),
        (ImportError("No module named 'tokenizers'"), "ImportError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_fault_of_our_own_is_one_line_that_says_what_and_where(fault, words, failing, capsys):
    """A traceback tells a user nothing, and scripts read its exit code 1 as "a check failed"."""
    assert run([failing(fault)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.strip().isprintable()
    assert err.startswith("warmgate: internal error in failing: ")
    assert words in err
    assert "please report it with what WARMGATE_DEBUG=1 prints" in err


def test_the_line_names_the_place_in_our_own_code(monkeypatch, capsys):
    """The first report of a fault would not say where to look."""

    def broken(*_arguments: object, **_options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("warmgate.replay.run.replay", broken)
    assert run(["replay", os.devnull]) == 2
    assert "internal error in replay: KeyError: 'x' at replay.py:" in capsys.readouterr().err


def test_debugging_shows_the_traceback(failing, capsys, monkeypatch):
    """Nobody could tell what went wrong."""
    monkeypatch.setenv("WARMGATE_DEBUG", "1")
    assert run([failing(ZeroDivisionError("x"))]) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["decide", "doctor"])
def test_where_a_command_has_a_code_for_no_answer_it_is_that(name, monkeypatch, capsys):
    """A gate in a script takes 3 for "no answer" and 2 for "your question is wrong"."""

    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("x")

    run(["--version"])  # registers the commands
    monkeypatch.setattr(command_line.app.commands[name], "callback", broken)
    arguments = {"decide": ["--worker", "w", "--state", "s", "--questions", "q"], "doctor": ["http://x"]}[name]
    assert run([name, *arguments]) == 3
    assert f"internal error in {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (InputError("is wrong", where="x", mend="mend it"), 2, "warmgate: x: is wrong; mend it\n"),
        (KeyboardInterrupt(), 130, "warmgate: interrupted\n"),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
        (OSError(28, "No space left on device"), 2, "warmgate: standard output: cannot be written (No space left on device)\n"),
        (SystemExit(7), 7, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_faults_that_are_not_ours_keep_their_codes(fault, code, words, failing, capsys):
    """Scripts could not tell bad input, Ctrl-C and `| head` apart."""
    assert run([failing(fault)]) == code
    assert capsys.readouterr().err == words


def test_a_request_to_end_unwinds_and_leaves_no_handler(failing, capsys, tmp_path):
    """SIGTERM would leave temporary files behind; a handler that stays would belong to the caller's process."""

    @click.command("ended")
    def command() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            (tmp_path / "tidied").touch()

    failing(ValueError())
    command_line.app.add_command(command)
    assert run(["ended"]) == 143
    assert (tmp_path / "tidied").exists()
    assert capsys.readouterr().err == "warmgate: terminated\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_usage_fault_is_one_line_that_names_the_right_help(capsys):
    """Help of the wrong command, or a page of usage, would bury what is wrong."""
    for arguments, command in (
        (["replay"], "warmgate replay"),
        (["replay", "x", "--workers", "many"], "warmgate replay"),
        (["replay", "--workers"], "warmgate replay"),
        (["decide"], "warmgate decide"),
        (["nonsense"], "warmgate"),
        (["--nonsense"], "warmgate"),
    ):
        assert run(arguments) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert err.endswith(f"; see `{command} --help`\n")


def test_every_command_is_described_in_full(capsys, monkeypatch):
    """`warmgate --help` would break off in the middle of a sentence."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "..." not in out.split("Commands:")[1]
    assert max(map(len, out.splitlines())) <= 80
    for command in command_line.app.commands.values():
        assert (command.help or "").split(".")[0] in " ".join(out.split())


def test_no_arguments_print_the_help_on_stderr_and_exit_2(capsys):
    """A script with an empty variable would go on as if something had been done."""
    assert run([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


@pytest.mark.parametrize("stream", [None, "full", "closed"])
def test_a_lost_stderr_changes_no_exit_code(stream, failing, monkeypatch, tmp_path):
    """Cron and daemons close stderr; 1 would mean another thing."""
    file = Path("/dev/full" if stream == "full" else tmp_path / "err").open("w", buffering=1)  # noqa: SIM115
    if stream == "closed":
        file.close()
    monkeypatch.setattr(sys, "stderr", None if stream is None else file)
    for arguments, code in (
        ([], 2),
        (["nonsense"], 2),
        (["replay", "nowhere.json"], 2),
        ([failing(ValueError("x"))], 2),
        ([failing(KeyboardInterrupt(), "stopped")], 130),
    ):
        assert run(arguments) == code
    monkeypatch.undo()
    file.close()

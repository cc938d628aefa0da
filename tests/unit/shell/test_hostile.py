"""If these fail, a strange command crashes the gate, stalls it, or is allowed because nobody could read it."""

from __future__ import annotations

import time

import pytest

from warmgate_policies.shell import Judge
from warmgate_policies.shell import parse as parsing

HOSTILE = {
    "empty": "", "blank": "  \n\t ", "nul": "ls\0rm", "carriage return": "ls\r", "escape": "echo \x1b[2J", "c1": "echo \x9b", "surrogate": "echo \udcff", "bidi": "echo \u202e gpj", "zero width": "l\u200bs", "tag characters": "echo \U000e0041",
    "deep subshells": "(" * 500 + "ls" + ")" * 500, "deep substitutions": "echo " + "$(" * 300 + "ls" + ")" * 300, "deep braces": "echo " + "{a," * 400 + "}" * 400, "deep if": "if true; then " * 400 + "ls; " + "fi; " * 400,
    "deep arithmetic": "echo $((" + "(" * 300 + "1" + ")" * 300 + "))", "backslashes": "echo " + "\\" * 5000 + "x", "deep quotes": "bash -c '" * 30, "deep parameters": "echo " + "${a:-" * 300 + "}" * 300,
    "a megabyte of words": "ls " + "a " * 500_000, "a megabyte of pipes": "ls" + " | ls" * 200_000, "a megabyte word": "echo " + "a" * 1_000_000, "a megabyte of quotes": "echo " + "'a'" * 333_000, "a megabyte of newlines": "ls\n" * 330_000,
    "brace bomb": "echo " + "{1..9}" * 12, "series bomb": "echo {1..999999999}", "unclosed": "echo 'a", "unclosed substitution": "echo $(ls", "stray": ")", "only marks": ";;&&||", "history": "!!", "open here-document": "cat <<E",
    "half here-document": "cat <<", "recursion": "f() { f; }; f", "mutual recursion": "f() { g; }; g() { f; }; f", "self eval": 'x=\'eval "$x"\'; eval "$x"', "many sites": "ls; " * 900, "variable growth": "a=aaaaaaaaaa; " + "a=$a$a$a; " * 40 + "echo $a",
}  # fmt: skip


@pytest.fixture(scope="module")
def judge() -> Judge:
    judge = Judge()
    judge.judge("ls")
    return judge


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_asked_about(judge, name):
    """Never a crash, never allow."""
    found = judge.judge(HOSTILE[name])
    assert found.verdict != "allow", found
    assert found.rule != "fault", found


def test_size_is_checked_before_anything_is_started(judge, monkeypatch):
    """A megabyte would cost seconds of parsing: the parser must not even be started."""
    monkeypatch.setattr(parsing, "_run", lambda source: pytest.fail("the parser was started"))
    for name in ("a megabyte of words", "a megabyte of pipes", "a megabyte word", "a megabyte of quotes", "nul", "deep subshells"):
        assert judge.judge(HOSTILE[name]).rule == "limit"


def test_a_parser_that_stalls_is_ended(monkeypatch, tmp_path):
    """A parser that hangs would hang the agent."""
    sleeper = tmp_path / "shfmt"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(parsing, "binary", lambda: str(sleeper))
    monkeypatch.setattr(parsing, "SECONDS", 0.2)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    started = time.monotonic()
    found = Judge().judge("ls")
    assert (found.verdict, found.rule) == ("ask", "limit")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("output", ["", "{", "[]", "null", '{"Stmts": ' * 3000])
def test_a_parser_that_talks_nonsense_is_not_believed(monkeypatch, tmp_path, output):
    """A broken parser must end in ask."""
    fake = tmp_path / "shfmt"
    (tmp_path / "out").write_text(output)
    fake.write_text(f"#!/bin/sh\n/bin/cat '{tmp_path}/out'\n")
    fake.chmod(0o755)
    monkeypatch.setattr(parsing, "binary", lambda: str(fake))
    assert Judge().judge("ls").verdict == "ask"


def test_a_missing_parser_is_said(monkeypatch):
    """Without the parser nothing is allowed, and the reason says what to install."""

    def missing() -> str:
        raise FileNotFoundError("shfmt is not installed beside this Python; pip install shfmt-py")

    monkeypatch.setattr(parsing, "binary", missing)
    found = Judge().judge("ls")
    assert found.verdict == "ask"
    assert "pip install shfmt-py" in found.reason


def test_no_open_files_are_left(judge):
    """A long-running gate would run out of file descriptors."""
    import os
    from pathlib import Path

    def count() -> int:
        return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

    before = count()
    for number in range(30):
        judge.judge(f"echo {number} | cat")
        judge.judge(f"echo {number} (")
    assert count() <= before + 1

"""If these fail, one odd name or file takes the other traces with it, or a report is written over what it was made from."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.integration.cli.processes import CHAT, warmgate

ODD = {
    "not UTF-8": b"\xff\xfe.jsonl",
    "half UTF-8": "größe".encode()[:-2] + b".jsonl",
    "line break": b"a\nb.jsonl",
    "escape": b"\x1b[31mred.jsonl",
    "direction": "\u202egnp.jsonl".encode(),
    "blank": b" ",
    "markup": b"[bold]x[].jsonl",
}


def lines(data: bytes) -> list[str]:
    return data.decode().splitlines()


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_any_file_name_can_be_replayed_printed_and_written(name, tmp_path):
    """A name from another system's archive would end in UnicodeEncodeError."""
    path = os.fsencode(tmp_path) + b"/" + name
    shutil.copy(CHAT, path)
    shutil.copy(CHAT, tmp_path / "other.jsonl")
    with open(path, "ab") as file:  # noqa: PTH123
        file.write(b"nope\n")
    for named in ([path, tmp_path / "other.jsonl"], [path]):
        done = warmgate("replay", *named, "--json", "-")
        assert done.returncode == 0
        assert len(json.loads(done.stdout)["traces"]) == len(named)
        assert len(lines(done.stderr)) == 1
        done = warmgate("replay", *named, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
        assert done.returncode == 0
        assert all(line.isprintable() for line in lines(done.stdout) + lines(done.stderr))
    if b"\xff" in name:
        assert json.loads((tmp_path / "r.json").read_bytes())["traces"][0]["path"].endswith(r"\xff\xfe.jsonl")
        assert r"\xff\xfe.jsonl" in (tmp_path / "r.html").read_text()
        assert r"\xff\xfe.jsonl" in done.stderr.decode()


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xff*", b"\n", b" ", b"", b"\x1b[2J", "\u202ex".encode(), b"x" * 5000], ids=repr)
def test_a_missing_name_is_named_and_the_others_are_reported(name, tmp_path):
    """A typo in one of twenty names would throw the other nineteen away, or not be found in the message."""
    done = warmgate("replay", name, CHAT, "--json", "-")
    assert done.returncode == 2
    result = json.loads(done.stdout)
    assert len(result["traces"]) == 1
    assert len(result["refused"]) == 1
    (line,) = lines(done.stderr)
    assert line.isprintable()
    assert not line.startswith(("warmgate: no such", "warmgate: matches", "warmgate: cannot", "warmgate: :", "warmgate:  "))


@pytest.mark.parametrize("option", ["--json", "--html", "--tokenizer", "--chat-template", "--workers", "--nonsense"])
def test_odd_bytes_in_an_option_are_one_line(option, tmp_path):
    """Whatever a shell passes on, it is told as one line."""
    done = warmgate("replay", CHAT, option, os.fsencode(tmp_path) + b"/no/\xff\x1b")
    assert done.returncode == 2
    (line,) = lines(done.stderr)
    assert line.isprintable()
    assert "internal error" not in line
    assert r"\xff" in line or r"\udcff" in line or option == "--nonsense"


def test_an_output_that_is_an_input_is_refused_before_anything_is_read(tmp_path):
    """`--json trace.jsonl`, a slip of the tab key, would destroy the trace."""
    trace = tmp_path / "trace.jsonl"
    shutil.copy(CHAT, trace)
    (tmp_path / "link").symlink_to(trace)
    (tmp_path / "hard").hardlink_to(trace)
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    for option in ("--json", "--html"):
        for written, named in (("./trace.jsonl", "link"), ("link", "."), ("hard", "*.jsonl"), (trace, "trace.jsonl")):
            done = warmgate("replay", named, option, written, cwd=tmp_path)
            assert done.returncode == 2
            assert "would write over" in done.stderr.decode()
        with trace.open("rb") as stdin:
            assert b"what standard input reads" in warmgate("replay", "-", option, trace, stdin=stdin).stderr
        assert b"would write over" in warmgate("replay", trace, "--tokenizer", tokenizer, option, tokenizer).stderr
    assert trace.read_bytes() == CHAT.read_bytes()
    assert tokenizer.read_text() == "{}"


def test_two_outputs_in_one_file_are_refused(tmp_path):
    """The second would silently replace the first."""
    (tmp_path / "link").symlink_to("r.out")
    for one, other in (("r.out", "./r.out"), ("r.out", "link"), ("link", "link")):
        for _ in range(2):
            done = warmgate("replay", CHAT, "--json", one, "--html", other, cwd=tmp_path)
            assert done.returncode == 2
            assert b"name the same file" in done.stderr
            (tmp_path / "r.out").touch()
        (tmp_path / "r.out").unlink()
    assert warmgate("replay", CHAT, "--json", "/dev/null", "--html", "/dev/null").returncode == 0


@pytest.mark.parametrize("path", ["", "no/such/folder/x", ".", "new/", "loop", "/dev/full/x"])
@pytest.mark.parametrize("option", ["--json", "--html"])
def test_an_output_that_cannot_be_written_is_said_before_the_work(option, path, tmp_path):
    """An hour of replay would end in nothing. The trace is a pipe that is never filled: reading it would not end."""
    (tmp_path / "loop").symlink_to("loop")
    reading, writing = os.pipe()
    done = warmgate("replay", "-", option, path, cwd=tmp_path, stdin=reading)
    os.close(reading)
    os.close(writing)
    assert done.returncode == 2
    (line,) = lines(done.stderr)
    assert line.startswith(f"warmgate: {option} {path or repr('')}: ")


def test_a_report_page_needs_a_file():
    """HTML in the middle of a table serves nobody."""
    for path in ("-", "/dev/stdout"):
        done = warmgate("replay", CHAT, "--html", path)
        assert done.returncode == 2
        assert not done.stdout
        assert b"a report page takes a file" in done.stderr


def test_a_write_that_fails_later_costs_the_table_nothing():
    """The disk that fills up after an hour would take the printed figures as well."""
    done = warmgate("replay", CHAT, "--json", "/dev/full", "--html", "/dev/full")
    assert done.returncode == 2
    assert b"prompt tokens" in done.stdout
    assert done.stderr.count(b"\n") == 2
    assert done.stderr.count(b"/dev/full: cannot be written (No space left on device)") == 2


def test_thousands_of_broken_files_do_not_flood_the_terminal(tmp_path):
    """The report would be buried under them; the JSON has every one."""
    for number in range(300):
        (tmp_path / f"{number:03}.json").write_text("nope")
    shutil.copy(CHAT, tmp_path / "good.jsonl")
    done = warmgate("replay", tmp_path, "--json", tmp_path / "out")
    assert done.returncode == 2
    err = lines(done.stderr)
    assert len(err) == 21
    assert err[-1] == "warmgate: … and 280 more; --json PATH has every refused trace"
    assert len(json.loads((tmp_path / "out").read_bytes())["refused"]) == 300


def test_numbers_in_messages_are_spelt_in_full():
    """1e+12 is no number to type."""
    for option in ("--prefill-rate", "--hop-ms", "--price-per-mtok", "--kv-tokens", "--workers"):
        done = warmgate("replay", CHAT, option, "-2")
        assert done.returncode == 2
        assert b"-2 is out of range" in done.stderr
        assert b"e+" not in done.stderr
        assert b"e-" not in done.stderr.replace(b"--prefill-rate", b"").replace(b"--price-per-mtok", b"")


@pytest.mark.parametrize("option", ["--tokenizer", "--chat-template"])
def test_a_device_in_place_of_a_model_file_does_not_hang(option, tmp_path):
    """/dev/zero never ends, a pipe without a writer never begins."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe", ""):
        done = warmgate("replay", CHAT, option, path)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1


def test_too_little_memory_is_one_line_and_costs_that_trace_alone(tmp_path):
    """On a small machine the process would end in a traceback, and the good traces beside the large one be lost."""
    row = json.dumps({"messages": [{"role": "user", "content": "x" * (60 << 20)}], "usage": {"prompt_tokens": 9}})
    (tmp_path / "big.jsonl").write_text(f"{row}\n{row}\n")
    done = warmgate("replay", tmp_path / "big.jsonl", CHAT, before=f"ulimit -v {400 << 10}")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"memory" in done.stderr
    assert b"prompt tokens" in done.stdout

"""If these fail, `replay` crashes, hangs, eats the memory or says nothing, on a file that a user really has."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import socket
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from warmgate.errors import TraceError
from warmgate.replay import source
from warmgate.replay.names import shown
from warmgate.replay.source import expand, iter_json_lines, open_trace

GOOD = {"timestamp": 0, "input_length": 1024, "output_length": 3, "hash_ids": [0, 1]}
LINE = json.dumps(GOOD).encode() + b"\n"


@pytest.fixture
def trace(tmp_path):
    """Writes a trace and returns its path."""

    def write(data: bytes, name: str = "trace.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


def read(path):
    """Calls of a trace, and what the user was told."""
    said: list[str] = []
    with open_trace(path, said.append) as (reader, opened):
        calls = list(reader.read(opened))
    return calls, said


def refusal(path) -> str:
    with pytest.raises(TraceError) as fault:
        read(path)
    line = str(fault.value)
    assert "\n" not in line
    assert line.isprintable()
    assert str(path)[-20:] in line or path == "-"
    return line


# --- which files -------------------------------------------------------------------------------------------------------------------


def test_directories_are_walked_and_only_traces_taken(tmp_path):
    """A README beside the traces would be refused as a broken trace on every run."""
    for name in ("b.jsonl", "a.json", "x.traj", "deep/er/c.log", "deep/z.jsonl.gz", "n.ndjson", "README.md", "notes.txt", ".hidden.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config.json").touch()
    found = [os.path.relpath(path, tmp_path) for path in expand([str(tmp_path)])]
    assert found == ["a.json", "b.jsonl", "deep/er/c.log", "deep/z.jsonl.gz", "n.ndjson", "x.traj"]


def test_a_file_named_twice_is_read_once(tmp_path):
    """Named directly, through a link and through its directory, its calls would count three times."""
    (tmp_path / "a.json").touch()
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    assert len(expand([str(tmp_path / "a.json"), str(tmp_path), str(tmp_path / "*.json"), str(tmp_path / "link.json")])) == 1
    assert expand(["-", "-"]) == ["-"]


@pytest.mark.parametrize("names", [["."], ["**/*.json"], ["./**/*.json"], ["dir/**"]])
def test_directory_loops_end(tmp_path, monkeypatch, names):
    """Two links to their own parent make 2^40 paths: `replay .` would never come back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/a.json").touch()
    (tmp_path / "dir/loop").symlink_to(tmp_path / "dir")
    (tmp_path / "dir/loop2").symlink_to(tmp_path)
    (tmp_path / "self.json").symlink_to(tmp_path / "self.json")
    started = time.perf_counter()
    found = expand(names)
    assert time.perf_counter() - started < 5
    assert [os.path.realpath(path) for path in found if "a.json" in path] == [str(tmp_path / "dir/a.json")]


def test_globs_prefer_traces_but_take_what_was_meant(tmp_path):
    """`traces/*` would refuse the README; `*.txt` would find nothing though the user named it."""
    for name in ("a.json", "README.md", "one.txt"):
        (tmp_path / name).touch()
    assert [Path(p).name for p in expand([str(tmp_path / "*")])] == ["a.json"]
    assert [Path(p).name for p in expand([str(tmp_path / "*.txt")])] == ["one.txt"]
    assert [Path(p).name for p in expand([str(tmp_path / "**/*.txt")])] == ["one.txt"]


def test_a_name_with_glob_signs_is_the_file_of_that_name(tmp_path):
    """`run[1].json` would match `run1.json` instead."""
    (tmp_path / "run[1].json").touch()
    (tmp_path / "run1.json").touch()
    assert expand([str(tmp_path / "run[1].json")]) == [str(tmp_path / "run[1].json")]


@pytest.mark.parametrize(
    "name", ["none.json", "none/*.json", "none/**/*.json", "", " ", "\n", "\udcff\udcfe", "x\0y", "x\0*", "a" * 5000, "\udcff*", "\x1b[31m"]
)
def test_a_name_that_stands_for_nothing_is_named_when_it_is_read(name):
    """A typo would look like an empty result, or throw the other traces away."""
    assert name in expand(["-", name])
    with pytest.raises(TraceError) as fault:
        read(name)
    line = str(fault.value)
    assert line.isprintable()
    assert line.startswith((shown(name)[:300], "'"))
    assert len(line) > len(shown(name)[:300]) + 10


def test_names_are_shown_whole_whatever_is_in_them():
    """An error about a file whose name cannot be printed would name nothing."""
    assert shown("\udcff\udcfe.json") == r"\xff\xfe.json"
    assert shown("a\nb\x1b\u202e") == r"a\nb\x1b\u202e"
    assert shown("größe.json") == "größe.json"
    assert shown("") == "''"
    assert shown(" ") == "' '"


def test_a_directory_without_traces_says_what_was_looked_for(tmp_path):
    (tmp_path / "README.md").touch()
    (named,) = expand([str(tmp_path)])
    assert "holds no trace: no file in it ends in .json, .jsonl" in refusal(named)


def test_a_link_to_itself_does_not_hide_its_neighbours(tmp_path):
    """One broken link would silently take the rest of its directory out of the sums."""
    for name in ("a.json", "b.json", "deep/c.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(LINE)
    for name in ("0.json", "self.json", "self", "zz.json"):
        (tmp_path / name).symlink_to(tmp_path / name)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    for names in ([str(tmp_path)], [str(tmp_path / "**/*.json")]):
        found = [os.path.relpath(path, tmp_path) for path in expand(names)]
        assert found == ["0.json", "a.json", "b.json", "deep/c.json", "gone.json", "self.json", "zz.json"]
    assert "symbolic links" in refusal(str(tmp_path / "self.json"))


def test_a_file_called_minus_is_not_standard_input(tmp_path, monkeypatch):
    """`replay *` would wait for ever for somebody to type a trace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_bytes(LINE)
    assert expand(["*"]) == ["./-"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(tmp_path, trace):
    """An unreadable directory would silently take its traces out of the sums."""
    trace(LINE)
    shut = tmp_path / "shut"
    shut.mkdir(mode=0)
    assert str(shut) in expand([str(tmp_path)])
    assert "Permission denied" in refusal(str(shut))
    locked = trace(LINE, "locked.jsonl")
    Path(locked).chmod(0)
    assert "Permission denied" in refusal(locked)


# --- opening -----------------------------------------------------------------------------------------------------------------------


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    """A FIFO would block for ever, /dev/zero never end."""
    os.mkfifo(tmp_path / "fifo.json")
    assert "no regular file; pipe it in and name it `-`" in refusal(str(tmp_path / "fifo.json"))
    assert "no regular file" in refusal("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        assert "no regular file" in refusal(str(tmp_path / "s"))
    assert "is a directory" in refusal(str(tmp_path))
    assert "no such file" in refusal(str(tmp_path / "gone.json"))


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="no file here that blocks its reader")
def test_a_file_that_blocks_its_reader_does_not_hang():
    """Some files of the system look regular and wait for ever: `replay /proc/*` would never come back."""
    code = "from warmgate.cli.app import run; raise SystemExit(run(['replay', '/proc/kmsg']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"/proc/kmsg" in done.stderr
    assert b"internal error" not in done.stderr


def test_gzip_is_told_by_content(trace):
    """A `.gz` that is none, and a gzip without the name, would both be refused."""
    assert len(read(trace(gzip.compress(LINE * 3), "trace.jsonl"))[0]) == 3
    assert len(read(trace(LINE * 3, "trace.jsonl.gz"))[0]) == 3


@pytest.mark.parametrize("cut", [4, 12, 40, -4, -9])
def test_broken_gzip_is_one_line(trace, cut):
    """A download cut short would be a traceback from zlib."""
    assert "gzip" in refusal(trace(gzip.compress(os.urandom(300).hex().encode() + b"\n" + LINE * 9)[:cut]))


def test_gzip_broken_in_the_middle_is_one_line(trace):
    """The calls before the fault must not pass for the whole trace."""
    packed = bytearray(gzip.compress(LINE * 40_000, 1))
    packed[len(packed) // 2] ^= 0xFF
    assert "gzip data is broken" in refusal(trace(bytes(packed)))


def test_a_gzip_bomb_stays_small(trace, monkeypatch):
    """A megabyte that unpacks to a gigabyte of one line would take the machine down."""
    monkeypatch.setattr(source, "MAX_LINE", 1 << 20)
    data = gzip.compress(LINE + LINE + b" " * (100 << 20) + b"x\n" + LINE)
    peak, (calls, said) = _peak(lambda: read(trace(data)))
    assert len(calls) == 3
    assert "longer than" in said[0]
    assert peak < 24 << 20


def test_standard_input_is_read_like_a_file(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(LINE * 3 + b"{\n"))))
    calls, said = read("-")
    assert len(calls) == 3
    assert said == ["<stdin>:4: skipped, its JSON ends in the middle"]


def test_standard_input_has_a_limit_and_may_be_closed(monkeypatch):
    """`yes | warmgate replay -` would fill the disk."""
    monkeypatch.setattr(source, "MAX_STDIN", 1 << 20)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE * 50_000)))
    assert "goes on after 1 MiB" in refusal("-")
    monkeypatch.setattr(sys, "stdin", None)
    assert "closed" in refusal("-")


def test_no_room_for_standard_input_says_where(monkeypatch):
    """ "No space left on device" does not tell which one, nor that another can be taken."""

    class Full(io.RawIOBase):
        def write(self, _data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(source.tempfile, "SpooledTemporaryFile", lambda _size: Full())
    monkeypatch.setattr(source.tempfile, "gettempdir", lambda: "/full")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE * 3)))
    assert "standard input cannot be kept in /full (No space left on device); set TMPDIR" in refusal("-")


# --- telling formats apart ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_file_says_so(trace, data):
    line = refusal(trace(data))
    assert "is empty" in line
    assert "known formats: warmgate_trace, weka, mooncake" in line


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"hello\nworld\n", ":1: is no trace: it is not valid JSON"),
        (b'\n{"a": 1,\n "b": [1, 2\n', ":3: is no trace: its JSON ends in the middle"),
        (b'{"a": 1,\n "b": nope}\n', ":2: is no trace: it is not valid JSON (invalid character"),
        (b'{"a": 1}\n{"a": 2}\n', "no trace format known here (records of: keys a)"),
        (b'{"a": 1}', "no trace format known here (one JSON document: keys a)"),
        (b"[]", "no trace format known here (an empty list)"),
        (b"7\n8\n", "records of: a number"),
        (b"null", "no trace format known here"),
        (b'{"type": "\x1b[31mevil"}\n{"type": "x"}\n', "no trace"),
        ("{}".encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        ("{}\n{}\n".encode("utf-32"), "UTF-32 text; save it as UTF-8"),
        ("{}".encode("utf-32-be").join([b"\0\0\xfe\xff", b""]), "UTF-32 text; save it as UTF-8"),
        (b"\x00" * 5000, "NUL bytes"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 300 + b"]" * 300, "nested too deeply"),
        (os.urandom(3000).replace(b"\n", b"") + b"\xff\xff", "is no trace"),
    ],
)
def test_what_is_no_trace_is_told_in_one_line(trace, data, expected):
    """The user would not know whether the file, the line or the tool is at fault."""
    line = refusal(trace(data))
    assert expected in line
    assert "known formats" in line or "UTF-" in line


@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_may_stand_on_one_line_or_many(trace, indent):
    """jq pretty-prints; the same trace must read the same."""
    weka = {"id": "t", "block_size": 64, "requests": [{"t": 0, "type": "n", "in": 70, "out": 1, "hash_ids": [1]}] * 3}
    assert len(read(trace(json.dumps(weka, indent=indent).encode(), "w.json"))[0]) == 3
    assert len(read(trace(json.dumps([GOOD] * 3, indent=indent).encode(), "m.json"))[0]) == 3


def test_a_single_line_is_both_a_document_and_a_line(trace):
    """A JSON Lines trace of one call would be refused."""
    with open_trace(trace(LINE), print) as (reader, opened):
        assert reader.name == "mooncake"
        assert opened.head.document == GOOD
        assert opened.head.lines == [GOOD]
        assert list(iter_json_lines(opened)) == [(1, GOOD)]


@pytest.mark.parametrize("first", [b"starting up ...\n", b'{"timestamp": 0, "inp\n', b'": 3}\n', b"\x00\x00\x00\n"])
def test_a_broken_first_line_does_not_hide_the_format(trace, first):
    """A log rotated in the middle of a record would be refused whole."""
    calls, said = read(trace(first + LINE))
    assert len(calls) == 1
    assert len(said) == 1
    assert ":1: skipped" in said[0]


def test_a_byte_order_mark_is_no_fault(trace):
    """PowerShell and Notepad write one."""
    assert read(trace(b"\xef\xbb\xbf" + LINE + LINE))[1] == []
    weka = json.dumps({"id": "t", "block_size": 64, "requests": [{"in": 70, "hash_ids": [1]}]}, indent=1)
    assert len(read(trace(b"\xef\xbb\xbf" + weka.encode()))[0]) == 1


def test_a_trace_without_calls_says_what_it_holds(trace):
    """An empty report would look as if nothing had been lost."""
    broken = trace(b'{"type": "user", "sessionId": "s", "message": {"role": "user", "content": "hi"}}\n' * 2 + b"nope\n", "broken.jsonl")
    assert "1 record skipped)" in refusal(broken)
    rows = [{"type": "user", "sessionId": "s", "message": {"role": "user", "content": "hi"}}, {"type": "summary", "leafUuid": "u"}]
    line = refusal(trace(b"".join(json.dumps(row).encode() + b"\n" for row in rows)))
    assert "recognised as Claude Code session (JSONL), but holds no LLM call (records of: type 'user'; type 'summary')" in line


# --- streaming ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"timestamp": 1, "input_l', "its JSON ends in the middle"),
        (b'{"input_length": 5 "x": 1}', "it is not valid JSON"),
        (b'{"input_length": "\xff\xfe"}', "it is not valid UTF-8"),
        (b'{"input_length": "\x00"}', "it holds NUL bytes"),
        (b"\x00" * 400, "it holds NUL bytes"),
        (b'{"a": 1e999}', "a number in it is out of range"),
        (b'{"a": ' + b"9" * 6000 + b"}", "a number in it is out of range"),
        (b'{"a": ' + b"[" * 100_000 + b"}", "it is nested too deeply"),
        (b'{"a": ' + b"[" * 400 + b"]" * 400 + b"}", "it is nested too deeply"),
        (b'["]",' * 5000 + b"1" + b',"["]' * 5000, "it is nested too deeply"),
        (b'{"a": NaN, "b"}', "it is not valid JSON"),
        (b'{"a": "\\ud83d", "b"}', "it is not valid JSON"),
    ],
)
def test_a_broken_line_costs_itself_alone(trace, bad, why):
    """One bad record in a million would throw the others away, or pass silently."""
    for data, line in ((LINE + LINE + bad + b"\n" + LINE, 3), (LINE * 3 + bad, 4)):
        calls, said = read(trace(data))
        assert len(calls) == 3
        assert len(said) == 1
        assert f":{line}: skipped, {why}" in said[0]


def test_what_writers_really_write_is_mended(trace):
    """Python writes NaN, JavaScript halves of emojis: their calls would be lost."""
    row = b'{"input_length": 600, "hash_ids": [1], "model": "x\\ud83d \\ud83d\\ude00", "top_p": NaN, "z": [-Infinity, Infinity], "y": "\\\\ud83d"}\n'
    calls, said = read(trace(row * 2))
    assert said == []
    assert [call.model for call in calls] == ["x\ufffd \U0001f600"] * 2


def test_depth_that_real_traces_have_is_accepted(trace):
    """Brackets in text, and wide lists, are no depth."""
    wide = json.dumps({**GOOD, "x": [[{"y": "]]]]" + "[" * 500}]] * 300}).encode() + b"\n"
    deep = json.dumps({**GOOD, "x": json.loads("[" * 100 + "]" * 100)}).encode() + b"\n"
    assert read(trace(wide + deep))[1] == []


def test_many_broken_lines_are_counted_not_listed(trace):
    """A thousand lines on the terminal would bury the report."""
    calls, said = read(trace(LINE * 2 + b"nope\n" * 1000))
    assert len(calls) == 2
    assert len(said) == 6
    assert said[-1].endswith("995 more skipped")


def test_blank_lines_count_as_lines_and_nothing_else(trace):
    """Line numbers in messages would point to the wrong line."""
    said = read(trace(LINE + b"\n \r\n" + LINE + b"nope\n"))[1]
    assert len(said) == 1
    assert ":5: skipped" in said[0]


def test_a_line_of_100_mb_is_skipped_without_being_loaded(trace, tmp_path, monkeypatch):
    """One runaway record would kill the replay of a good trace."""
    monkeypatch.setattr(source, "MAX_LINE", 1 << 20)
    path = tmp_path / "big.jsonl"
    with path.open("wb") as file:
        file.write(LINE + LINE + b'{"x": "')
        file.seek(100 << 20, os.SEEK_CUR)  # a hole: no disk needed
        file.write(b'"}\n' + LINE)
    peak, (calls, said) = _peak(lambda: read(str(path)))
    assert len(calls) == 3
    assert ":3: skipped, it is longer than 1 MiB" in said[0]
    assert peak < 16 << 20


def test_a_long_trace_is_streamed(trace):
    """A log larger than the memory could not be replayed."""
    path = trace(LINE * 60_000)

    def count():
        with open_trace(path, print) as (reader, opened):
            return sum(1 for _ in reader.read(opened))

    peak, number = _peak(count)
    assert number == 60_000
    assert peak < 4 << 20


def test_a_document_has_a_limit(trace, monkeypatch):
    """A dump of a whole database would be loaded until the machine swaps."""
    monkeypatch.setattr(source, "MAX_DOCUMENT", 4 << 20)
    monkeypatch.setattr(source, "MAX_LINE", 1 << 20)
    pretty = b"[\n" + b",\n".join([b'"' + b"x" * 1000 + b'"'] * 6000) + b"\n]"
    assert "one JSON document of more than 4 MiB" in refusal(trace(pretty))
    assert "one JSON document of more than 4 MiB" in refusal(trace(pretty.replace(b"\n", b"")))
    one_line = json.dumps([GOOD] * 30_000).encode()  # longer than a line may be, not than a document
    assert len(read(trace(one_line))[0]) == 30_000


def _peak(work):
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def test_a_gzip_of_blank_lines_ends_long_before_its_end(tmp_path):
    """A megabyte on disk would keep a machine busy for minutes."""
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(5):
            file.write(b"\n" * (4 << 20))
    with pytest.raises(TraceError, match="grows to more than 200 times its size"), open_trace(str(path), print):
        pass

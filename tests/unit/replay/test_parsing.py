"""If these fail, a small file takes all of the machine's memory, or a good one is refused as if it did."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from warmgate.replay import parsing
from warmgate.replay.parsing import DOCUMENT_OBJECTS, LINE_OBJECTS, NotJson, TooManyValues, parse

MIB = 1 << 20
UNITS = {
    "lists": b"[],",
    "objects": b"{},",
    "objects of one": b'{"":0},',
    "numbers": b"999,",
    "fractions": b"1.5,",
    "texts": b'"ab",',
    "empty texts": b'"",',
    "emoji": '"😀",'.encode(),
    "nested": b"[[0]],",
    "spaced": b"[ ] , ",
    "not quite JSON": b"NaN,[],",
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_many_small_values_are_refused_before_they_are_built(unit, monkeypatch):
    """64 MiB of `[[],[],…]`, a few kilobytes as .gz, would become gigabytes of Python objects."""
    decoded = []
    monkeypatch.setattr(parsing, "_decode", decoded.append)
    monkeypatch.setattr(parsing, "_LIGHT", 1 << 10)
    data = b"[" + unit * (MIB // len(unit)) + b"0]"
    with pytest.raises(TooManyValues, match="more than 2 MiB of memory"):
        parse(data, 2 * MIB)
    assert not decoded


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_what_is_weighed_bounds_what_is_taken(unit):
    """The limit would be a number without meaning."""
    code = f"""
import resource
from warmgate.replay import parsing
data = b"[" + {unit!r} * ({4 * MIB} // {len(unit)}) + b"0]"
before = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
value = parsing._decode(data.replace(b"NaN", b"1.5"))
print(parsing._weight(data), int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    weight, taken = map(int, done.stdout.split())
    assert taken < 1.25 * weight + 8 * MIB


@pytest.mark.parametrize("escaped", [False, True])
def test_signs_within_text_weigh_nothing(escaped, monkeypatch):
    """Agents talk about code and JSON: a trace full of brackets and quotes in its texts would be refused."""
    monkeypatch.setattr(parsing, "_LIGHT", 1 << 10)
    text = '[{},"\\",{[,' * 100_000 if escaped else "[{},{[,[]]}" * 100_000
    value = [{"role": "user", "content": text}] * 3
    assert parse(json.dumps(value).encode(), MIB) == value


def test_structure_is_found_across_pieces(monkeypatch):
    """Text is looked through in pieces; a quote at the edge of one must not turn text into structure."""
    value = {"a": ['x"y\\', "", "[[[", {"\\\\": '"'}], 'b"': ["\\", ["\n{"], "é[😀]"]}
    data = json.dumps(value, ensure_ascii=False).encode()
    for size in range(1, 40):
        monkeypatch.setattr(parsing, "_CHUNK", size)
        assert parsing._structure(data).translate(None, b'"') == b"{[,,,{}],[,[],]}"


def test_large_traces_that_exist_are_accepted():
    """A trace of ten million block ids, or one line of 200,000 messages, is heavy and real."""
    assert parsing._weight(b'{"hash_ids": [' + b"123456, " * 1000 + b"0]}") * 10_000 < DOCUMENT_OBJECTS
    message = b'{"role": "assistant", "content": "short"}, '
    assert parsing._weight(message * 200) * 1000 < LINE_OBJECTS


def test_too_little_memory_is_said(monkeypatch):
    """A machine smaller than ours would show a traceback."""

    def none(_data: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(parsing, "_decode", none)
    with pytest.raises(TooManyValues, match="more memory than there is"):
        parse(b"[]")


def test_half_pairs_of_surrogates_are_mended_and_whole_ones_kept():
    """Text cut by JavaScript would cost its record."""
    assert parse(rb'["\ud83d", "\ud83d\ude00", "\\ud83d", "\\\ud83d", "\ude00\ud83d", "\ud83d\ud83d\ude00"]') == [
        "\ufffd",
        "😀",
        "\\ud83d",
        "\\\ufffd",
        "\ufffd\ufffd",
        "\ufffd😀",
    ]


def test_a_long_run_of_backslashes_takes_no_memory():
    """The search for half pairs would remember every backslash it passed."""
    code = f"""
import resource
from warmgate.replay.parsing import NotJson, parse
data = b'["' + b"\\\\" * {16 * MIB} + b'\\\\ud83d", NaN]'
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
value = parse(data)
assert len(value[0]) == {8 * MIB} + 1, len(value[0])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout) < 200


def test_three_heavy_lines_stay_below_a_gigabyte(tmp_path):
    """Three lines of 60 MiB took 4.4 GB: all of them were held to tell the format."""
    path = tmp_path / "heavy.jsonl.gz"
    unit = b'{"":[0]},'
    with gzip.open(path, "wb", 1) as file:
        for _ in range(3):
            file.write(b'{"messages":[')
            for _ in range(60):
                file.write(unit * (MIB // len(unit)))
            file.write(b"0]}\n")
    code = f"""
import resource
from warmgate.cli.app import run
code = run(["replay", {str(path)!r}])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    code_, peak = map(int, done.stdout.split())
    assert code_ == 2
    assert peak < 1000
    assert done.stderr.count(b"\n") == 1
    assert b"its many small values would take more than 128 MiB of memory" in done.stderr


def test_a_heavy_document_is_refused_by_its_own_limit(tmp_path):
    """A user would be told that their document is no JSON."""
    path = tmp_path / "heavy.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"[" + b"[],\n" * (6 * MIB) + b"[]]")
    code = f"from warmgate.cli.app import run; raise SystemExit(run(['replay', {str(path)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 2
    assert b"is one JSON document, and its many small values would take more than 512 MiB of memory; split it" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_not_json_stays_not_json():
    with pytest.raises(NotJson) as fault:
        parse(b"[" * 200_000 + b"," * MIB * 2)
    assert not isinstance(fault.value, TooManyValues)

"""One JSON value out of bytes that nobody promised anything about."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MAX_DEPTH = 128
"""Levels of lists and objects that are always accepted (recorded agent runs stay below 40). At twice as many a value is refused, so that
whoever walks it later, Python's own ``==`` and ``json`` included, stays far from the interpreter's recursion limit."""

_decode = msgspec.json.Decoder().decode
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")


class NotJson(Exception):
    """The bytes are not a JSON value.

    Args:
        why: Completes the sentence "skipped, …".
        offset: Byte at which parsing gave up, where known.
    """

    def __init__(self, why: str, offset: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.offset = offset


def parse(data: bytes) -> Any:
    """The JSON value in ``data``. Of a key written twice the last one counts.

    Two things that writers of traces really produce, and JSON forbids, are mended: ``NaN`` and ``Infinity`` (Python's ``json``) count as
    ``null``, and half of a surrogate pair (text cut by JavaScript) as U+FFFD.

    Raises:
        NotJson: Anything else that is wrong: syntax, encoding, NUL bytes, numbers beyond a double, absurd nesting.
    """
    try:
        value = _decode(data)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except msgspec.DecodeError as fault:
        value = _mended(data, fault)
    if _too_deep(data):
        raise NotJson("it is nested too deeply")
    return value


def _mended(data: bytes, fault: msgspec.DecodeError) -> Any:
    mended = _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data) if b"\\u" in data else data
    try:
        if b"NaN" in data or b"Infinity" in data:
            return json.loads(mended.decode("utf-8"), parse_constant=lambda _name: None)
        if mended != data:
            return _decode(mended)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except ValueError:  # msgspec's and json's own faults, broken UTF-8 and numbers of thousands of digits are all ValueErrors
        pass
    raise _explained(data, fault) from None


def _explained(data: bytes, fault: msgspec.DecodeError) -> NotJson:
    said = str(fault)
    found = _BYTE.search(said)
    offset = int(found[1]) if found else None
    if b"\0" in data:
        return NotJson("it holds NUL bytes", data.index(b"\0"))
    if "UTF-8" in said:
        return NotJson("it is not valid UTF-8", offset)
    size = len(data.rstrip())
    if "truncated" in said or (offset is not None and offset >= size):
        return NotJson("its JSON ends in the middle", size)
    if "out of range" in said:
        return NotJson("a number in it is out of range", offset)
    return NotJson(f"it is not valid JSON ({said.removeprefix('JSON is malformed: ')})", offset)


def _too_deep(data: bytes) -> bool:
    """Whether valid JSON is nested deeper than is safe: true from ``2 * MAX_DEPTH`` levels, never up to ``MAX_DEPTH``.

    Peels the innermost brackets off level by level; each step runs at the speed of memory.
    """
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    left = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not left:
            return False
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return bool(left)

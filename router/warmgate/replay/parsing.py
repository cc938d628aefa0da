"""One JSON value out of bytes that nobody promised anything about."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MAX_DEPTH = 128
"""Levels of lists and objects that are always accepted (recorded agent runs stay below 40). At twice as many a value is refused, so that
whoever walks it later, Python's own ``==`` and ``json`` included, stays far from the interpreter's recursion limit."""

LINE_OBJECTS = 128 << 20
"""Bytes of memory that the values of one line may take, by :func:`_weight`: three million numbers, a quarter of a million messages."""

DOCUMENT_OBJECTS = 512 << 20
"""The same for a trace that is one document: twelve million numbers, a million messages. Their text comes on top."""

_LIGHT = 1 << 20
"""Bytes of JSON that are not weighed: no value takes more than 30 times its text."""

_COMMA, _QUOTE, _LIST, _OBJECT = 44, 30, 64, 160
"""Bytes of memory behind one sign of JSON, as measured with CPython 3.11: a number and its place in a list, half a short text, an empty
list, an object of one key (without the key)."""

_CHUNK = 1 << 20
_decode = msgspec.json.Decoder().decode
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_HALF_PAIR = re.compile(
    rb"(?<!\\)((?:\\\\)*+)\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|([dD][89a-fA-F][0-9a-fA-F]{2}))"
)
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


class TooManyValues(NotJson):
    """It may be JSON, but so many small values would take far more memory than their text."""


def parse(data: bytes, most: int = LINE_OBJECTS) -> Any:
    """The JSON value in ``data``, whose objects may take ``most`` bytes of memory. Of a key written twice the last one counts.

    Two things that writers of traces really produce, and JSON forbids, are mended: ``NaN`` and ``Infinity`` (Python's ``json``) count as
    ``null``, and half of a surrogate pair (text cut by JavaScript) as U+FFFD.

    Raises:
        TooManyValues: It would take more memory than that, or than there is. Said before anything is built.
        NotJson: Anything else that is wrong: syntax, encoding, NUL bytes, numbers beyond a double, absurd nesting.
    """
    try:
        if len(data) > _LIGHT and _weight(data) > most and _weight(_structure(data)) > most:
            raise TooManyValues(f"its many small values would take more than {most >> 20:,} MiB of memory")
        try:
            value = _decode(data)
        except RecursionError:
            raise NotJson("it is nested too deeply") from None
        except msgspec.DecodeError as fault:
            value = _mended(data, fault)
        if _too_deep(data):
            raise NotJson("it is nested too deeply")
    except MemoryError:
        raise TooManyValues("it needs more memory than there is") from None
    return value


def _mended(data: bytes, fault: msgspec.DecodeError) -> Any:
    mended = _HALF_PAIR.sub(lambda found: found[1] + rb"\ufffd" if found[2] else found[0], data) if b"\\u" in data else data
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


def _weight(data: bytes) -> int:
    """Bytes of memory that the values behind these signs take at most, without their text."""
    signs = ((b",", _COMMA), (b'"', _QUOTE), (b"[", _LIST), (b"{", _OBJECT))
    return sum(each * data.count(sign) for sign, each in signs)


def _structure(data: bytes) -> bytes:
    """Brackets and commas outside of texts, and two quotes for each text. Exact for as much of ``data`` as is valid JSON."""
    if b"\\" in data:  # escapes occur in texts alone; without them every quote begins or ends one
        data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    kept: list[bytes] = []
    inside = False
    for start in range(0, len(data), _CHUNK):
        parts = data[start : start + _CHUNK].split(b'"')
        kept.append(b'""'.join(parts[inside::2]).translate(None, _NO_STRUCTURE))
        inside ^= len(parts) % 2 == 0
    return b"".join(kept)


def _too_deep(data: bytes) -> bool:
    """Whether valid JSON is nested deeper than is safe: true from ``2 * MAX_DEPTH`` levels, never up to ``MAX_DEPTH``.

    Peels the innermost brackets off level by level; each step runs at the speed of memory.
    """
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    left = _structure(data).translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not left:
            return False
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return bool(left)

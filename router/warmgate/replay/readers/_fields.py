"""How a reader takes a value of the right type out of JSON that nobody promised anything about.

Every helper answers for any JSON value. A value of the wrong type counts as absent; where that would hide a broken record
(a token count, say) the helper raises :class:`Unusable` instead, and the reader skips and counts the record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from warmgate.replay.parsing import NotJson, parse
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.trace import MAX_TOKENS

SAMPLE = 20
"""Elements of a list that a reader looks at to tell its format."""

MAX_SECONDS = 1e11
"""Larger numbers are no time in seconds (that would be the year 5138): they are milli-, micro- or nanoseconds."""

_SUBDIVISIONS = (1.0, 1e3, 1e6, 1e9)


class Unusable(Exception):
    """A record cannot be used. Readers turn it into one call of ``source.skipped``.

    Args:
        why: Completes the sentence "skipped, …".
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """``value`` if it is a JSON array, else an empty one."""
    return [*cast("Iterable[Any]", value)] if isinstance(value, list) else []


def mappings(value: Any) -> list[dict[str, Any]]:
    """The objects of an array."""
    return [cast("dict[str, Any]", one) for one in items(value) if isinstance(one, dict)]


def text(value: Any) -> str | None:
    """``value`` if it is a string with something in it."""
    return value if isinstance(value, str) and value else None


def first_text(*values: Any) -> str | None:
    """The first of ``values`` that is a string with something in it."""
    for value in values:
        if (found := text(value)) is not None:
            return found
    return None


def key(value: Any) -> str | None:
    """A session key or id: a string, or an integer written as one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return str(value)
    return text(value)


def dig(value: Any, *path: str) -> Any:
    """``value[path[0]][path[1]]…``, or ``None`` where a step is missing."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, Any]", value).get(step)
    return value


def parsed(value: Any, times: int = 2) -> Any:
    """``value`` with JSON held in a string taken out of it, at most ``times`` deep (exports encode some fields twice)."""
    for _ in range(times):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = parse(value.encode("utf-8", "replace"))
        except NotJson:
            break
    return value


def compact(value: Any) -> str:
    """JSON text as chat templates print it (``, `` and ``: `` between, unicode kept).

    Raises:
        Unusable: Nested too deeply to print.
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        raise Unusable("a value in it is nested too deeply") from None


def count(value: Any, name: str) -> int | None:
    """A token count, or ``None`` where the record has none.

    Raises:
        Unusable: Anything but a whole number from 0 to :data:`~warmgate.replay.trace.MAX_TOKENS`.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unusable(f"{name} is {_shown(value)}, not a whole number")
    if value < 0:
        raise Unusable(f"{name} is negative")
    if value > MAX_TOKENS:
        raise Unusable(f"{name} is absurdly large")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    shown = repr(value)
    return shown if len(shown) <= 24 else shown[:23] + "…"


def seconds(value: Any) -> float | None:
    """A point in time in seconds since 1970: from ISO 8601 text, or from a number in s, ms, µs or ns told by its size.

    Digits in a string are read as a number, as OTLP's JSON writes nanoseconds. A time without a zone counts as UTC.
    """
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9]{1,25}(\.[0-9]{1,25})?", value):
            return _iso(value)
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and abs(value) > 1 << 80:
        return None
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        return None
    return next((number / by for by in _SUBDIVISIONS if number / by < MAX_SECONDS), None)


def _iso(value: str) -> float | None:
    if not 10 <= len(value) <= 40:
        return None
    # more than six digits of a second (Go, Rust, Java write nine) are too many for Python 3.11
    value = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", value)
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def records(source: Source) -> Iterator[tuple[int, Any]]:
    """Numbered records of a trace that is JSON Lines, or the same records in one document: a list, or a single one."""
    document = source.head.document
    if document is not None:
        yield from enumerate(items(document) if isinstance(document, list) else [document], 1)
        return
    from warmgate.replay.source import iter_json_lines

    yield from iter_json_lines(source)


def samples(head: Head) -> list[dict[str, Any]]:
    """The first objects of a trace, wherever :func:`records` would find them."""
    if head.document is None:
        return mappings(head.lines)
    return mappings((items(head.document) or [head.document])[:SAMPLE])


def mostly(found: Iterable[bool]) -> bool:
    """Whether at least half of a few records are of a kind, and one is: a format survives a broken record at its start."""
    answers = list(found)
    return any(answers) and 2 * sum(answers) >= len(answers)


def in_order(starts: Sequence[float | None]) -> list[int]:
    """Indices of calls in the order sent. A call without a time keeps its place behind the one written before it."""
    known: list[float] = []
    for start in starts:
        known.append(start if start is not None else known[-1] if known else float("-inf"))
    return sorted(range(len(starts)), key=lambda index: (known[index], index))

"""All text of a message or of any other JSON value: where may control markup stand?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from warmgate.foreign import items, mapping, text

PARTS = ("text", "content", "thinking", "refusal")
"""Keys of a content part that templates print."""

DEEP = 3
"""How often JSON inside JSON is parsed again: arguments are text in a message, and may hold such text themselves."""


def message_fields(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(Name of the field, text) for each text in a message, keys included."""
    for name, value in message.items():
        if isinstance(value, str):
            yield name, value
            if "\\" in value and name not in ("content", "reasoning", "reasoning_content"):
                yield from ((name, inner) for inner in strings(value))
            continue
        if value is None:
            continue
        if name == "content" and (joined := "".join(map(_part, items(value)))):
            yield name, joined
        yield from ((name, inner) for inner in strings(value))
    yield from (("message", name) for name in message if not name.isidentifier())


def strings(value: Any) -> Iterable[str]:
    """Every text in a value, keys included, and what a text says that is JSON with escapes in it."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    seen: set[int] = set()
    kept: list[Any] = []  # ids of what was parsed here must not be given to another object
    while stack:
        one, depth = stack.pop()
        if isinstance(one, str):
            yield one
            if "\\" in one and depth < DEEP and (meant := _meant(one)) is not None:
                kept.append(meant)
                stack.append((meant, depth + 1))
        elif isinstance(one, (Mapping, list, tuple, set, frozenset)):
            if id(cast("object", one)) in seen:  # a cycle, or the same object again
                continue
            seen.add(id(cast("object", one)))
            if isinstance(one, Mapping):
                given = mapping(cast("object", one))
                stack.extend((key, depth) for key in given)
                stack.extend((inner, depth) for inner in given.values())
            else:
                stack.extend((inner, depth) for inner in cast("Iterable[Any]", one))
        elif one is not None and not isinstance(one, (bool, int, float)):
            yield str(one)


def _meant(written: str) -> Any:
    try:
        return json.loads(written, strict=False)
    except (ValueError, RecursionError):
        return None


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    fields = mapping(part)
    return next((found for key in PARTS if (found := text(fields.get(key))) is not None), "")

"""Server-sent events, and how a generated reply is cut into them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from warmgate.standin.generation import Generated
from warmgate.standin.shapes import as_object, is_object
from warmgate.standin.text import Text

SSE_TYPE = "text/event-stream; charset=utf-8"


def event(payload: Mapping[str, Any]) -> bytes:
    """One event."""
    return b"data: " + json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"


def finished(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Token counts as the last event of a stream has them: nothing that is null."""
    shown: dict[str, Any] = {}
    for key, value in usage.items():
        if is_object(value):
            shown[key] = {name: count for name, count in as_object(value).items() if count is not None}
        elif value is not None:
            shown[key] = value
    return shown


def deltas(text: Text, made: Generated) -> Iterator[tuple[int, int, str]]:
    """A reply in pieces of one token or more: (first token, token after the last, text).

    A token that ends inside a character waits for the rest of it. The last piece carries the end-of-turn token.
    """
    ids = made.ids
    window = begin = 0  # the piece before is decoded along, for tokenizers that drop a text's leading space
    for end in range(1, len(ids) + 1):
        before = text.decode(ids[window:begin], skip_special=True)
        said = text.decode(ids[window:end], skip_special=True)
        if end < len(ids) and (said.endswith("\ufffd") or len(said) <= len(before)):
            continue
        yield begin, end, said[len(before) :]
        window, begin = begin, end

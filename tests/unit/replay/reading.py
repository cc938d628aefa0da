"""Hands a reader a trace, from a file of our own or from memory, the way ``replay`` does."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmgate.replay.parsing import NotJson, parse
from warmgate.replay.readers._base import Head, Reader, Skipped, Source
from warmgate.replay.trace import Call, TextPrompt

DATA = Path(__file__).parents[2] / "data"
SHARED = Path(os.environ.get("WARMGATE_SHARED", Path(__file__).parents[4] / "shared")) / "traces"


@dataclass
class Reading:
    """What a reader made of a trace."""

    calls: list[Call]
    said: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: int = 0

    def messages(self, index: int) -> list[dict[str, Any]]:
        """The prompt of one call as plain objects."""
        prompt = self.calls[index].prompt
        assert isinstance(prompt, TextPrompt)
        return [dict(m) for m in prompt.messages]

    def spoken(self, index: int) -> list[tuple[str, str]]:
        """Role and content of one call's messages."""
        return [(m["role"], m["content"]) for m in self.messages(index)]

    @property
    def counts(self) -> list[tuple[int | None, int | None, int | None]]:
        """Prompt, cached and output tokens of each call."""
        return [(c.usage.prompt_tokens, c.usage.cached_tokens, c.usage.output_tokens) for c in self.calls]

    @property
    def sessions(self) -> list[str]:
        return [c.session for c in self.calls]


def read(reader: Reader, trace: str | Path | bytes | Any, *, lines: bool = False) -> Reading:
    """Read a file below ``tests/data``, bytes, or values (one document, or with ``lines`` a list of JSON Lines)."""
    if isinstance(trace, (str, Path)):
        trace = (DATA / trace).read_bytes()
    elif not isinstance(trace, bytes):
        trace = b"".join(json.dumps(one).encode() + b"\n" for one in trace) if lines else json.dumps(trace).encode()
    said: list[str] = []
    source = Source("trace", head(trace), io.BytesIO(trace), Skipped("trace", said.append))
    assert reader.recognises(source.head)
    return Reading(list(reader.read(source)), said, source.notes, source.skipped.count)


def head(data: bytes) -> Head:
    """One document where the bytes are one, else their lines."""
    try:
        document = parse(data)
    except NotJson:
        return Head(lines=list(_lines(data)))
    return Head(document, [document])


def _lines(data: bytes) -> Any:
    for line in data.splitlines()[:50]:
        try:
            yield parse(line)
        except NotJson:
            continue

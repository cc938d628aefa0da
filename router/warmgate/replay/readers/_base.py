"""The contract of a reader: one small protocol, and what it is handed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from warmgate.replay.trace import Call


@dataclass(slots=True)
class Head:
    """The start of a trace, enough to tell formats apart by content.

    Attributes:
        document: The whole file as parsed JSON when it is one JSON document, else ``None``.
        lines: The first parsed JSON lines (broken ones left out) when it is JSON Lines, else empty.
    """

    document: Any = None
    lines: list[Any] = field(default_factory=list[Any])


@dataclass(slots=True)
class Skipped:
    """Counts and reports the records that a reader leaves out; never silently.

    Attributes:
        path: Shown to the user.
        say: Called with one line for people about each of the first few skipped records, and once more with the rest's count.
    """

    path: str
    say: Callable[[str], None]
    count: int = 0
    shown: int = 5

    def __call__(self, line: int | None, why: str) -> None:
        """Record that the record at ``line`` (from 1) was skipped because ``why``."""
        self.count += 1
        if self.count <= self.shown:
            self.say(f"{self.path}:{line}: skipped, {why}" if line else f"{self.path}: skipped a record, {why}")


@dataclass(slots=True)
class Source:
    """An opened trace.

    Attributes:
        path: As the user named it (``-`` is stdin).
        head: What the file was recognised by.
        stream: The uncompressed bytes, at the start. Readers of whole documents use ``head.document`` instead.
        skipped: Where to report records left out.
        notes: Sentences for people about what the format cannot know; readers append.
        prompt_tokens: Prompt tokens of all calls together, where the trace reports nothing but their sum. Set while reading.
    """

    path: str
    head: Head
    stream: BinaryIO
    skipped: Skipped
    notes: list[str] = field(default_factory=list[str])
    prompt_tokens: int | None = None


class Reader(Protocol):
    """Reads one format. A module of :mod:`warmgate.replay.readers` exposes one as ``READER``."""

    name: str
    """The word for this format in output, e.g. ``weka``."""
    title: str
    """The same for people, e.g. ``WEKA kv-cache trace (JSON)``."""

    def recognises(self, head: Head) -> bool:
        """Whether the head is this format, judged by content alone."""
        ...

    def read(self, source: Source) -> Iterator[Call]:
        """Yield the calls in the order they were sent.

        Raises:
            TraceError: The trace as a whole cannot be used; a single broken record is skipped and counted instead.
        """
        ...

"""A gate's record of its decisions, ``warmgate.decisions/1``: what shadow mode would have mounted, asked and denied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._fields import Unusable, count, items, mapping, records, samples, text
from warmgate.replay.readers._usage import made
from warmgate.replay.trace import Call

SCHEMA = "warmgate.decisions/1"

CHARACTERS_PER_TOKEN = 4
"""Of a tool's schema, about."""


@dataclass(slots=True)
class _Sums:
    decisions: int = 0
    mounts: int = 0
    offered: int = 0
    would: int = 0
    changed: int = 0
    dropped: int = 0
    shadowed: Counter[str] = field(default_factory=Counter[str])
    enforced: Counter[str] = field(default_factory=Counter[str])
    approved: int = 0
    rejected: int = 0
    latest: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def take(self, row: dict[str, Any], session: str) -> None:
        """One decision."""
        mounts = mapping(row.get("mounts"))
        dropped = count(mounts.get("dropped_characters"), "dropped_characters") or 0
        self.decisions += 1
        if mounts.get("shadow") is True:
            tools = items(mounts.get("tools"))
            would = tuple(name for name in items(mounts.get("would")) if isinstance(name, str))
            self.mounts += 1
            self.offered += len(tools)
            self.would += len(would)
            self.changed += would != self.latest.get(session, would)
            self.dropped += dropped
            self.latest[session] = would
        for verdict in items(row.get("verdicts")):
            one = mapping(verdict)
            (self.shadowed if one.get("shadow") is True else self.enforced)[text(one.get("verdict")) or "?"] += 1

    def notes(self) -> list[str]:
        """Sentences for people."""
        found = [f"these are {self.decisions:,} decisions of a gate, not calls of an agent; the trace beside them has the calls"]
        if self.mounts:
            found.append(
                f"shadowed mounts: {self.mounts:,}; enforcing would have mounted {self.would:,} of {self.offered:,} tools, changed the "
                f"set {self.changed:,} times, and left out about {self.dropped // CHARACTERS_PER_TOKEN:,} schema tokens (predicted)"
            )
        for name, counted in (("shadowed", self.shadowed), ("enforced", self.enforced)):
            if counted:
                words = ", ".join(f"{word} {counted[word]:,}" for word in ("allow", "ask", "deny"))
                found.append(f"{name} verdicts: {words}")
        if self.approved or self.rejected:
            found.append(f"people approved {self.approved:,} calls and rejected {self.rejected:,}: labels for `warmgate calibrate`")
        return found


class _Decisions:
    name = "warmgate_decisions"
    title = "warmgate decisions (JSONL)"

    def recognises(self, head: Head) -> bool:
        return any(text(row.get("schema")) == SCHEMA for row in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """A call for each decision, with the agent's prompt where it was counted; what was decided is summed up in the notes."""
        sums = _Sums()
        for line, record in records(source):
            row = dict(mapping(record))
            try:
                if isinstance(row.get("approved"), bool):
                    sums.approved += row["approved"]
                    sums.rejected += not row["approved"]
                    continue
                session = text(row.get("session"))
                if session is None or row.get("schema") != SCHEMA:
                    raise Unusable("it is no decision")
                tokens = count(mapping(row.get("mounts")).get("prompt_tokens"), "prompt_tokens")
                sums.take(row, session)
            except Unusable as fault:
                source.skipped(line, fault.why)
                continue
            yield Call(session, text(row.get("model")) or "", None, made(tokens, None, None), worker=text(row.get("worker")), line=line)
        source.notes += sums.notes()


READER: Reader = _Decisions()

"""Where consecutive prompts of a session part: ranked by what that costs, and grouped by kind."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warmgate.replay.result import CallRow, DivergedAt, Replay


@dataclass(frozen=True, slots=True)
class Break:
    """One call whose prompt parts from the session's previous one.

    Attributes:
        row: The call.
        trace: Path of its trace.
        at: Where they part.
        tokens: Tokens of the previous prompt given up and not given back by another sequence.
        kind: What happened, in a few words, without the details.
    """

    row: CallRow
    trace: str
    at: DivergedAt
    tokens: int
    kind: str

    @property
    def where(self) -> str:
        """``messages[3].content at token 4,120``: counted from 0, as in the JSON."""
        spot = _spot(self.at)
        if self.at.token is None:
            return spot or "at an unknown place"
        return f"{spot} at token {self.at.token:,}".lstrip()

    @property
    def detail(self) -> str:
        """``why`` without the words that are the kind already."""
        return (self.row.why or "").removeprefix(self.kind).lstrip(":; ")


@dataclass(frozen=True, slots=True)
class Kind:
    """All breaks of one kind. ``worst`` is the one that gave up most tokens."""

    name: str
    calls: int
    tokens: int
    worst: Break


def breaks(replay: Replay) -> list[Break]:
    """Every recorded divergence, the costliest first."""
    found: list[Break] = []
    for row in replay.calls:
        if row.diverged_at is not None:
            path = replay.traces[row.trace].path if row.trace < len(replay.traces) else ""
            found.append(Break(row, path, row.diverged_at, row.diverged_tokens, kind_of(row)))
    found.sort(key=lambda b: -b.tokens)
    return found


def kinds(found: list[Break]) -> list[Kind]:
    """Breaks by kind, the costliest kind first. ``found`` is ranked already, so the first of a kind is its worst."""
    groups: dict[str, list[Break]] = {}
    for one in found:
        groups.setdefault(one.kind, []).append(one)
    rows = [Kind(name, len(group), sum(b.tokens for b in group), group[0]) for name, group in groups.items()]
    return sorted(rows, key=lambda kind: (-kind.tokens, -kind.calls, kind.name))


def kind_of(row: CallRow) -> str:
    """The words of ``why`` before its details begin (``tools changed``), or the field."""
    head = re.split(r"[:;(]", row.why or "", maxsplit=1)[0].strip()
    if not head:
        field = row.diverged_at.field if row.diverged_at is not None else None
        return f"{field} differs" if field else "not explained"
    return head if len(head) <= 60 else head[:59] + "…"


def _spot(at: DivergedAt) -> str:
    if at.message is None:
        return at.field or ""
    if at.field in (None, "messages"):
        return f"messages[{at.message}]"
    return f"messages[{at.message}].{at.field}"

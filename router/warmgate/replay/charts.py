"""Geometry of the report's charts: numbers and SVG paths, no text from a trace.

Charts live in a box of ``width`` × 100 units that the page stretches; marks of divergences stand below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from warmgate.replay.meaning import RouteGroup
from warmgate.replay.result import CallRow, Replay

SESSIONS = 12
"""Sessions drawn, the largest by prompt tokens."""
COLUMNS = 96
"""Columns of one chart. Longer sessions share columns: each shows the mean of as many consecutive calls."""
LEAST = 24
"""Columns a chart has room for at least, so that three calls do not become three walls."""
STEP = 10

Series = Literal["survived", "lost", "rest", "computed", "unknown"]
SERIES: dict[Series, str] = {
    "survived": "survived: came from the cache",
    "lost": "lost: reusable, but computed again",
    "rest": "computed: new, or outside R",
    "computed": "computed; the trace cannot tell whether it was reusable",
    "unknown": "what survived is not recorded",
}
"""What a call's prompt tokens are divided into, from the bottom of a column up."""


@dataclass(frozen=True, slots=True)
class Column:
    """One call, or the mean of some. Counts are tokens per call.

    Attributes:
        first: Index of its first call in the session.
        last: Index of its last call.
        prompt: Prompt tokens; calls that do not record them count as 0.
        reusable: R, or None where no call of the column knows it.
        survived: S, or None likewise.
        lost: R − S.
        parts: ``prompt`` divided as :data:`SERIES` says.
        breaks: Calls whose prompt parts from the previous one.
    """

    first: int
    last: int
    prompt: float
    reusable: float | None
    survived: float | None
    lost: float
    parts: dict[Series, float]
    breaks: int


@dataclass(frozen=True, slots=True)
class SessionChart:
    """A session's prompts over its calls. ``top`` is the tokens of a full-height column."""

    session: str
    trace: int
    calls: int
    prompt_tokens: int
    survival: float | None
    hit_rate: float | None
    lost: int
    per_column: int
    columns: list[Column]
    top: float

    @property
    def width(self) -> int:
        """Units from left to right."""
        return STEP * max(LEAST, len(self.columns))

    @property
    def paths(self) -> dict[Series, Markup]:
        """One SVG path a series, empty series left out."""
        found: dict[Series, list[str]] = {}
        wide = STEP if len(self.columns) > 2 * LEAST else STEP - 2
        for index, column in enumerate(self.columns):
            y = 100.0
            for name, tokens in column.parts.items():
                if tokens and self.top:
                    height = tokens / self.top * 100
                    found.setdefault(name, []).append(f"M{index * STEP} {y:.2f}h{wide}v{-height:.2f}h{-wide}z")
                    y -= height
        return {name: Markup("".join(found[name])) for name in SERIES if name in found}  # noqa: S704 -- numbers alone


@dataclass(frozen=True, slots=True)
class Undrawn:
    """Sessions left out of the charts."""

    sessions: int
    calls: int
    prompt_tokens: int


def session_charts(replay: Replay, limit: int = SESSIONS) -> tuple[list[SessionChart], Undrawn]:
    """Charts of the largest sessions, and what is left undrawn."""
    sessions: dict[tuple[int, str], list[CallRow]] = {}
    for row in replay.calls:
        sessions.setdefault((row.trace, row.session), []).append(row)
    sized = sorted(((_sum(rows, _prompt), key) for key, rows in sessions.items()), key=lambda item: (-item[0], item[1]))
    drawn = [_chart(key, sessions[key]) for tokens, key in sized[:limit] if tokens]
    rest = sized[len(drawn) :]
    return drawn, Undrawn(len(rest), sum(len(sessions[key]) for _, key in rest), sum(tokens for tokens, _ in rest))


def _chart(key: tuple[int, str], rows: Sequence[CallRow]) -> SessionChart:
    each = -(-len(rows) // COLUMNS)
    columns = [_column(rows[start : start + each]) for start in range(0, len(rows), each)]
    both = [r for r in rows if r.reusable is not None and r.survived is not None]
    hits = [r for r in rows if r.prompt_tokens is not None and r.survived is not None]
    return SessionChart(
        session=key[1],
        trace=key[0],
        calls=len(rows),
        prompt_tokens=_sum(rows, _prompt),
        survival=_ratio(_sum(both, _survived), _sum(both, _reusable)),
        hit_rate=_ratio(_sum(hits, _survived), _sum(hits, _prompt)),
        lost=sum(r.lost for r in rows),
        per_column=each,
        columns=columns,
        top=max(c.prompt for c in columns),
    )


def _column(rows: Sequence[CallRow]) -> Column:
    number = len(rows)
    parts: dict[Series, float] = dict.fromkeys(SERIES, 0.0)
    for row in rows:
        prompt = row.prompt_tokens or 0
        if row.survived is None:
            parts["unknown"] += prompt / number
            continue
        kept = min(row.survived, prompt)
        lost = min(row.lost, prompt - kept)
        parts["survived"] += kept / number
        parts["lost"] += lost / number
        parts["computed" if row.reusable is None else "rest"] += (prompt - kept - lost) / number
    return Column(
        first=rows[0].index,
        last=rows[-1].index,
        prompt=_sum(rows, _prompt) / number,
        reusable=_mean([r.reusable for r in rows]),
        survived=_mean([r.survived for r in rows]),
        lost=sum(r.lost for r in rows) / number,
        parts=parts,
        breaks=sum(r.diverged_at is not None for r in rows),
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """A scenario as a bar of at most 1000 units: what the agent alone computes, then the gate's tax; the floor is a mark.

    A negative tax shortens the bar instead: ``saved`` is drawn hollow behind it.
    """

    name: str
    alone: float
    tax: float
    saved: float
    floor: float


def scenario_bars(groups: Iterable[RouteGroup]) -> list[tuple[RouteGroup, list[Bar]]]:
    """Bars of every group on one scale."""
    groups = list(groups)
    top = max((max(s.computed_tokens, s.floor_tokens, s.computed_tokens - s.tax_tokens) for g in groups for s in g.scenarios), default=0)
    unit = 1000 / top if top else 0.0
    shown: list[tuple[RouteGroup, list[Bar]]] = []
    for group in groups:
        bars: list[Bar] = []
        for s in group.scenarios:
            base = s.computed_tokens - s.tax_tokens
            alone = min(base, s.computed_tokens) * unit
            bars.append(Bar(s.name, alone, max(0, s.tax_tokens) * unit, max(0, -s.tax_tokens) * unit, s.floor_tokens * unit))
        shown.append((group, bars))
    return shown


def _prompt(row: CallRow) -> int | None:
    return row.prompt_tokens


def _survived(row: CallRow) -> int | None:
    return row.survived


def _reusable(row: CallRow) -> int | None:
    return row.reusable


def _sum(rows: Iterable[CallRow], figure: Callable[[CallRow], int | None]) -> int:
    return sum(figure(row) or 0 for row in rows)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None

"""What ``warmgate top`` prints of a reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from warmgate.errors import one_line
from warmgate.telemetry.reading import Reading, Step, Worker

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

WIDE = 100
"""Columns that the tables take."""

STEPS = {"read": "agent → gate (reads)", "call": "gate → agent (calls)"}


def view(now: Reading, before: Reading | None, url: str, trouble: str = "", *, width: int = WIDE) -> Group:
    """The totals, or with ``before`` what happened since.

    Args:
        now: The latest reading.
        before: The one before; that of a gate which was started anew since counts for nothing.
        url: Where it comes from.
        trouble: Why there is no later one.
        width: Columns there are; below :data:`WIDE` tables become lines, so that no figure is cut.
    """
    from rich.console import Group
    from rich.text import Text

    if before is not None and not now.follows(before):
        before = None
    was = before or Reading(now.at)
    moved = {name: value - was.totals.get(name, 0) for name, value in now.totals.items()}
    steps = {kind: now.steps.get(kind, Step()).since(was.steps.get(kind, Step())) for kind in STEPS}
    span = "since the gate began" if before is None else f"in the last {now.at - before.at:.0f} s"
    seconds = [f"{part} {value - was.tax_seconds.get(part, 0):,.2f} s" for part, value in now.tax_seconds.items() if value]
    lines = [
        f"{span}: {_sum(now.decisions) - _sum(was.decisions):,.0f} decisions, mean {_ms(moved)}; "
        f"survival {_ratio(moved['survived_tokens_total'], moved['reusable_tokens_total'])}, "
        f"hit rate {_ratio(moved['survived_tokens_total'], moved['prompt_tokens_total'])} ({_basis(*steps.values())})",
        f"computed {moved['computed_tokens_total']:,.0f} tokens, floor {moved['floor_tokens_total']:,.0f}, "
        f"tax {moved['tax_tokens']:,.0f} ({_times(moved['computed_tokens_total'], moved['floor_tokens_total'])} the floor"
        f"{''.join(f'; {one}' for one in seconds)}); rebinds {moved['rebinds_total']:,.0f}",
        _listed("lost", now.lost, was.lost, "nothing"),
        _listed("outside R", now.outside, was.outside, "nothing"),
        _listed("fallbacks", now.fallbacks, was.fallbacks, "none"),
        _listed("verdicts", now.verdicts, was.verdicts, "none"),
    ]
    left = [f"{step.unpredicted:,.0f} {kind}s" for kind, step in steps.items() if step.unpredicted > 0]
    if left:
        lines.append(f"not predicted, and in no figure of survival or tax: {', '.join(left)}")
    parts: list[Text | Table] = [Text(f"warmgate top  {one_line(url, 200)}", style="bold")]
    if trouble:  # above all that may be cut off by a low terminal
        parts.append(Text(one_line(trouble), style="bold red"))
    parts += [Text(line) for line in lines]
    for heads, rows in (_steps(steps), _workers(now.workers, was.workers)):
        parts += [Text(""), _table(heads, rows)] if width >= WIDE else [Text(_spoken(heads, row)) for row in rows]
    return Group(*parts)


Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Heads, and rows of as many cells."""


def _steps(steps: Mapping[str, Step]) -> Rows:
    heads = ("step", "reusable", "available", "captured", "delivered", "survival", "basis")
    rows: list[tuple[str, ...]] = []
    for kind, step in steps.items():
        numbers = (step.reusable, step.available, step.captured, step.delivered)
        rows.append((STEPS[kind], *(f"{number:,.0f}" for number in numbers), _ratio(step.delivered, step.reusable), _basis(step)))
    return heads, rows


def _workers(now: Mapping[str, Worker], was: Mapping[str, Worker]) -> Rows:
    rows: list[tuple[str, ...]] = []
    for name, worker in now.items():
        old = was.get(name, Worker())
        reusable, survived = worker.reusable - old.reusable, worker.survived - old.survived
        numbers = (f"{worker.sessions:,.0f}", f"{worker.blocks:,.0f}", f"{reusable:,.0f}", _ratio(survived, reusable))
        rows.append((one_line(name, 60), *numbers, one_line(worker.events, 20)))
    return ("worker", "sessions", "blocks", "reusable", "survival", "events"), rows


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(heads):
        table.add_column(name, justify="right" if 0 < number < len(heads) - 1 else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _spoken(heads: tuple[str, ...], row: tuple[str, ...]) -> str:
    return f"{row[0]}: {', '.join(f'{head} {cell}' for head, cell in zip(heads[1:], row[1:], strict=True))}"


def _sum(values: Mapping[str, float]) -> float:
    return sum(values.values())


def _ratio(part: float, whole: float) -> str:
    """A share; ``–`` where there was nothing to reuse, which is not 0 %."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "–"


def _basis(*steps: Step) -> str:
    """What delivered tokens rest on: of how much of the prompts the engine told what was cached."""
    prompt, measured = sum(step.prompt for step in steps), sum(step.measured for step in steps)
    if prompt <= 0:
        return "–"
    if measured <= 0:
        return "predicted"
    return "measured" if measured >= prompt else f"{min(99, max(1, round(100 * measured / prompt)))} % measured, the rest predicted"


def _times(part: float, whole: float) -> str:
    return f"{part / whole:.2f} ×" if whole > 0 else "–"


def _ms(moved: Mapping[str, float]) -> str:
    count = moved["decision_duration_seconds_count"]
    return f"{1000 * moved['decision_duration_seconds_sum'] / count:,.0f} ms" if count > 0 else "–"


def _listed(title: str, now: Mapping[str, float], was: Mapping[str, float], nothing: str) -> str:
    moved = sorted(((value - was.get(key, 0), key) for key, value in now.items()), reverse=True)
    shown = [f"{one_line(key, 60)} {value:,.0f}" for value, key in moved if value > 0]
    return f"{title}: {', '.join(shown[:8]) or nothing}"

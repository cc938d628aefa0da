"""A replay in the terminal: what survived, what was lost and why, what lies outside, and what a gate would cost.

Everything that comes from a trace is put into ``rich.text.Text``, which is never parsed as markup, after
:func:`warmgate.errors.one_line` has taken out control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from warmgate.errors import one_line
from warmgate.replay.assumptions import assumptions
from warmgate.replay.breaks import Kind, breaks, kinds
from warmgate.replay.figures import (
    LEGEND,
    UNKNOWN,
    Part,
    compact,
    count,
    duration,
    headline,
    losses,
    money,
    outside,
    percent,
    plural,
    ratio,
    signed,
)
from warmgate.replay.meaning import RouteGroup, groups, meaning, per_call, scope
from warmgate.replay.remarks import remarks, short_names
from warmgate.replay.result import Replay, Scenario, Totals, TraceResult
from warmgate.replay.terminal import Whole, indented, safe, table_of, tail

TRACES = 20
"""Traces with a row of their own, the largest; the others share one row."""
BREAKS = 5
"""Kinds of divergence shown, the costliest."""
REMARKS = 20
"""Notes shown; the rest are counted."""

ASCII = str.maketrans({"·": "-", "×": "x", "→": "->", "…": "...", "−": "-", "─": "-"})
"""What our own signs become where the output's encoding has no room for them."""

Cells: TypeAlias = tuple[str, ...]
Number: TypeAlias = Callable[[float | None], str]


def render(replay: Replay, console: Console) -> None:
    """Print ``replay``. Plain text without escape codes where ``console`` is no terminal; no width cuts a figure."""
    page = Group(*_sections(replay, console))
    utf8 = console.encoding.lower().replace("-", "").startswith("utf")
    if console.is_terminal and utf8:
        console.print(page, highlight=False, crop=False)
        return
    with console.capture() as captured:
        console.print(page, highlight=False, crop=False)
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    if not utf8:
        text = text.translate(ASCII).encode(console.encoding, "replace").decode(console.encoding)
    console.file.write(text)


def _sections(replay: Replay, console: Console) -> Iterable[RenderableType]:
    sessions = sum(t.sessions for t in replay.traces)
    parts = [plural(len(replay.traces), "trace"), plural(sessions, "session"), plural(replay.totals.calls, "call")]
    yield Text.assemble(("warmgate replay", "bold"), "  " + " · ".join(parts))
    yield Text()
    yield _headline(replay)
    yield from _budget(replay.totals)
    yield from _breaks(replay)
    yield from _scenarios(replay, console)
    if len(replay.traces) > 1:
        yield from _traces(replay, console)
    yield from _remarks(replay)
    yield from _heading("What these figures rest on")
    legend = "; ".join(f"{name}: {said}" for name, said in LEGEND.items())
    yield _paragraph(f"{legend}.")
    yield _paragraph(" · ".join(f"{name}: {holds}" for name, holds in assumptions(replay)), "dim")


def _headline(replay: Replay) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for figure in headline(replay):
        grid.add_row(safe(figure.label), Text(figure.value, "bold"), Text(figure.basis or ""), safe(figure.detail))
    return Whole(grid, indent=1)


def _budget(totals: Totals) -> Iterable[RenderableType]:
    """What was lost inside R, and what lies outside it, in one table."""
    if totals.reusable_tokens is None:
        yield from _heading("Lost, and outside R")
        yield _paragraph("Unknown: no prompts are recorded." if totals.calls else "No calls.")
        return
    table = table_of("", "tokens", "share", text="")
    basis = totals.basis.get
    _part(table, "lost", f"share of R{_said(basis('lost_tokens'))}", losses(totals))
    if not losses(totals):
        nothing = totals.survival is not None or totals.reusable_tokens == 0
        table.add_row(Text(" nothing" if nothing else f" {UNKNOWN}"))
    _part(table, "outside R", f"share of all prompt tokens{_said(basis('outside'))}", [p for p in outside(totals) if p.tokens])
    if not any(p.tokens for p in outside(totals)):
        table.add_row(Text(" nothing"))
    yield Text()
    yield Whole(table)


def _part(table: Table, title: str, share: str, parts: Sequence[Part]) -> None:
    table.add_row(Text(title, "bold cyan"), "", "", Text(share, "dim"))
    for part in parts:
        table.add_row(safe(f" {part.name}", 24), Text(count(part.tokens), "bold"), Text(percent(part.share)), safe(part.meaning))


def _said(basis: str | None) -> str:
    return f", {basis}" if basis else ""


def _breaks(replay: Replay) -> Iterable[RenderableType]:
    found = breaks(replay)
    if not found:
        return
    by_kind = kinds(found)
    more = f", the {BREAKS} costliest of {len(by_kind):,} kinds" if len(by_kind) > BREAKS else ""
    yield from _heading(f"Where a prompt parts from its session's previous one: {plural(len(found), 'call')}{more} (predicted)")
    for kind in by_kind[:BREAKS]:
        yield from _kind(kind)


def _kind(kind: Kind) -> Iterable[RenderableType]:
    worst = kind.worst
    yield _paragraph(Text.assemble((one_line(kind.name, 60), "bold"), f"  {count(kind.tokens)} tokens in {plural(kind.calls, 'call')}"))
    given = "" if kind.calls == 1 else f", {count(worst.tokens)} tokens"
    lead = "worst: " if kind.calls > 1 else ""
    detail = one_line(worst.detail, 240)
    place = f"{lead}session {one_line(worst.row.session, 40)}, call {worst.row.index}, {one_line(worst.where, 60)}{given}"
    yield indented(Text(f"{place}: {detail}" if detail else place, "dim"), 3)


def _scenarios(replay: Replay, console: Console) -> Iterable[RenderableType]:
    shown = groups(replay)
    yield from _heading("What a gate would cost" + (f": {scope(replay)} (predicted)" if shown else ""))
    for sentence in meaning(replay):
        yield _paragraph(sentence)
    if not shown:
        return
    exact = Whole(_by_route(shown, ("gate", "computed", "floor", "ratio", "tax tokens", "tax a call"), _token_cells(replay, count, signed)))
    yield Text()
    if exact.needed <= console.width:
        yield exact
    else:
        yield Whole(_by_route(shown, ("gate", "computed", "floor", "ratio", "tax", "a call"), _token_cells(replay, compact, compact)))
    if any(s.tax_ms is not None or s.tax_money is not None for group in shown for s in group.scenarios):
        yield Text()
        yield Whole(_by_route(shown, ("tax", "hop", "a call", "prefill", "a call", "money"), _cost_cells(replay)))


def _by_route(shown: list[RouteGroup], names: Cells, cells: Callable[[Scenario], Cells | None]) -> Table:
    table = table_of(*names)
    for group in shown:
        route = group.route.replace("_", " ") if group.route else "any route"
        table.add_row(Text(one_line(route, 20), "bold cyan"))
        for scenario in group.scenarios:
            if (row := cells(scenario)) is not None:
                side = " (side)" if scenario.gate == "sidecar" else ""
                table.add_row(safe(f" {scenario.name}{side}", 24), *map(Text, row))
    return table


def _token_cells(replay: Replay, number: Number, tax: Number) -> Callable[[Scenario], Cells]:
    def cells(s: Scenario) -> Cells:
        figures = number(s.computed_tokens), number(s.floor_tokens), ratio(s.compute_ratio)
        return (*figures, "", "") if s.name == "none" else (*figures, tax(s.tax_tokens), signed(per_call(replay, s.tax_tokens)))

    return cells


def _cost_cells(replay: Replay) -> Callable[[Scenario], Cells | None]:
    def cells(s: Scenario) -> Cells | None:
        if s.name == "none":
            return None
        hop, prefill = (None, None) if s.tax_ms is None else (s.tax_ms.hop, s.tax_ms.prefill)
        each = [duration(None if ms is None else per_call(replay, ms)) for ms in (hop, prefill)]
        return duration(hop), each[0], duration(prefill), each[1], money(s.tax_money)

    return cells


def _traces(replay: Replay, console: Console) -> Iterable[RenderableType]:
    yield from _heading("By trace (m: measured, p: predicted)")
    table = table_of("trace", *_TRACE_COLUMNS[:-1], text=_TRACE_COLUMNS[-1])
    rows = sorted(zip(short_names([t.path for t in replay.traces]), replay.traces, strict=True), key=lambda row: -row[1].prompt_tokens)
    cells = [(name, _trace_cells(trace)) for name, trace in rows[:TRACES]]
    taken = sum(max(len(word), *(len(row[column]) for _, row in cells)) + 2 for column, word in enumerate(_TRACE_COLUMNS))
    for name, row in cells:
        table.add_row(Text(tail(name, max(16, console.width - taken)), overflow="fold"), *map(Text, row))
    if rest := [trace for _, trace in rows[TRACES:]]:
        table.add_row(
            Text(f"{len(rest):,} more"), Text(f"{sum(t.calls for t in rest):,}"), Text(compact(sum(t.prompt_tokens for t in rest)))
        )
    yield Whole(table)


_TRACE_COLUMNS = ("calls", "tokens", "survival", "hit rate", "lost", "format")


def _trace_cells(trace: TraceResult) -> Cells:
    totals = trace.totals
    lost = compact(sum(totals.lost_tokens.values())) if totals.survival is not None else UNKNOWN
    shares = _marked(totals, "survival", totals.survival), _marked(totals, "hit_rate", totals.hit_rate)
    return f"{trace.calls:,}", compact(trace.prompt_tokens), *shares, lost, one_line(trace.format, 16)


def _marked(totals: Totals, field: str, value: float | None) -> str:
    basis = totals.basis.get(field)
    return f"{percent(value)} {basis[0]}" if basis and value is not None else percent(value)


def _remarks(replay: Replay) -> Iterable[RenderableType]:
    found = remarks(replay)
    if not found:
        return
    yield from _heading("Notes")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for remark in found[:REMARKS]:
        where = f"{one_line(remark.where, 200)}: " if remark.where else ""
        grid.add_row(Text(remark.kind, "bold" if remark.kind != "note" else ""), safe(where + one_line(remark.text, 600), 800))
    if len(found) > REMARKS:
        grid.add_row("", Text(f"and {len(found) - REMARKS:,} more; --json has all of them"))
    yield Whole(grid, indent=1)


def _heading(text: str) -> Iterable[RenderableType]:
    yield Text()
    yield Text(text, "bold cyan")


def _paragraph(text: str | Text, style: str = "") -> RenderableType:
    return indented(text if isinstance(text, Text) else Text(one_line(text, 2000), style))

"""The demo on a terminal: each call as it happens, where the sessions stand, and the sums. Elsewhere the same in plain lines."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from warmgate.errors import one_line
from warmgate_adapters.demo.rows import Result, Row, Verdict, Way

STYLES = {"ran": "green", "approved": "green", "denied": "bold red", "rejected": "yellow", "not mounted": "magenta"}
MEANS = {
    "none": "no gate, tools known before",
    "separate": "a router of its own, fed JSON",
    "json": "/v1/systemone, fed JSON",
    "aligned": "asked on the agent's prompt",
}
COLUMNS = {"session": 0, "turn": 0, "tools": 64, "worker": 0, "cached": 56, "survival": 0, "tax": 72, "last verdict": 80}
"""Columns of the live table, and the width of a terminal from which each has room. A column that is cut says nothing."""
ROOMY = 110
"""Width from which the latest verdict is shown with its call."""


class Screen:
    """Shows what happens. A context: its live table ends with it.

    Args:
        console: Where to; none shows nothing.
    """

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._latest: dict[str, Row] = {}
        self._tax: dict[str, int] = {}
        self._status = "starting two workers …"
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console is not None and self._console.is_terminal:
            self._live = Live(self._table(), console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # -- while it happens --------------------------------------------------------------------------------------------------------------

    def began(self, workers: str) -> None:
        """See :class:`warmgate_adapters.demo.demo.Watcher`."""
        kind = "stand-in workers (no model, a real prefix cache)" if workers == "stand-in" else "the named workers"
        self._say(Text(f"Four conversations of a LangGraph coding agent with a scripted model and real tools, gated on {kind}."))
        self._say(
            Text("cached: measured by each call's usage · survival: cached of what could be reused · tax: tokens that the gate added")
        )
        self._say(Text())
        self._show("at work")

    def row(self, row: Row) -> None:
        """See :class:`warmgate_adapters.demo.demo.Watcher`."""
        before = self._latest.get(row.session)
        moved = before is not None and row.moves > before.moves
        self._latest[row.session] = row
        self._tax[row.session] = self._tax.get(row.session, 0) + (row.tax or 0)
        self._say(_line(row, moved=moved))
        for verdict in row.verdicts:
            self._say(_verdict(verdict))
        self._show("at work")

    def killed(self, worker: str) -> None:
        """See :class:`warmgate_adapters.demo.demo.Watcher`."""
        self._say(Text(f"-- {worker} is killed, in the middle of a tool loop", "bold red"))

    def comparing(self, gate: str) -> None:
        """See :class:`warmgate_adapters.demo.demo.Watcher`."""
        self._show(f"the same conversations once more, gate: {gate} …")

    # -- afterwards --------------------------------------------------------------------------------------------------------------------

    def summary(self, result: Result) -> None:
        """The sums, and what a look at the disk showed."""
        self._say(Text())
        self._say(Text("What came of it", "bold cyan"))
        for fact in _facts(result):
            self._say(Text(f" {fact}"))
        self._say(Text())
        self._say(Text("The same conversations with four gates, tokens computed by all workers", "bold cyan"))
        for line in _ways(result):
            self._say(line)
        if result.report is not None:
            self._say(Text())
            self._say(Text(f"report page: {result.report}"))

    def _say(self, text: Text) -> None:
        if self._console is not None:
            self._console.print(text, soft_wrap=not self._console.is_terminal)

    def _show(self, status: str) -> None:
        self._status = status
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> RenderableType:
        width = self._console.width if self._console is not None else ROOMY
        table = Table(title=self._status, title_justify="left", title_style="dim italic", box=None, padding=(0, 2, 0, 0))
        shown = [name for name, least in COLUMNS.items() if width >= least]
        for name in shown:
            right = name in ("tools", "cached", "survival", "tax")
            table.add_column(name, no_wrap=True, header_style="dim", justify="right" if right else "left", overflow="ellipsis")
        for row in self._latest.values():
            last = row.verdicts[-1] if row.verdicts else None
            said = Text() if last is None else Text(last.outcome, STYLES[last.outcome])
            if last is not None and width >= ROOMY:
                said.append(f": {_short(last)}")
            cells: dict[str, str | Text] = {
                "session": row.session,
                "turn": f"{row.user_turn}.{row.call}",
                "tools": str(len(row.mounts)),
                "worker": Text(row.worker, "yellow" if row.moves else ""),
                "cached": _cached(row),
                "survival": _survival(row),
                "tax": f"{self._tax[row.session]:+,}",
                "last verdict": said,
            }
            table.add_row(*(cells[name] for name in shown))
        return table


def _line(row: Row, *, moved: bool) -> Text:
    line = Text(f"{row.session:<8}{row.user_turn}.{row.call:<3}", "bold")
    line.append(f"{row.worker:<10}", "yellow" if moved else "")
    line.append(f"{_cached(row):>14} cached {_survival(row):>8} {_tax(row):>8}  ")
    tools = f"{len(row.mounts)} tools"
    if row.reads:
        tools += f", {row.reads} asked"
    line.append(tools, "dim")
    if row.announced:
        line.append(f": {one_line(row.why, 160)}", "cyan")
    if moved:
        line.append("  moved here: its worker is gone", "bold yellow")
    elif row.cause is not None:
        line.append(f"  lost by {row.cause}", "yellow")
    return line


def _verdict(verdict: Verdict) -> Text:
    word = verdict.verdict or "-"
    done = f"{word}, {verdict.outcome}" if verdict.outcome not in ("denied", "not mounted") else verdict.outcome
    line = Text(f"    {done:<15}", STYLES[verdict.outcome])
    line.append(_short(verdict), "bold")
    line.append(f": {one_line(verdict.reason, 200)}", "dim")
    return line


def _cached(row: Row) -> str:
    return f"{row.cached:,} of {row.prompt:,}" if row.cached is not None and row.prompt is not None else "n/a"


def _survival(row: Row) -> str:
    return percent(row.survival)


def _tax(row: Row) -> str:
    return "n/a" if row.tax is None else f"{row.tax:+,}" if row.tax else "0"


def percent(ratio: float | None) -> str:
    """A ratio for people."""
    return "n/a" if ratio is None else f"{100 * ratio:.1f} %"


def _short(verdict: Verdict) -> str:
    return one_line(verdict.call, 64)


def _facts(result: Result) -> list[str]:
    ran = result.facts.get("ran", [])
    found: list[str] = []
    for number, row in enumerate(result.turns):
        for verdict in row.verdicts:
            call, did = _short(verdict), "ran" if verdict.call in ran else "did not run"
            if verdict.outcome == "denied":
                found.append(f"denied: {call}; it {did}")
            elif verdict.verdict == "ask":
                found.append(f"asked, {verdict.outcome}: {call}; it {did}")
            elif verdict.outcome == "not mounted":
                tool = verdict.call.split(" ")[0]
                later = any(tool in one.mounts for one in result.turns[number + 1 :] if one.session == row.session)
                found.append(f"not mounted: {call}; the model was told, and {'got' if later else 'did not get'} the tool afterwards")
    home = "still there" if result.facts.get("home_kept") else "gone"
    notes = "gone, as approved" if result.facts.get("notes_removed") else "still there"
    found.append(f"on the disk: ~/projects is {home}, notes.old is {notes}")
    if result.killed is not None:
        moved = [f"{one.session} ({one.moves} to {one.last})" for one in result.sessions if one.moves]
        stayed = [one.session for one in result.sessions if not one.moves]
        found.append(f"{result.killed} was killed: moved {', '.join(moved) or 'none'}; stayed {', '.join(stayed) or 'none'}")
    known = percent(result.survival.get("stayed"))
    found.append(f"survival: {known} where a session stayed on its worker, {percent(result.survival.get('calls'))} over all calls")
    return found


def _ways(result: Result) -> list[Text]:
    priced = (result.replay or {}).get("ways", {})
    free = next((way.computed for way in result.ways if way.gate == "none"), 0)
    lines = [Text(f" {'gate':<9}{'computed':>9}{'tax':>9}{'of none':>9}{'tax':>11}", "dim")]
    lines.append(Text(f" {'':<9}{'measured':>9}{'measured':>9}{'':>9}{'predicted':>11}", "dim"))
    for way in result.ways:
        own = "" if way.gate == "none" else f"{way.tax:+,}"
        told = priced.get(way.gate, {}).get("tax")
        line = Text(f" {way.gate:<9}{way.computed:>9,}{own:>9}{_times(way, free):>9}{f'{told:+,}' if told else '':>11}")
        line.append(f"  {MEANS[way.gate]}", "dim")
        lines.append(line)
    if result.replay is not None:
        replayed = result.replay
        lines.append(Text(f" predicted: warmgate replay of the recorded traffic, {replayed['priced']} of {replayed['calls']} calls", "dim"))
    return lines


def _times(way: Way, free: int) -> str:
    return f"× {way.computed / free:.2f}" if free else "n/a"

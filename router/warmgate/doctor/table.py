"""A report for people: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from warmgate.doctor.check import Check
from warmgate.doctor.report import EndpointReport, Report
from warmgate.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

_ASCII = str.maketrans({"→": "->", "·": "-", "…": "...", "≠": "!=", "×": "x", "½": ".5"})
_FEW = 3
"""Skipped checks with the same reason that are still shown one by one."""
_COLOURS = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


def render(report: Report, console: Console) -> None:
    """Print a report; for a terminal as a table, else a line a check, with what mends it below."""
    for number, endpoint in enumerate(report.endpoints):
        if number:
            console.print()
        if console.is_terminal:
            _table(endpoint, console)
        else:
            console.file.write(_plain(endpoint, (console.encoding or "ascii").lower().startswith("utf")))


def _title(endpoint: EndpointReport) -> str:
    facts = endpoint.facts
    server = {"vllm": "vLLM", "none": "no model server", "other": "some model server", None: ""}.get(facts.server, facts.server) or ""
    if facts.standin:
        server = "stand-in for vLLM"
    parts = [endpoint.url, f"{server} {facts.version or ''}".strip(), one_line(facts.model or "", 60)]
    return " · ".join(part for part in parts if part)


def _summary(endpoint: EndpointReport) -> str:
    counts = ", ".join(f"{endpoint.counts[status]} {status}" for status in ("pass", "warn", "fail", "skip") if endpoint.counts[status])
    return f"{counts} · {endpoint.requests} requests, {endpoint.tokens_sent:,} tokens, {endpoint.seconds:.1f} s"


def _table(endpoint: EndpointReport, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1), title=Text(_title(endpoint), style="bold"), title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in _shown(endpoint):
        seen = Text(check.seen, style="dim" if check.status == "skip" else "")
        if check.mend:
            seen.append(f"\n→ {check.mend}", style="cyan" if check.status in ("warn", "fail") else "dim")
        table.add_row(Text(check.status, style=_COLOURS[check.status]), Text(check.name), seen)
    console.print(table)
    if len(_shown(endpoint)) < len(endpoint.checks):
        console.print(Text(f" skip  {_left_out(endpoint)}", style="dim"))
    console.print(Text(_summary(endpoint), style="bold"))


def _shown(endpoint: EndpointReport) -> list[Check]:
    """All checks, but those that were skipped for one common reason are told in one line."""
    return [check for check in endpoint.checks if (check.status, check.seen) != ("skip", _common(endpoint))]


def _common(endpoint: EndpointReport) -> str | None:
    whys = Counter(check.seen for check in endpoint.checks if check.status == "skip")
    why, count = whys.most_common(1)[0] if whys else ("", 0)
    return why if count > _FEW else None


def _left_out(endpoint: EndpointReport) -> str:
    names = [check.name for check in endpoint.checks if check not in _shown(endpoint)]
    return f"{len(names)} more, {_common(endpoint)}: {', '.join(names)}"


def _plain(endpoint: EndpointReport, unicode: bool) -> str:
    """Fixed columns, two lines at most a check: easy to read in a log and to search."""
    lines = [_title(endpoint)]
    for check in _shown(endpoint):
        lines.append(f"  {check.status.upper():<5}{check.name:<16}{check.seen}")
        if check.mend:
            lines.append(f"{'':<23}→ {check.mend}")
    if len(_shown(endpoint)) < len(endpoint.checks):
        lines.append(f"  SKIP {_left_out(endpoint)}")
    lines.append(f"  {_summary(endpoint)}")
    text = "\n".join(lines) + "\n"
    return text if unicode else text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

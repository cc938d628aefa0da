"""``warmgate top``: a live view of a gate, from its metrics endpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from warmgate.errors import MalformedAnswer, OptionError, Unreachable, one_line

if TYPE_CHECKING:
    from rich.console import Group

    from warmgate.doctor.exposition import Metrics

MAX_BYTES = 32 << 20
"""A page larger than this is no page of ours."""


@click.command("top")
@click.argument("url", default="http://127.0.0.1:9464/metrics")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="S", help="Seconds between scrapes.")
@click.option("--once", is_flag=True, help="Print one view of the totals and end.")
def command(url: str, interval: float, once: bool) -> int:
    """Show workers, survival, tax and fallbacks of a running gate.

    URL is the gate's metrics endpoint. Ends with Ctrl-C. Exits with 0, or 3 where the endpoint cannot be read.
    """
    from rich.console import Console

    console = Console()
    address = _address(url)
    now = Reading.of(fetch(address))
    if once or not console.is_terminal:
        console.print(view(now, None, address))
        return 0
    from rich.live import Live

    before, trouble = now, ""
    try:
        with Live(view(now, None, address), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval)
                try:
                    before, now, trouble = now, Reading.of(fetch(address)), ""
                except (Unreachable, MalformedAnswer) as fault:
                    trouble = str(fault)
                live.update(view(now, before, address, trouble), refresh=True)
    except KeyboardInterrupt:
        return 0


def fetch(url: str) -> Metrics:
    """One scrape.

    Raises:
        Unreachable: No connection, or no reply in 10 s.
        MalformedAnswer: A reply that is no metrics page of a gate.
    """
    import httpx

    from warmgate.doctor.exposition import Metrics

    try:
        with httpx.stream("GET", url, timeout=10.0, follow_redirects=True) as reply:
            body = bytearray()
            for part in reply.iter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise MalformedAnswer("the page is larger than 32 MiB", where=url)
            status = reply.status_code
    except httpx.HTTPError as fault:
        raise Unreachable(f"cannot be read ({one_line(str(fault) or type(fault).__name__, 120)})", where=url) from None
    page = Metrics(body.decode(errors="replace"))
    if status != 200 or not any(name.startswith("warmgate_") for name in page.names):
        raise MalformedAnswer(
            f"answered {status} without warmgate's metrics", where=url, mend="give the URL that gate.metrics_app() is mounted under"
        )
    return page


@dataclass(frozen=True, slots=True)
class Worker:
    """One row of the table. Counts are tokens but for ``sessions`` and ``blocks``."""

    sessions: float = 0
    blocks: float = 0
    events: str = "off"
    reusable: float = 0
    survived: float = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one scrape says, as far as the view shows it."""

    at: float
    totals: Mapping[str, float] = field(default_factory=dict[str, float])
    lost: Mapping[str, float] = field(default_factory=dict[str, float])
    fallbacks: Mapping[str, float] = field(default_factory=dict[str, float])
    decisions: Mapping[str, float] = field(default_factory=dict[str, float])
    verdicts: Mapping[str, float] = field(default_factory=dict[str, float])
    workers: Mapping[str, Worker] = field(default_factory=dict[str, Worker])

    @classmethod
    def of(cls, page: Metrics) -> Reading:
        """From a page."""

        def by(name: str, *labels: str) -> dict[str, float]:
            found: dict[str, float] = {}
            for sample in page.of(f"warmgate_{name}"):
                key = " → ".join(sample.labels.get(label, "") for label in labels)
                found[key] = found.get(key, 0) + sample.value
            return found

        totals = {
            name: page.total(f"warmgate_{name}") or 0
            for name in (
                "prompt_tokens_total",
                "reusable_tokens_total",
                "survived_tokens_total",
                "computed_tokens_total",
                "floor_tokens_total",
                "tax_tokens",
                "rebinds_total",
                "decision_duration_seconds_sum",
                "decision_duration_seconds_count",
            )
        }
        sessions, blocks = by("worker_sessions", "worker"), by("worker_resident_blocks", "worker")
        reusable, survived = by("worker_reusable_tokens_total", "worker"), by("worker_survived_tokens_total", "worker")
        events = {s.labels.get("worker", ""): s.labels.get("state", "") for s in page.of("warmgate_worker_events") if s.value > 0}
        names = sorted({*sessions, *blocks, *reusable, *survived})
        return cls(
            time.monotonic(),
            totals,
            by("lost_tokens_total", "cause"),
            by("fallbacks_total", "from", "to"),
            by("decisions_total", "outcome"),
            by("verdicts_total", "verdict"),
            {
                name: Worker(
                    sessions.get(name, 0), blocks.get(name, 0), events.get(name, "off"), reusable.get(name, 0), survived.get(name, 0)
                )
                for name in names
            },
        )


def view(now: Reading, before: Reading | None, url: str, trouble: str = "") -> Group:
    """What is printed: totals, or with ``before`` what happened since."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    was = before or Reading(now.at)
    moved = {name: value - was.totals.get(name, 0) for name, value in now.totals.items()}
    head = Text(f"warmgate top  {url}", style="bold")
    span = "since the gate began" if before is None else f"in the last {now.at - before.at:.0f} s"
    lines = [
        f"{span}: {_sum(now.decisions) - _sum(was.decisions):,.0f} decisions, mean {_ms(moved)}; "
        f"survival {_ratio(moved['survived_tokens_total'], moved['reusable_tokens_total'])}, "
        f"hit rate {_ratio(moved['survived_tokens_total'], moved['prompt_tokens_total'])}",
        f"computed {moved['computed_tokens_total']:,.0f} tokens, floor {moved['floor_tokens_total']:,.0f}, tax {moved['tax_tokens']:,.0f} "
        f"({_times(moved['computed_tokens_total'], moved['floor_tokens_total'])} the floor); rebinds {moved['rebinds_total']:,.0f}",
        _listed("lost", now.lost, was.lost, "nothing"),
        _listed("fallbacks", now.fallbacks, was.fallbacks, "none"),
        _listed("verdicts", now.verdicts, was.verdicts, "none"),
    ]
    table = Table(box=None, pad_edge=False)
    table.add_column("worker")
    for name in ("sessions", "blocks", "reusable", "survival"):
        table.add_column(name, justify="right")
    table.add_column("events")
    for name, worker in now.workers.items():
        old = was.workers.get(name, Worker())
        reusable, survived = worker.reusable - old.reusable, worker.survived - old.survived
        table.add_row(
            one_line(name, 60),
            f"{worker.sessions:,.0f}",
            f"{worker.blocks:,.0f}",
            f"{reusable:,.0f}",
            _ratio(survived, reusable),
            one_line(worker.events, 20),
        )
    parts: list[Text | Table] = [head, *(Text(line) for line in lines), Text(""), table]
    if trouble:
        parts.append(Text(one_line(trouble), style="bold red"))
    return Group(*parts)


def _sum(values: Mapping[str, float]) -> float:
    return sum(values.values())


def _ratio(part: float, whole: float) -> str:
    """A share; ``–`` where there was nothing to reuse, which is not 0 %."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "–"


def _times(part: float, whole: float) -> str:
    return f"{part / whole:.2f} ×" if whole > 0 else "–"


def _ms(moved: Mapping[str, float]) -> str:
    count = moved["decision_duration_seconds_count"]
    return f"{1000 * moved['decision_duration_seconds_sum'] / count:,.0f} ms" if count > 0 else "–"


def _listed(title: str, now: Mapping[str, float], was: Mapping[str, float], nothing: str) -> str:
    moved = sorted(((value - was.get(key, 0), key) for key, value in now.items()), reverse=True)
    shown = [f"{one_line(key, 60)} {value:,.0f}" for value, key in moved if value > 0]
    return f"{title}: {', '.join(shown[:8]) or nothing}"


def _address(url: str) -> str:
    """The URL, with ``http://`` and ``/metrics`` where it has neither.

    Raises:
        OptionError: No URL.
    """
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
        parts = None
    if not good or parts is None:
        raise OptionError("is no http URL", where=one_line(url, 80), mend="give the gate's metrics endpoint, http://host:port/metrics")
    return whole if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics"

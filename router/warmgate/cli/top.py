"""``warmgate top``: a live view of a gate, from its metrics endpoint."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from warmgate.cli.top_view import view
from warmgate.errors import MalformedAnswer, OptionError, Unreachable, one_line
from warmgate.telemetry.reading import Reading
from warmgate.telemetry.urls import bare

if TYPE_CHECKING:
    from warmgate.doctor.exposition import Metrics

MAX_BYTES = 32 << 20
"""A page larger than this is no page of ours."""

PATIENCE_S = 10.0
"""Longest wait for a whole page."""


@click.command("top")
@click.argument("url", default="http://127.0.0.1:9464/metrics")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="S", help="Seconds between scrapes.")
@click.option("--once", is_flag=True, help="Print one view of the totals and end; so it does where it does not print to a terminal.")
def command(url: str, interval: float, once: bool) -> int:
    """Show survival by step, tax, fallbacks and workers of a running gate.

    URL is the gate's metrics endpoint. Ends with Ctrl-C. Exits with 0, or 3 where the endpoint cannot be read.
    """
    from rich.console import Console

    console = Console()
    address = _address(url)
    shown = bare(address)
    now = Reading.of(fetch(address))
    if once or not console.is_terminal:
        console.print(view(now, None, shown, width=console.width))
        return 0
    from rich.live import Live

    before, trouble = now, ""
    try:
        with Live(view(now, None, shown, width=console.width), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval)
                try:
                    read = Reading.of(fetch(address))
                    before, now, trouble = now, read, ""
                except (Unreachable, MalformedAnswer) as fault:
                    trouble = str(fault)
                live.update(view(now, before, shown, trouble, width=console.width), refresh=True)
    except KeyboardInterrupt:
        return 0


def fetch(url: str) -> Metrics:
    """One scrape.

    Raises:
        Unreachable: No connection, or no whole page in :data:`PATIENCE_S`.
        MalformedAnswer: A reply that is no metrics page of a gate.
    """
    import httpx

    from warmgate.doctor.exposition import Metrics

    where = bare(url)
    try:
        status, body = asyncio.run(_page(url))
    except TimeoutError:
        raise Unreachable(f"gave no whole page in {PATIENCE_S:.0f} s", where=where, mend="see whether the gate's process hangs") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
        why = one_line(str(fault) or type(fault).__name__, 120)
        raise Unreachable(f"cannot be read ({why})", where=where, mend="give the URL of a running gate's metrics") from None
    page = Metrics(body.decode(errors="replace"))
    if status != 200 or not any(name.startswith("warmgate_") for name in page.names):
        raise MalformedAnswer(
            f"answered {status} without warmgate's metrics", where=where, mend="give the URL that gate.metrics_app() is mounted under"
        )
    return page


async def _page(url: str) -> tuple[int, bytes]:
    import httpx

    body = bytearray()
    client = httpx.AsyncClient(timeout=PATIENCE_S, follow_redirects=True)
    async with asyncio.timeout(PATIENCE_S), client, client.stream("GET", url) as reply:
        async for part in reply.aiter_bytes():
            body += part
            if len(body) > MAX_BYTES:
                raise MalformedAnswer(f"the page is larger than {MAX_BYTES >> 20} MiB", where=bare(url))
        return reply.status_code, bytes(body)


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
        shown = one_line(bare(url), 80)
        raise OptionError("is no http URL", where=shown, mend="give the gate's metrics endpoint, http://host:port/metrics")
    return whole if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics"

"""``warmgate replay TRACE…``: survival, tax and scenarios of recorded traces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from warmgate.cli.app import say
from warmgate.output import write_bytes


@click.command("replay")
@click.argument("traces", metavar="TRACE…", nargs=-1, required=True)
@click.option("--json", metavar="PATH|-", help="Write the result as JSON (warmgate.replay/1).")
@click.option("--html", metavar="PATH", help="Write a self-contained report page.")
@click.option("--workers", type=int, default=1, show_default=True, metavar="N", help="Workers the sessions are spread over.")
@click.option(
    "--route",
    type=click.Choice(["sticky", "random", "round_robin"]),
    default="sticky",
    show_default=True,
    help="How a request finds its worker.",
)
@click.option("--kv-tokens", type=int, metavar="N", help="KV cache of each worker, in tokens. Without it, unbounded.")
@click.option("--block-size", type=int, metavar="N", help="Tokens per cache block. Without it, 16 for text, a hash trace's own.")
@click.option("--tokenizer", metavar="PATH", help="tokenizer.json of the served model, for exact token counts.")
@click.option("--chat-template", metavar="PATH", help="Its chat template (.jinja or tokenizer_config.json). Without it, ChatML.")
@click.option(
    "--gate-model",
    type=click.Choice(["shared", "sidecar"]),
    default="shared",
    show_default=True,
    help="Who answers the gate's questions: the agent's own model, or a small one beside it.",
)
@click.option("--questions", type=int, default=3, show_default=True, metavar="N", help="Questions per turn, where the trace has none.")
@click.option("--question-tokens", type=int, default=45, show_default=True, metavar="T", help="Tokens of one question.")
@click.option("--prefill-rate", type=float, metavar="TOK_S", help="Prefill tokens a second, to price the tax in milliseconds.")
@click.option("--hop-ms", type=float, metavar="MS", help="Round trip of one decision request, in milliseconds.")
@click.option("--price-per-mtok", type=float, metavar="PRICE", help="Price of a million computed prompt tokens.")
def command(traces: tuple[str, ...], json: str | None, html: str | None, **options: Any) -> int:
    """Price the prefix of recorded agent traces: what survives from call to call, and what a gate would cost.

    TRACE is a file, a directory or a glob; - is standard input. Formats are told apart by content.
    """
    from warmgate.replay.run import Options, replay
    from warmgate.replay.scenarios import Costs

    costs = Costs(*(options.pop(name) for name in ("prefill_rate", "hop_ms", "price_per_mtok")))
    progress, done = _progress()
    try:
        result = replay(traces, Options(**options, costs=costs), say=say, progress=progress)
    finally:
        done()
    if json is not None:
        write_bytes(json, result.to_json())
    if html is not None and result.traces:
        from warmgate.replay.html import write_html

        write_html(result, html)
    if json != "-" and result.traces:
        from rich.console import Console

        from warmgate.replay.table import render

        render(result, Console())
        if html is not None:
            say(f"report written to {html}")
    return 2 if result.refused else 0


def _progress() -> tuple[Callable[[str, int], None], Callable[[], None]]:
    """A counter on stderr while it is a terminal, and how to take it away."""
    if not sys.stderr.isatty():
        return (lambda _path, _calls: None), (lambda: None)
    from rich.console import Console
    from rich.markup import escape
    from rich.status import Status

    from warmgate.errors import one_line

    status = Status("reading …", console=Console(stderr=True))
    status.start()
    return (lambda path, calls: status.update(f"{escape(one_line(path, 60))}: {calls:,} calls")), status.stop

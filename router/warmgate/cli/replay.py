"""``warmgate replay TRACE…``: survival, tax and scenarios of recorded traces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum

import typer

from warmgate.cli.app import app, say
from warmgate.cli.output import write_bytes


class RouteName(StrEnum):
    """How requests find a worker."""

    sticky = "sticky"
    random = "random"
    round_robin = "round_robin"


class GateModel(StrEnum):
    """Who answers the gate's questions."""

    shared = "shared"
    sidecar = "sidecar"


@app.command()
def replay(
    traces: list[str] = typer.Argument(..., metavar="TRACE…", help="Trace files, directories or globs; - is standard input."),
    json: str | None = typer.Option(None, "--json", metavar="PATH|-", help="Write the result as JSON (warmgate.replay/1)."),
    html: str | None = typer.Option(None, "--html", metavar="PATH", help="Write a self-contained report page."),
    workers: int = typer.Option(1, "--workers", metavar="N", help="Workers the sessions are spread over."),
    route: RouteName = typer.Option(RouteName.sticky, "--route", help="How a request finds its worker."),
    kv_tokens: int | None = typer.Option(
        None, "--kv-tokens", metavar="N", help="KV cache of each worker in tokens; unbounded if left out."
    ),
    block_size: int | None = typer.Option(
        None, "--block-size", metavar="N", help="Tokens per cache block (16 for text; a hash trace's own)."
    ),
    tokenizer: str | None = typer.Option(None, "--tokenizer", metavar="PATH", help="tokenizer.json of the served model, for exact counts."),
    chat_template: str | None = typer.Option(
        None, "--chat-template", metavar="PATH", help="Chat template of the served model (.jinja or tokenizer_config.json)."
    ),
    gate_model: GateModel = typer.Option(
        GateModel.shared, "--gate-model", help="Whether the agent's own model answers the gate's questions, or a sidecar."
    ),
    questions: int = typer.Option(3, "--questions", metavar="N", help="Questions per turn, where the trace records none."),
    question_tokens: int = typer.Option(45, "--question-tokens", metavar="T", help="Tokens of one question."),
    prefill_rate: float | None = typer.Option(
        None, "--prefill-rate", metavar="TOK_S", help="Prefill tokens a second, to price the tax in ms."
    ),
    hop_ms: float | None = typer.Option(None, "--hop-ms", metavar="MS", help="Milliseconds of one decision request's round trip."),
    price_per_mtok: float | None = typer.Option(
        None, "--price-per-mtok", metavar="PRICE", help="Price of a million computed prompt tokens."
    ),
) -> int:
    """Price the prefix of recorded agent traces: what survives from call to call, and what a gate would cost."""
    from warmgate.replay.run import Options
    from warmgate.replay.run import replay as run_replay
    from warmgate.replay.scenarios import Costs

    options = Options(
        workers=workers,
        route=route.value,
        kv_tokens=kv_tokens,
        block_size=block_size,
        tokenizer=tokenizer,
        chat_template=chat_template,
        gate_model=gate_model.value,
        questions=questions,
        question_tokens=question_tokens,
        costs=Costs(prefill_rate, hop_ms, price_per_mtok),
    )
    progress, done = _progress()
    try:
        result = run_replay(traces, options, say=say, progress=progress)
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

"""``warmgate standin``: a worker without a model, for laptops and tests."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import click


@click.command("standin")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=int, default=8000, show_default=True, metavar="N", help="Port to listen on; 0 lets the system choose.")
@click.option("--model", multiple=True, metavar="NAME", help="Name it answers to (repeatable). Without it, standin.")
@click.option("--lora", multiple=True, metavar="NAME", help="Name of an adapter it claims to serve (repeatable).")
@click.option("--style", default="qwen3", show_default=True, metavar="qwen3|d1|clef|dgemma", help="Model family it imitates.")
@click.option("--version-string", default="0.32", show_default=True, metavar="0.31|0.32|0.33", help="vLLM release it imitates.")
@click.option("--kv-tokens", type=int, default=1 << 20, show_default=True, metavar="N", help="Tokens its prefix cache holds.")
@click.option("--block-size", type=int, default=16, show_default=True, metavar="N", help="Tokens per cache block.")
@click.option("--max-model-len", type=int, default=1 << 17, show_default=True, metavar="N", help="Tokens a prompt may have.")
@click.option("--tokenizer", metavar="PATH", help="tokenizer.json to count with. Without it, a small one of its own.")
@click.option("--chat-template", metavar="PATH", help="Chat template (.jinja or tokenizer_config.json). Without it, ChatML.")
@click.option("--script", metavar="FILE", help="JSON of what to answer. Without it, words that state and options share decide.")
@click.option("--fault", multiple=True, metavar="NAME[=VALUE][@PATH]", help="Fail like this (repeatable); `list` names the ways.")
@click.option("--api-key", multiple=True, metavar="KEY", help="Key to demand on /v1 (repeatable).")
@click.option("--allowed-origins", metavar="JSON", help="Browser origins to let in, as vLLM takes them: '[\"https://a.example\"]'.")
@click.option("--kv-events-port", type=int, metavar="N", help="Publish KV events here and replay them on the next port; 0 chooses.")
def command(fault: tuple[str, ...], **options: Any) -> int:
    """Serve vLLM's routes without a model: scripted answers, a real prefix cache, faults on demand.

    Prints its URL, alone on a line, once it listens; SIGTERM or SIGINT ends it. Every response says that it is a stand-in.
    """
    from warmgate.standin import FAULTS, StandIn
    from warmgate.standin.options import NAME

    if "list" in fault:
        width = max(map(len, FAULTS))
        for name, meaning in FAULTS.items():
            click.echo(f"{name:<{width}}  {meaning}")
        return 0
    worker = StandIn(
        host=options["host"],
        port=options["port"],
        model=options["model"] or NAME,
        loras=options["lora"],
        style=options["style"],
        version=options["version_string"],
        kv_tokens=options["kv_tokens"],
        block_size=options["block_size"],
        max_model_len=options["max_model_len"],
        tokenizer=options["tokenizer"],
        chat_template=options["chat_template"],
        script=options["script"],
        fault=fault,
        api_key=options["api_key"],
        allowed_origins=_origins(options["allowed_origins"]),
        kv_events_port=options["kv_events_port"],
    )
    asyncio.run(_serve(worker))
    return 0


async def _serve(worker: Any) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with worker:
        click.echo(worker.url)
        await over.wait()


def _origins(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(origin, str) for origin in value):  # pyright: ignore[reportUnknownVariableType]
        raise click.BadParameter("""takes a JSON list, such as '["https://a.example"]'""", param_hint="--allowed-origins")
    return [str(origin) for origin in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

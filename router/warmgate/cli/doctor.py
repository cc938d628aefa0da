"""``warmgate doctor URL…``: preflight of decision endpoints."""

from __future__ import annotations

import asyncio

import click

from warmgate.cli.keys import api_key
from warmgate.output import check_writable, write_bytes


@click.command("doctor")
@click.argument("urls", metavar="URL…", nargs=-1, required=True)
@click.option("--origin", "origins", multiple=True, metavar="O", help="A browser origin that must be let in; repeat for more.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key. The key is never shown.")
@click.option("--model", metavar="M", help="The model to ask. Without it, the first that is served.")
@click.option("--timeout", type=float, default=60.0, show_default=True, metavar="S", help="Seconds for the whole examination.")
@click.option("--json", metavar="PATH|-", help="Write the report as JSON (warmgate.doctor/1).")
def command(
    urls: tuple[str, ...], origins: tuple[str, ...], api_key_env: str | None, model: str | None, timeout: float, json: str | None
) -> int:
    """Ask a decision endpoint what a gate would meet there, and say how to mend what is wrong.

    URL is the server's root, with or without /v1. Sends a few hundred to a few thousand tokens; the report says how many.

    Exits with 0, or 1 where a check failed, 3 where an endpoint cannot be reached, 2 for bad input.
    """
    from warmgate.doctor import Options, examine

    options = Options(model=model, api_key=api_key(api_key_env), origins=tuple(dict.fromkeys(origins)))
    if json is not None:
        check_writable(json)
    report = asyncio.run(examine(urls, options, seconds=timeout))
    if json is not None:
        write_bytes(json, report.to_json())
    if json != "-":
        from rich.console import Console

        from warmgate.doctor.table import render

        render(report, Console())
    return report.exit_code

"""``warmgate demo``: a gated agent at work, on workers made for it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from warmgate.errors import OptionError
from warmgate.output import check_writable, is_stdout, write_bytes

PAGE = "warmgate-demo.html"

NEEDS = ("langgraph", "langchain_core", "langchain_openai")
"""What the extra ``demo`` brings."""


@click.command("demo")
@click.option("--html", default=PAGE, show_default=True, metavar="PATH", help="Where the report page goes.")
@click.option("--json", "json_path", metavar="PATH|-", help="Write what happened as JSON (warmgate.demo/1).")
@click.option("--worker", "workers", multiple=True, metavar="URL", help="Use this vLLM instead of stand-ins (repeatable); needs --model.")
@click.option("--model", metavar="NAME", help="The name those workers serve their model under.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds their API key.")
def command(html: str, json_path: str | None, workers: tuple[str, ...], model: str | None, api_key_env: str | None) -> int:
    """Show a gated agent at work: mounts, verdicts, a killed worker, and what the gate cost against three others.

    A LangGraph coding agent with a scripted model and real tools works in a scratch folder, on two stand-in workers. Takes some seconds,
    needs no server, no network and no GPU, and leaves nothing behind but the page.
    """
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing or find_spec("warmgate_adapters") is None:
        raise OptionError(f"needs {', '.join(missing) or 'warmgate_adapters'}", where="warmgate demo", mend="pip install 'warmgate[demo]'")
    quiet = json_path is not None and is_stdout(json_path)
    _check(html, json_path, workers, model, api_key_env)

    from rich.console import Console

    from warmgate_adapters.demo import Given, Options, Screen, run

    given = Given(workers, model, api_key_env) if workers and model else None
    with Screen(None if quiet else Console(highlight=False)) as screen:
        result = run(Options(given, html), screen)
    if json_path is not None and not quiet:
        write_bytes(json_path, result.to_json())
    screen.summary(result)
    if quiet:
        write_bytes("-", result.to_json())
    sys.stdout.flush()
    return 0


def _check(html: str, json_path: str | None, workers: tuple[str, ...], model: str | None, api_key_env: str | None) -> None:
    """Refuse, before the work begins, what could not be done at its end."""
    from warmgate.cli.keys import api_key
    from warmgate.engines.http import base_url

    if workers and not model:
        raise OptionError("needs the name of their model", where="--worker", mend="give --model NAME")
    if not workers and (model or api_key_env):
        raise OptionError("is of named workers", where="--model" if model else "--api-key-env", mend="name them by --worker URL")
    if len(set(workers)) < len(workers):
        raise OptionError("names one twice", where="--worker", mend="name each once")
    for url in workers:
        base_url(url)
    api_key(api_key_env)
    if is_stdout(html):
        raise OptionError("a report page takes a file, not standard output", where=f"--html {html}", mend="name a file")
    check_writable(html)
    if json_path is not None:
        if json_path == html:
            raise OptionError("name the same file", where="--json and --html", mend="name two")
        check_writable(json_path)

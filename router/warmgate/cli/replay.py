"""``warmgate replay TRACE…``: survival, tax and scenarios of recorded traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from stat import S_ISREG
from typing import Any

import click

from warmgate.cli.app import say
from warmgate.errors import OptionError, OutputError
from warmgate.output import check_writable, is_stdout, write_bytes
from warmgate.replay.names import STDIN, expand, shown

LINES = 20
"""Lines about refused traces and skipped records on stderr; the rest are counted."""


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
    json = "-" if json is not None and is_stdout(json) else json
    paths = expand(traces)
    models = {f"--{name.replace('_', '-')}": options[name] for name in ("tokenizer", "chat_template")}
    _check_inputs(models)
    _check_outputs(json, html, paths, models.values())
    with _said() as tell, _progress() as progress:
        result = replay(paths, Options(**options, costs=costs), say=tell, progress=progress)
    failed = False
    if json is not None and json != "-":
        failed |= not _written(lambda path: write_bytes(path, result.to_json()), json)
    if html is not None and result.traces:
        from warmgate.replay.html import write_html

        done = _written(lambda path: write_html(result, path), html)
        failed |= not done
    else:
        done = False
    if json == "-":  # standard output comes last: files are whole even where its reader goes away
        write_bytes(json, result.to_json())
    elif result.traces:
        from rich.console import Console

        from warmgate.replay.table import render

        render(result, Console())
        if done:
            say(f"report written to {html}")
    return 2 if result.refused or failed else 0


def _written(write: Callable[[str], None], path: str) -> bool:
    """Whether a file could be written; a fault is told, and costs nothing else."""
    try:
        write(path)
    except OutputError as fault:
        say(str(fault))
        return False
    return True


def _check_inputs(files: dict[str, str | None]) -> None:
    """Refuse devices and pipes, which never end or block, where a file is read whole. What is missing is told by who reads it."""
    for option, path in files.items():
        status = None if path is None else _status(path)
        if path == "" or (status is not None and not S_ISREG(status.st_mode)):
            raise OptionError("is no regular file" if path else "names no file", where=f"{option} {path or repr('')}")


def _check_outputs(json: str | None, html: str | None, traces: Iterable[str], others: Iterable[str | None]) -> None:
    """Refuse, before the work begins, what could not be written or would be written over."""
    outputs = {option: path for option, path in (("--json", json), ("--html", html)) if path is not None and path != "-"}
    if html is not None and is_stdout(html):
        raise OptionError("a report page takes a file, not standard output", where=f"--html {html}", mend="name a file")
    for option, path in outputs.items():
        try:
            check_writable(path)
        except OutputError as fault:
            raise OutputError(fault.what, where=f"{option} {fault.where}", mend=fault.mend) from fault
    files = {option: _file(path) for option, path in outputs.items()}
    if len(files) == 2 and files["--json"] is not None and files["--json"] == files["--html"]:
        raise OptionError("name the same file", where="--json and --html", mend="name two")
    for path in [*traces, *(path for path in others if path)] if any(files.values()) else ():
        read = _file(0 if path == STDIN else path)
        for option, written in files.items():
            if read is not None and read == written:
                name = "what standard input reads" if path == STDIN else f"{shown(path)}, which is to be read"
                raise OptionError(f"would write over {name}", where=option, mend="name another file")


def _file(path: str | int) -> tuple[int, int] | str | None:
    """What tells a file from others, however it is named: its place on the disk, or the path of one yet to come. None for devices."""
    status = _status(path)
    if status is None:
        return os.path.realpath(path) if isinstance(path, str) else None
    return (status.st_dev, status.st_ino) if S_ISREG(status.st_mode) else None


def _status(path: str | int) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 -- a Path takes no descriptor
    except (OSError, ValueError):
        return None


@contextmanager
def _said() -> Generator[Callable[[str], None]]:
    """A voice for people that counts what it no longer says."""
    count = 0

    def tell(line: str) -> None:
        nonlocal count
        count += 1
        if count <= LINES:
            say(line)

    try:
        yield tell
    finally:
        if count > LINES:
            say(f"… and {count - LINES:,} more; --json PATH has every refused trace")


@contextmanager
def _progress() -> Generator[Callable[[str, int], None]]:
    """A counter on stderr while it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _path, _calls: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.status import Status

    from warmgate.errors import one_line

    with Status("reading …", console=Console(stderr=True)) as status:
        yield lambda path, calls: status.update(f"{escape(one_line(path, 60))}: {calls:,} calls")

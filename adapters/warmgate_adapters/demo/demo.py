"""The demo from its first worker to its report: the gated run, the same conversations with other gates, a replay of the traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from langsmith import tracing_context  # pyright: ignore[reportUnknownVariableType]

from warmgate_adapters.demo import project
from warmgate_adapters.demo.agents import KINDS, Kind, Run, converse, opened
from warmgate_adapters.demo.policies import Noted
from warmgate_adapters.demo.rows import Result, Row, Way
from warmgate_adapters.demo.workers import Workers, standins


@dataclass(frozen=True, slots=True)
class Given:
    """Workers that a user names, instead of stand-ins.

    Attributes:
        urls: Of API servers of one model.
        model: The name they serve it under.
        api_key_env: Name of the variable that holds their key.
    """

    urls: Sequence[str]
    model: str
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo can be asked for.

    Attributes:
        given: Workers to use.
        html: Where the report page goes; none is written without it.
    """

    given: Given | None = None
    html: str | None = None


class Watcher(Protocol):
    """Whoever is told what happens while it happens."""

    def began(self, workers: str) -> None:
        """The first conversation is about to begin."""
        ...

    def row(self, row: Row) -> None:
        """A call of a model, and what it proposed."""
        ...

    def killed(self, worker: str) -> None:
        """A worker was killed."""
        ...

    def comparing(self, gate: str) -> None:
        """The same conversations begin again, with another gate."""
        ...


def run(options: Options, watcher: Watcher) -> Result:
    """Run it. Leaves nothing behind but the page.

    Raises:
        OptionError: A policy is not installed, or a worker's URL is none.
        EngineError: A named worker cannot be reached.
        OutputError: The page cannot be written.
    """
    with TemporaryDirectory(prefix="warmgate-demo-") as folder, tracing_context(enabled=False):
        result = asyncio.run(_run(options, watcher, Path(folder)))
        trace = Path(folder) / "record" / "trace.jsonl"
        if trace.is_file():
            _replayed(result, trace, options)
    return result


async def _run(options: Options, watcher: Watcher, folder: Path) -> Result:
    result = Result(workers="given" if options.given is not None else "stand-in")
    spent: dict[str, tuple[int, int]] = {}
    noted: Noted | None = None
    for kind in sorted(KINDS, key=lambda kind: kind != "aligned"):  # what the others ask and mount is what the live run asked and mounted
        scratch = project.make(folder / kind)
        async with _workers(options.given, kind) as workers:
            record = folder / "record" if kind == "aligned" else None
            async with opened(kind, workers, scratch, noted=noted, record=record) as one:
                if kind == "aligned":
                    watcher.began(result.workers)
                    await converse(one, watcher.row, watcher.killed)
                    noted = one.noted
                    await _tell(result, one)
                else:
                    watcher.comparing(kind)
                    await converse(one)
        spent[kind] = (one.computed, one.ear.questions)
    free = spent["none"][0]
    result.ways = [Way(kind, spent[kind][0], spent[kind][1], spent[kind][0] - free) for kind in KINDS]
    return result


@asynccontextmanager
async def _workers(given: Given | None, kind: Kind) -> AsyncGenerator[Workers]:
    """Workers with nothing in their caches that a run could find: fresh ones, or a cache namespace of its own."""
    if given is None:
        async with standins(router=kind == "separate") as made:
            yield made
    else:
        yield Workers(given.urls, given.urls[-1], given.model, salt=f"warmgate-demo-{token_hex(8)}", api_key_env=given.api_key_env)


async def _tell(result: Result, run: Run) -> None:
    """Enter what the gated run showed."""
    result.turns = run.rows
    result.sessions = await run.moved()
    result.killed = next((f"worker {number + 1}" for number in run.workers.killed), None)
    result.facts = dict(project.standing(run.project))
    known = [row for row in run.rows if row.survival is not None]
    before: dict[str, int] = {}
    stayed: list[Row] = []
    for row in run.rows:
        if row.moves == before.get(row.session):
            stayed.append(row)
        before[row.session] = row.moves
    result.survival = {
        "calls": _ratio(known),
        "stayed": _ratio([row for row in stayed if row.survival is not None]),
    }
    result.basis = {"cached": "measured", "computed": "measured", "reusable": "predicted", "survival": "predicted", "tax": "predicted"}


def _ratio(rows: Sequence[Row]) -> float | None:
    reusable = sum(row.reusable or 0 for row in rows)
    return sum(row.cached or 0 for row in rows) / reusable if reusable else None


def _replayed(result: Result, trace: Path, options: Options) -> None:
    """Replay the recorded traffic, and write the page."""
    from warmgate.replay.run import Options as Replay
    from warmgate.replay.run import replay

    found = replay([str(trace)], Replay(workers=len(options.given.urls) if options.given is not None else 2, questions=0))
    for one in found.traces:
        one.path = trace.name  # the folder is gone when somebody reads the page
    priced: dict[str, Any] = {
        one.name: {"computed": one.computed_tokens, "tax": one.tax_tokens} for one in found.scenarios if one.route == "sticky"
    }
    with_prompt = sum(row.reusable is not None for row in found.calls)
    result.replay = {"calls": len(found.calls), "priced": with_prompt, "survival": found.totals.survival, "ways": priced}
    if options.html is not None:
        from warmgate.replay.html import write_html

        write_html(found, options.html)
        result.report = options.html

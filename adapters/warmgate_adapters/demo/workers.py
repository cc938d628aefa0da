"""The workers of a run: stand-ins made for it, or those a user names. What they computed is read from their own counters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from warmgate.engines import Deadline
from warmgate.engines.http import Http
from warmgate.errors import MalformedAnswer
from warmgate.standin import StandIn
from warmgate_adapters.demo.script import standin_script

LOOK_S = 10.0
"""Longest wait for a worker's counters."""


@dataclass(slots=True)
class Workers:
    """Those of one run.

    Attributes:
        urls: Of the agent's workers.
        router: Of the one that answers for a router of its own.
        model: The name they serve their model under.
        standins: Those made for this run, in the order of ``urls``; the router, where one was wanted, last.
        salt: Cache namespace of the run, where workers are shared with other runs.
        api_key_env: Name of the variable that holds their key.
        killed: Positions of workers that were killed.
    """

    urls: Sequence[str]
    router: str
    model: str
    standins: Sequence[StandIn] = ()
    salt: str | None = None
    api_key_env: str | None = None
    killed: set[int] = field(default_factory=set[int])

    async def kill(self, number: int) -> bool:
        """End a worker as a crash does: its port is closed, its connections are cut. False where it is not ours to end."""
        if not self.standins:
            return False
        self.killed.add(number)
        await self.standins[number].stop()
        return True

    async def computed(self) -> int:
        """Prompt tokens that all of them computed so far, those of a killed one included.

        Raises:
            EngineError: A worker's counters cannot be read.
        """
        if self.standins:
            return sum(int(one.counters["computed_tokens"]) for one in self.standins)
        before = -1
        while True:  # counters move with the engine's step, a little after the reply
            now = sum([await _counted(url, self.api_key_env) for url in dict.fromkeys((*self.urls, self.router))])
            if now == before:
                return now
            before = now
            await asyncio.sleep(0.05)

    def label(self, url: str) -> str:
        """A worker as people are told of it."""
        return f"worker {self.urls.index(url) + 1}" if url in self.urls else url


@asynccontextmanager
async def standins(*, router: bool) -> AsyncGenerator[Workers]:
    """Two fresh stand-ins with the demo's script, and a third where a router of its own is wanted."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(StandIn(script=standin_script(), kv_events_port=0)) for _ in range(3 if router else 2)]
        yield Workers([one.url for one in made[:2]], made[-1].url, "standin", made)


async def _counted(url: str, api_key_env: str | None) -> int:
    from warmgate.doctor.exposition import Metrics

    http = Http(url, api_key=os.environ.get(api_key_env) if api_key_env is not None else None)
    try:
        reply = await http.exchange("GET", "/metrics", None, deadline=Deadline(LOOK_S), request_id="warmgate-demo")
    finally:
        await http.aclose()
    page = Metrics(reply.body.decode(errors="replace"))
    computed = [one for one in page.of("vllm:prompt_tokens_by_source_total") if one.labels.get("source") == "local_compute"]
    if not computed:
        raise MalformedAnswer("its metrics do not count computed prompt tokens", where=f"{url}/metrics", mend="vLLM 0.32 or later does")
    return round(sum(one.value for one in computed))

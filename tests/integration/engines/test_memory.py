"""A gate lives as long as its agents: five thousand decisions must not leave anything."""

from __future__ import annotations

import asyncio
import gc
import sys

from tests.bench.bench_engines import REPLY, REQUEST
from tests.integration.engines.leaks import nothing_left
from tests.integration.engines.scripted import Scripted, Sent, reply
from warmgate.engines import Deadline, SystemOne


async def _answer(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, REPLY))


async def test_memory_does_not_grow_with_the_number_of_decisions():
    with Scripted(_answer) as server:
        async with nothing_left(), SystemOne(server.url) as engine:

            async def some(count: int) -> None:
                for _ in range(count):
                    await engine.ask(REQUEST, deadline=Deadline(60))

            def blocks() -> int:
                server.sent.clear()
                gc.collect()
                return sys.getallocatedblocks()

            await asyncio.gather(*(some(125) for _ in range(8)))
            before = blocks()
            await asyncio.gather(*(some(500) for _ in range(8)))
            after = blocks()
    assert after - before < 1000  # one object kept by every fourth decision would show

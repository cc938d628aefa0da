"""Six losses staged twenty times each on two workers, and a session that loses nothing: how often each is called by its name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from tests.bench.engine.lab import BOOTS, boot
from tests.bench.timing import Line
from tests.engine.rig.server import ServerOptions, VllmServer
from tests.integration.events.staged import NAMED, Fleet, named
from tests.integration.events.traffic import Pooled

ROUNDS = 20
BLOCKS = 60
LENGTH = 1800


def worker(server: VllmServer) -> Pooled:
    """The server as the fleet's traffic takes it."""
    return Pooled(server.url, server.model, 32, LENGTH, server.kv_events_endpoint, server.kv_replay_endpoint)


async def lines() -> AsyncIterator[Line]:
    options = ServerOptions(kv_events=True, num_gpu_blocks=BLOCKS + 1, max_model_len=LENGTH)
    servers = await asyncio.to_thread(boot, options, options)

    def again() -> Pooled:
        servers[0].stop()
        BOOTS.submit(servers[0].start).result()  # a server dies with the thread that started it
        return worker(servers[0])

    fleet = await asyncio.to_thread(Fleet, [worker(server) for server in servers], BLOCKS, again)
    try:
        yield f"{'staged':<16}{'named right':>12}   lost tokens", None
        for what, name in NAMED.items():
            outcomes = [await asyncio.to_thread(fleet.stage, what) for _ in range(ROUNDS)]
            told = Counter(named(outcome) for outcome in outcomes)
            lost = sum(outcome.entry.lost for outcome in outcomes)
            others = ", ".join(f"{other} {times}" for other, times in told.items() if other != name)
            yield f"{what:<16}{told[name]:>3} of {ROUNDS:<5}   {lost:>9,}{'   ' if others else ''}{others}", told[name] == ROUNDS
        unknown = fleet.tracker.sums.calls.lost.get("unknown", 0)
        yield f"of all {fleet.tracker.sums.calls.calls:,} calls, {unknown:,} tokens were lost to nobody knows what", unknown == 0
    finally:
        fleet.close()
        for server in servers:
            await asyncio.to_thread(server.stop)

"""What each of several gate processes does in test_four_processes.py. A module of its own, so that spawned processes can import it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict

from warmgate.workers import WorkerPool
from warmgate.workers.counts import COUNTED

WORKERS = [f"http://10.0.0.{number}:8000" for number in range(5)]


def bind_all(url: str, seed: int, sessions: int) -> tuple[dict[int, str], dict[str, int]]:
    """Bind every session once, in an order of one's own, 32 at a time."""

    async def run():
        pool = WorkerPool(WORKERS, affinity=url)
        for store in pool._stores.values():
            store._timeout_s = 30.0  # two cores run four processes and a Redis: a stall is no outage
        order = random.Random(seed).sample(range(sessions), sessions)
        found = {}

        async def take():
            while order:
                number = order.pop()
                found[number] = (await pool.acquire(f"session-{number}")).worker

        await asyncio.gather(*(take() for _ in range(32)))
        await pool.aclose()
        return found, {what: pool.counts.total(what) for what in COUNTED}

    return asyncio.run(run())


def bind_through(url: str, bound: float, seed: int, sessions: int, ends: float, final: float) -> dict:
    """Bind sessions at random until ``ends`` (wall clock), new ones all the time; from ``final`` on, all of them once more."""

    async def run():
        pool = WorkerPool(WORKERS, affinity=url, bound=bound)
        draw = random.Random(seed)
        seen = defaultdict(set)
        bent = set()
        sources = defaultdict(int)
        failed = []
        began = time.time()

        async def one(number):
            try:
                binding = await pool.acquire(f"session-{number}")
            except Exception as error:  # noqa: BLE001 -- what the test looks for
                failed.append(repr(error))
                return None
            seen[number].add(binding.worker)
            sources[binding.source] += 1
            if binding.reason != "hashed":
                bent.add(number)
            return binding.worker

        while time.time() < ends:
            known = 50 + int(sessions * (time.time() - began) / (ends - began))
            await asyncio.gather(*(one(draw.randrange(min(sessions, known))) for _ in range(8)))
            await asyncio.sleep(0.002)
        while time.time() < final:
            await one(0)
            await asyncio.sleep(0.1)
        last = {number: await one(number) for number in sorted(seen)}
        await pool.aclose()
        return {
            "seen": dict(seen),
            "bent": bent,
            "sources": dict(sources),
            "failed": failed,
            "last": last,
            "counts": {what: pool.counts.total(what) for what in COUNTED},
        }

    return asyncio.run(run())

"""What each of several gate processes does in test_four_processes.py. A module of its own, so that spawned processes can import it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from pathlib import Path

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


ROUNDS = 100
"""Rounds of eight binds that each stretch of the run takes at least."""


def bind_through(url: str, bound: float, seed: int, sessions: int, folder: Path) -> dict:
    """Bind sessions at random, new ones all the time, while Redis is there, while it is away and after it is back; then all of them once more.

    Nothing here goes by the clock. A stretch lasts until the parent has put the word for its end into ``folder``, and the parent does so once all
    processes have asked for it.
    """

    async def run():
        pool = WorkerPool(WORKERS, affinity=url, bound=bound)
        (store,) = pool._stores.values()
        draw = random.Random(seed)
        seen = defaultdict(set)
        bent = set()
        sources = Counter()
        failed = []
        rounds = 0

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

        async def until(word, met):
            nonlocal rounds
            first = rounds
            while not (folder / word).exists():
                if rounds - first >= ROUNDS and met():
                    (folder / f"{word}.{seed}").touch()
                await asyncio.gather(*(one(draw.randrange(min(sessions, 50 + 4 * rounds))) for _ in range(8)))
                await asyncio.sleep(0.002)
                rounds += 1

        await until("killed", lambda: sources["store"])
        with_store = sources["own"] + sources["hash"]  # a stall of this machine can look like an outage
        await until(
            "started", lambda: pool.counts.total("store_outage") and sources["own"] and sources["own"] + sources["hash"] > with_store
        )
        healing = asyncio.create_task(maintain(store))
        await until("healed", lambda: pool.counts.total("store_healed") and not store.out and not store._to_restore)
        healing.cancel()
        store._timeout_s = 30.0  # from here on a stall is no outage
        while store.out or store._to_restore:
            await store.maintain()
            await asyncio.sleep(0.05)
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


async def maintain(store) -> None:
    """What an open pool does beside the calls."""
    while True:
        await store.maintain()
        await asyncio.sleep(0.1)

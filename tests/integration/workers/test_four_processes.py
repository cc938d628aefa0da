"""Four gate processes, one Redis. If these fail, a session's decision and its agent call meet different caches."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.integration.workers.gate_processes import WORKERS, bind_all, bind_through
from tests.integration.workers.servers import Redis

PROCESSES = 4


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as executor:
        list(executor.map(abs, range(PROCESSES)))
        yield executor


def test_ten_thousand_sessions_have_one_worker_each(redis: Redis, processes):
    sessions = 10_000
    results = [f.result() for f in [processes.submit(bind_all, redis.url, seed, sessions) for seed in range(PROCESSES)]]
    found = [bindings for bindings, _ in results]
    assert all(len(bindings) == sessions for bindings in found)
    assert sum(len({bindings[n] for bindings in found}) != 1 for n in range(sessions)) == 0
    counts = Counter()
    for _, each in results:
        counts.update(each)
    assert counts["session_placed"] == sessions, "each placed by exactly one process"
    assert (counts["session_moved"], counts["store_bypassed"], counts["store_disagreement"]) == (0, 0, 0)
    loads = Counter(found[0].values())
    assert max(loads.values()) <= 1.25 * sessions / len(WORKERS) + 1


@pytest.mark.parametrize("bound", [1.25, 1.0], ids=["usual bound", "tightest bound"])
def test_redis_killed_and_restarted_fails_no_bind(redis: Redis, processes, bound: float, tmp_path):
    """With the usual bound nearly every session is where its hash says; with the tightest, many are not and can be split."""
    futures = [processes.submit(bind_through, redis.url, bound, seed, 3000, tmp_path) for seed in range(PROCESSES)]

    def once_all_ask_for(word: str) -> None:
        ends = time.monotonic() + 120
        while not all((tmp_path / f"{word}.{seed}").exists() for seed in range(PROCESSES)) and not any(f.done() for f in futures):
            assert time.monotonic() < ends, f"no end of the stretch before {word}"
            time.sleep(0.02)

    try:
        once_all_ask_for("killed")
        redis.kill()
        (tmp_path / "killed").touch()
        once_all_ask_for("started")
        redis.start()
        (tmp_path / "started").touch()
        once_all_ask_for("healed")
    finally:
        for word in ("killed", "started", "healed"):
            (tmp_path / word).touch()
    results = [future.result() for future in futures]
    assert [r["failed"] for r in results] == [[]] * PROCESSES
    assert all(r["counts"]["store_outage"] >= 1 and r["counts"]["store_healed"] >= 1 for r in results), "every process met the outage"
    assert all(r["sources"].get("own", 0) and r["sources"].get("hash", 0) and r["sources"].get("store", 0) for r in results)

    seen: dict[int, set[str]] = defaultdict(set)
    last: dict[int, set[str]] = defaultdict(set)
    bent: set[int] = set()
    for result in results:
        bent |= result["bent"]
        for number, workers in result["seen"].items():
            seen[number] |= workers
        for number, worker in result["last"].items():
            last[number].add(worker)
    split = {number for number, workers in seen.items() if len(workers) > 1}
    assert split <= bent, "where the hash suffices nobody ever disagrees"
    assert all(len(workers) == 1 for workers in last.values()), "once healed, everybody agrees again"
    counted = sum(r["counts"]["store_disagreement"] for r in results)
    assert counted >= len(split)
    assert bool(counted) == bool(split)
    assert split or bound > 1.0, "the tightest bound splits some, else this test tests nothing"
    print(f"{len(seen)} sessions, {len(bent)} placed against their hash, {len(split)} split during the outage, {counted} counted")

"""The pool without a network. If these fail, stickiness fails for callers who do everything right."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from warmgate.errors import OptionError
from warmgate.workers import Binding, WorkerPool, WorkerSpec
from warmgate.workers.counts import COUNTED

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


async def test_one_pool_serves_both_roles():
    """In shared mode the decision must go to the agent's own worker, or the prefix is nowhere near."""
    pool = WorkerPool([A, B])
    for number in range(50):
        assert (await pool.acquire(f"{number}")).worker == (await pool.acquire(f"{number}", "gate_workers")).worker


async def test_two_pools_are_sticky_each_for_itself():
    pool = WorkerPool([A, B], ["http://10.1.0.1:8000", "http://10.1.0.2:8000"])
    agent = await pool.acquire("s")
    gate = await pool.acquire("s", "gate_workers")
    assert agent.worker in (A, B)
    assert gate.worker.startswith("http://10.1.")
    pool.report(gate.worker, "refused")
    assert (await pool.acquire("s")) == Binding(agent.worker, fresh=False)
    assert (await pool.acquire("s", "gate_workers")).moved_from == gate.worker


async def test_a_lost_workers_sessions_move_once_and_only_they():
    pool = WorkerPool([A, B])
    before = {s: (await pool.acquire(s)).worker for s in map(str, range(100))}
    pool.report(A, "refused")
    after = {s: await pool.acquire(s) for s in before}
    for session, worker in before.items():
        moved = after[session]
        assert (moved.worker, moved.moved_from, moved.moves) == ((B, A, 1) if worker == A else (B, None, 0))
    pool.report(A, "ok")
    assert all(not b.fresh and b.worker == B for b in [await pool.acquire(s) for s in before])
    assert pool.counts.total("session_moved", reason="worker_lost") == sum(w == A for w in before.values())


async def test_a_released_session_may_go_anywhere():
    pool = WorkerPool([A, B])
    before = await pool.acquire("s")
    await pool.release("s")
    assert before.fresh
    assert (await pool.acquire("s")).fresh


async def test_the_session_id_is_nowhere_in_the_pool():
    """Ids may name customers: nothing that outlives the call may hold one."""
    pool = WorkerPool([A, B])
    await pool.acquire("alice@example.org")
    stored = [key for key, _ in pool._stores["workers"].entries()]
    assert len(stored) == 1
    assert "alice" not in stored[0]


async def test_a_restart_shows_in_the_binding():
    pool = WorkerPool([A])
    assert (await pool.acquire("s")).restarts == 0
    pool.kv_sequence(A, 7)
    pool.kv_sequence(A, 0)
    assert (await pool.acquire("s")).restarts == 1


async def test_weights_shape_shares():
    pool = WorkerPool([WorkerSpec(A, 3.0), WorkerSpec(B, 1.0)])
    placed = [(await pool.acquire(f"{n}")).worker for n in range(1000)]
    assert 650 < placed.count(A) < 850


@pytest.mark.parametrize("session", ["", None, 3])
async def test_no_session_is_refused(session):
    with pytest.raises(OptionError, match="session"):
        await WorkerPool([A]).acquire(session)


async def test_an_unknown_role_is_refused():
    with pytest.raises(OptionError, match="workers or gate_workers"):
        await WorkerPool([A]).acquire("s", "judges")


@pytest.mark.parametrize("options", [{"ttl_s": 0}, {"ttl_s": float("inf")}, {"dns_interval_s": -1}, {"bound": 0.9}, {"max_sessions": 0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(OptionError):
        WorkerPool([A], **options)


def test_the_sync_face_agrees_with_the_async_one():
    pool = WorkerPool([A, B])
    there = pool.acquire_sync("s")
    assert pool.base_url_sync("s") == there.worker == asyncio.run(pool.base_url("s"))
    pool.release_sync("s")
    assert pool.acquire_sync("s").fresh


def test_many_loops_and_threads_agree():
    """A web server with a loop a thread: a session must not be placed twice."""
    pool = WorkerPool([A, B])
    start = threading.Barrier(8)

    def work(_):
        start.wait()

        async def all_sessions():
            return [(await pool.acquire(f"{n}")) for n in range(300)]

        return asyncio.run(all_sessions())

    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(work, range(8)))
    assert len({tuple(b.worker for b in row) for row in seen}) == 1
    assert sum(b.fresh for row in seen for b in row) == 300


async def test_everything_counted_has_its_name():
    heard = []
    pool = WorkerPool([A, B], listener=lambda what, labels, number: heard.append((what, labels, number)))
    await pool.acquire("s")
    pool.report(A, "refused")
    pool.report(B, "refused")
    await pool.acquire("t")
    assert {what for what, _, _ in heard} == {"session_placed", "worker_lost", "workers_all_out"}
    assert {what for what, _, _ in heard} <= set(COUNTED)
    assert all(set(labels) <= {"role", "reason", "worker"} for _, labels, _ in heard), "labels must stay few"


def test_redis_missing_says_what_to_install():
    """The extra is optional; a user who names a Redis URL without it must be told in one line."""
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from warmgate.workers import WorkerPool\n"
        "from warmgate.errors import OptionError\n"
        "try: WorkerPool(['http://a:1'], affinity='redis://localhost')\n"
        "except OptionError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "affinity: Redis affinity needs the redis package; pip install 'warmgate[redis]'\n"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memcached://h", "begins with one of"),
        ("redis://h?ssl_ca_certs=/x&nonsense=1", "cannot be used"),
        ("redis://h:port", "cannot be used"),
        ("redis://:secret@h?socket_timeout=soon", "cannot be used"),
    ],
)
def test_redis_urls_that_cannot_be_used_are_refused_at_once(url, says):
    with pytest.raises(OptionError, match=says) as caught:
        WorkerPool([A], affinity=url)
    assert "secret" not in str(caught.value)


def test_the_package_stays_light():
    """`import warmgate.workers` must not load an HTTP client: every import of the gate would pay for it."""
    code = "import sys, warmgate.workers; print([m for m in ('httpx', 'httpx2', 'redis', 'asyncio') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"

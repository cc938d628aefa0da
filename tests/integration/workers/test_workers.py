"""Pools over real sockets: probes, kills, returns, restarts, DNS. If these fail, a dead worker takes its sessions with it."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import pytest

from tests.integration.workers.servers import free_port
from warmgate.errors import Unreachable
from warmgate.standin import StandIn
from warmgate.workers import Rule, WorkerPool
from warmgate.workers.discovery import WorkerSpec, resolve

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
QUICK = Rule(interval_s=0.1, timeout_s=15.0, pause_s=0.1, longest_pause_s=0.3, restart_interval_s=0.2)


async def until(condition, seconds=10.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to pass"
        await asyncio.sleep(0.02)


def nothing_left_running():
    return [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


class Scripted:
    """A worker that answers /health and /metrics as told."""

    def __init__(self):
        self.health = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        self.started_at = 1000.0
        self.asked = []

    @asynccontextmanager
    async def running(self, port=0):
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader, writer):
        try:
            line = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            self.asked.append(line)
            if line == b"/metrics":
                text = f'# HELP x\npython_info{{a="b"}} 1\nprocess_start_time_seconds {self.started_at:.2f}\nrest 1\n'.encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
            elif self.health is None:
                await asyncio.sleep(60)
            else:
                writer.write(self.health)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def test_the_first_session_does_not_meet_a_dead_worker(two_workers):
    alive, dead = two_workers
    dead.kill()
    async with WorkerPool([alive.url, dead.url], health=QUICK) as pool:
        assert {(await pool.acquire(f"{n}")).worker for n in range(50)} == {alive.url}
        assert {s.url: s.state for s in pool.status()} == {alive.url: "ready", dead.url: "lost"}


async def test_kill_one_of_two_and_bring_it_back(two_workers):
    """Its sessions move once, the other's stay; when it is back nobody moves, and it gets new sessions again."""
    one, other = two_workers
    async with WorkerPool([one.url, other.url], health=QUICK) as pool:
        before = {s: (await pool.acquire(s)).worker for s in map(str, range(200))}
        assert set(before.values()) == {one.url, other.url}
        one.kill()
        await until(lambda: pool.counts.total("worker_lost", worker=one.url) == 1)
        during = {s: await pool.acquire(s) for s in before}
        for session, worker in before.items():
            binding = during[session]
            assert binding.worker == other.url
            assert (binding.moved_from, binding.moves) == ((one.url, 1) if worker == one.url else (None, 0))
        one.start()
        await until(lambda: all(s.state == "ready" for s in pool.status()))
        after = {s: await pool.acquire(s) for s in before}
        assert not any(b.fresh for b in after.values())
        assert {b.worker for b in after.values()} == {other.url}
        assert one.url in [(await pool.acquire(f"new {n}")).worker for n in range(20)]
    moved = sum(worker == one.url for worker in before.values())
    assert pool.counts.total("session_moved") == pool.counts.total("session_moved", reason="worker_lost") == moved
    assert nothing_left_running()


async def test_a_hanging_worker_is_lost_by_its_probes(two_workers):
    one, other = two_workers
    rule = Rule(interval_s=0.1, timeout_s=0.2, pause_s=0.1, longest_pause_s=0.3)
    async with WorkerPool([one.url, other.url], health=rule) as pool:
        one.hang()
        await until(lambda: pool.counts.total("worker_lost", worker=one.url) == 1)
        one.go_on()
        await until(lambda: pool.counts.total("worker_back", worker=one.url) == 1)


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", "lost"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "ready"),
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "ready"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", "ready"),
        (b"SSH-2.0-OpenSSH\r\n", "lost"),
        (b"", "lost"),
        (None, "lost"),
    ],
    ids=["503", "404", "401", "half a body", "no HTTP", "nothing", "silence"],
)
async def test_what_a_probe_makes_of_a_reply(reply, state):
    """vLLM says 503 once its engine is dead; whoever has no such route or wants a key is alive."""
    worker = Scripted()
    worker.health = reply
    rule = Rule(interval_s=0.05, timeout_s=0.3, pause_s=60)
    async with worker.running(), WorkerPool([worker.url], health=rule) as pool:
        await until(lambda: pool.status()[0].state == state)


async def test_a_restart_between_two_probes_is_noticed():
    """Its cache is gone though it was never seen to be away: the ledger must be able to say why."""
    worker = Scripted()
    async with worker.running(), WorkerPool([worker.url], health=QUICK) as pool:
        assert (await pool.acquire("s")).restarts == 0
        assert pool.status()[0].started_at == 1000.0
        worker.started_at = 2000.0
        await until(lambda: pool.counts.total("worker_restart") == 1)
        binding = await pool.acquire("s")
        assert (binding.restarts, binding.fresh) == (1, False)
        await asyncio.sleep(0.5)
        assert pool.counts.total("worker_restart") == 1


async def test_found_dead_asks_once_for_many(two_workers):
    """A hundred calls fail at once when a worker dies: one look is enough for all of them."""
    one, other = two_workers
    pool = WorkerPool([one.url, other.url])
    looks = []
    look = pool._prober.look

    async def counted(*arguments):
        looks.append(1)
        return await look(*arguments)

    pool._prober.look = counted
    assert not await pool.found_dead(one.url)
    one.kill()
    assert all(await asyncio.gather(*(pool.found_dead(one.url) for _ in range(100))))
    assert len(looks) == 2
    await pool.aclose()


async def test_rebind_moves_a_session_off_a_dead_worker_and_off_no_other(two_workers):
    """A decision would be lost with the worker, or a living worker's session would lose its prefix."""
    one, other = two_workers
    pool = WorkerPool([one.url, other.url], health=QUICK)
    here = {s: await pool.acquire(s) for s in map(str, range(20))}
    assert [await pool.rebind(s, b) for s, b in here.items()] == [None] * len(here)
    one.kill()
    for session, binding in here.items():
        moved = await pool.rebind(session, binding)
        if binding.worker == one.url:
            assert moved is not None
            assert (moved.worker, moved.moved_from, moved.reason, moved.moves) == (other.url, one.url, "worker_lost", 1)
        else:
            assert moved is None
    assert pool.counts.total("retried_elsewhere") == sum(b.worker == one.url for b in here.values())
    await pool.aclose()


async def test_rebind_looks_no_longer_than_it_may():
    """A decision's deadline is hard, also when a worker hangs."""
    pool = WorkerPool([A, B])
    binding = await pool.acquire("s")

    async def look(worker, path, timeout_s):
        await asyncio.sleep(3600)

    pool._prober.look = look
    assert await pool.rebind("s", binding, timeout_s=0.05) is None
    assert (await pool.acquire("s")).worker == binding.worker
    await pool.aclose()


async def test_ready_waits_for_a_worker_that_boots():
    worker = Scripted()
    port = free_port()
    async with WorkerPool([f"http://127.0.0.1:{port}"], health=QUICK) as pool:
        assert not await pool.ready(0.2)
        async with worker.running(port):
            assert await pool.ready(10)


async def test_drained_sessions_move_with_their_reason():
    async with StandIn() as one, StandIn() as other, WorkerPool([one.url, other.url], health=QUICK) as pool:
        before = {s: (await pool.acquire(s)).worker for s in map(str, range(40))}
        pool.drain(one.url)
        for session, worker in before.items():
            binding = await pool.acquire(session)
            assert (binding.worker, binding.moved_from) == (other.url, one.url if worker == one.url else None)
        assert pool.counts.total("session_moved", reason="drained") == sum(w == one.url for w in before.values())
        pool.resume(one.url)
        assert {(await pool.acquire(s)).worker for s in before} == {other.url}


async def test_dns_names_are_resolved_before_the_first_session():
    async with StandIn() as worker:
        async with WorkerPool([f"dns+http://localhost:{worker.port}"], health=QUICK, dns_interval_s=0.1) as pool:
            assert (await pool.acquire("s")).worker == worker.url
        closed = WorkerPool([f"dns+http://localhost:{worker.port}"])
        assert (await closed.acquire("s")).worker.endswith(f":{worker.port}")


async def test_a_name_becomes_a_worker_for_every_address():
    assert await resolve(WorkerSpec("dns+http://127.0.0.1:8000", 2.0)) == [WorkerSpec("http://127.0.0.1:8000", 2.0)]


async def test_a_name_without_addresses_is_an_error_that_names_it(monkeypatch):
    async def fails(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails)
    pool = WorkerPool(["dns+http://nobody.invalid:8000"])
    with pytest.raises(Unreachable, match=r"nobody\.invalid:8000: the name resolves to no worker"):
        await pool.acquire("s")
    assert pool.counts.total("discovery_failed") == 1


async def test_opening_twice_closes_twice_and_leaves_nothing():
    async with StandIn() as worker:
        pool = WorkerPool([worker.url], health=QUICK)
        async with pool:
            async with pool:
                pass
            await asyncio.sleep(0.3)
            assert pool.status()[0].state == "ready"
            assert not nothing_left_running()
        await pool.aclose()
        await asyncio.sleep(0.05)


async def test_cancelling_an_open_leaves_nothing():
    worker = Scripted()
    worker.health = None
    async with worker.running():
        pool = WorkerPool([worker.url])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await pool.open()
        await pool.aclose()
        assert pool.status()[0].state == "unknown"


def test_several_loops_share_what_the_probes_find(two_workers):
    """Opened from sync code, used from a loop of another thread: one state of health, one place a session."""
    one, other = two_workers
    with WorkerPool([one.url, other.url], health=QUICK) as pool:
        before = {s: pool.acquire_sync(s).worker for s in map(str, range(40))}
        one.kill()
        ends = time.monotonic() + 10
        while not pool.counts.total("worker_lost") and time.monotonic() < ends:
            time.sleep(0.02)

        async def elsewhere():
            async with pool:
                return {s: (await pool.acquire(s)).worker for s in before}

        assert set(asyncio.run(elsewhere()).values()) == {other.url}
        assert {pool.acquire_sync(s).worker for s in before} == {other.url}
        assert pool.found_dead_sync(one.url)


async def test_probes_go_to_workers_alone(monkeypatch):
    """A proxy of the environment is not asked, and no header of ours goes anywhere it was not configured for."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with StandIn() as worker, WorkerPool([worker.url], probe_headers={"authorization": "Bearer k"}, health=QUICK) as pool:
        assert pool.status()[0].state == "ready"
        assert {r.headers.get("authorization") for r in worker.requests} == {"Bearer k"}

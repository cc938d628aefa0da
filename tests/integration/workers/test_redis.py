"""The Redis store against a real redis-server. If these fail, a fleet of gates splits its sessions, or falls with its Redis."""

from __future__ import annotations

import asyncio
import math
import random
import re
import ssl
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.workers.servers import Redis
from warmgate.errors import OptionError
from warmgate.workers import Candidate, Counts, MemoryAffinity, WorkerPool, session_key
from warmgate.workers.affinity.redis import CONCURRENCY, RedisAffinity

WORKERS = [f"http://10.0.0.{i}:8000" for i in range(4)]
TLS = Path(__file__).parents[2] / "data/tls"


def key(number):
    return session_key(f"session-{number}", namespace="t", role="workers")


def candidates(number=0, stances=None, weights=None):
    """All workers in some order of this session's own."""
    order = random.Random(number).sample(range(len(WORKERS)), len(WORKERS))
    return [Candidate(WORKERS[i], (weights or {}).get(i, 1.0), (stances or {}).get(i, "open")) for i in order]


@asynccontextmanager
async def store(redis, **options):
    affinity = RedisAffinity(redis if isinstance(redis, str) else redis.url, **{"timeout_s": 5.0, **options})
    try:
        yield affinity
    finally:
        await affinity.aclose()


async def bind_many(affinity, numbers, stances=None):
    return {n: await affinity.bind(key(n), candidates(n, stances), 600) for n in numbers}


@asynccontextmanager
async def hanging(redis, *affinities):
    """Redis hangs, and these stores wait 0.1 s for it; otherwise their patience is long, so that a slow machine is no outage."""
    redis.hang()
    for affinity in affinities:
        affinity._timeout_s = 0.1
    try:
        yield
    finally:
        redis.go_on()
        for affinity in affinities:
            affinity._timeout_s = 5.0


async def healed(affinity):
    """The store has noticed that Redis is back, without waiting for its pause to end, and has written back what it had to."""
    for _ in range(500):
        affinity._outage._trial_at = 0.0
        await affinity.maintain()
        if not affinity.out:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("Redis is back and nobody noticed")


def asked(affinity):
    """The time limit of every question that is put to Redis from now on."""
    limits = []
    client = affinity._client.get()
    run = client.run

    async def counted(script, keys, arguments, timeout_s):
        limits.append(timeout_s)
        return await run(script, keys, arguments, timeout_s)

    client.run = counted
    return limits


async def test_redis_and_memory_follow_the_same_rules(redis):
    """The script is a second implementation of the rules: any difference would change behaviour with the store."""
    draw = random.Random(5)
    memory = MemoryAffinity(bound=1.25)
    async with store(redis) as shared:
        for step in range(3000):
            number = draw.randrange(60)
            stances = {i: draw.choices(["open", "keep", "worker_lost", "drained"], [8, 1, 1, 1])[0] for i in range(4)}
            if "open" not in stances.values():
                continue
            weights = {i: draw.choice([0.5, 1.0, 3.0]) for i in range(4)}
            order = candidates(step, stances, weights)[: draw.choice([2, 4, 4, 4])]
            if not any(c.stance == "open" for c in order):
                continue
            if draw.random() < 0.05:
                await memory.release(key(number))
                await shared.release(key(number))
            else:
                shared._own._entries.clear()  # no hint: what the script does by itself
                shared._own._loads.clear()
                assert await shared.bind(key(number), order, 600) == await memory.bind(key(number), order, 600), step
    loads = dict(zip(*[iter(redis.cli("hgetall", "{warmgate:workers:0}:loads").split())] * 2, strict=True))
    assert loads == {w: str(memory.load(w)) for w in WORKERS if memory.load(w)}


async def test_without_a_bound_the_hash_decides(redis):
    async with store(redis, bound=math.inf) as affinity:
        found = [(await affinity.bind(key(n), candidates(0), 600)).worker for n in range(50)]
    assert set(found) == {candidates(0)[0].worker}


async def test_a_second_process_finds_the_binding(redis):
    async with store(redis) as one, store(redis) as other:
        first = await one.bind(key(1), candidates(1), 600)
        second = await other.bind(key(1), candidates(1)[::-1], 600)
        assert first.fresh
        assert (second.worker, second.fresh) == (first.worker, False)


async def test_a_move_is_made_once_for_all_processes(redis):
    """Each process notices a dead worker by itself; the session must not be handed on by every one of them."""
    async with store(redis) as one, store(redis) as other:
        was = {n: b.worker for n, b in (await bind_many(one, range(100))).items()}
        lost = {0: "worker_lost"}
        moves = [b for s in (one, other) for b in (await bind_many(s, range(100), lost)).values() if b.fresh]
        assert len(moves) == sum(w == WORKERS[0] for w in was.values())
        assert all(b.moved_from == WORKERS[0] and b.reason == "worker_lost" and b.moves == 1 for b in moves)
        back = await bind_many(other, range(100))
        assert not any(b.fresh or b.worker == WORKERS[0] for b in back.values())


async def test_session_ids_are_not_in_redis(redis):
    pool = WorkerPool(WORKERS, affinity=redis.url)
    await pool.acquire("alice@example.org")
    await pool.aclose()
    content = " ".join(redis.cli("hgetall", k) + redis.cli("zrange", k, "0", "-1") + k for k in redis.cli("keys", "*").split())
    assert "10.0.0" in content
    assert "alice" not in content
    assert "example" not in content


async def test_endless_ids_do_not_grow_redis(redis):
    counts = Counts()
    async with store(redis, max_entries=50, counts=counts) as affinity:
        await bind_many(affinity, range(500))
        assert not (await affinity.bind(key(499), candidates(), 600)).fresh
    assert {k: redis.cli(c, "{warmgate:workers:0}:" + k) for k, c in {"bindings": "hlen", "expiries": "zcard"}.items()} == {
        "bindings": "50",
        "expiries": "50",
    }
    assert counts.total("store_evicted") == 450
    assert sum(map(int, redis.cli("hvals", "{warmgate:workers:0}:loads").split())) == 50


async def test_rest_ends_a_binding_and_use_renews_it(redis):
    """Ends are moved by hand here, so that a slow machine changes nothing."""
    prefix, ttl = "{warmgate:workers:0}:", 600

    def ends(number):
        return float(redis.cli("zscore", prefix + "expiries", key(number)))

    async with store(redis) as affinity, store(redis) as other:
        await bind_many(affinity, (1, 2))
        for number in (1, 2):
            redis.cli("zadd", prefix + "expiries", str(ends(number) - 300_000), key(number))
        before = ends(1)
        assert not (await other.bind(key(1), candidates(1)[::-1], ttl)).fresh
        assert ends(1) >= before + 299_000
        redis.cli("zadd", prefix + "expiries", "1", key(2))
        assert (await other.bind(key(2), candidates(2), ttl)).fresh
    for name in ("bindings", "expiries", "loads"):
        assert ttl * 1000 < int(redis.cli("pttl", prefix + name)) <= 2 * ttl * 1000, (
            "a role that nobody uses any more leaves nothing behind"
        )


async def test_roles_and_namespaces_do_not_meet(redis):
    async with store(redis) as a, store(redis, role="gate_workers") as b, store(redis, namespace="other") as c:
        assert all([(await s.bind(key(1), candidates(1), 600)).fresh for s in (a, b, c)])


async def test_a_hanging_redis_costs_a_bind_no_more_than_its_limit(redis):
    """A decision has a deadline of its own; affinity must leave it nearly all of it, for every one of many sessions at once."""
    counts = Counts()
    async with store(redis, counts=counts) as affinity:
        before = await bind_many(affinity, range(20))
        limits = asked(affinity)
        async with hanging(redis, affinity):
            during = await asyncio.gather(*(affinity.bind(key(n), candidates(n), 600) for n in range(300)))
            assert max(limits) == 0.1
            assert len(limits) <= 2 * CONCURRENCY, "the rest of 300 binds waited for what others had found out already"
            assert [b.worker for b in during[:20]] == [b.worker for b in before.values()]
            assert [b.worker for b in during[20:]] == [candidates(n)[0].worker for n in range(20, 300)]
            assert {b.source for b in during} == {"own", "hash"}
            affinity._outage._trial_at = math.inf
            limits.clear()
            await affinity.bind(key(0), candidates(0), 600)
            assert limits == [], "while Redis is known to be out nobody waits for it"
        await healed(affinity)
        assert (await affinity.bind(key(0), candidates(0), 600)).source == "store"
    assert (counts.total("store_outage"), counts.total("store_healed")) == (1, 1)
    assert counts.total("store_bypassed") == 301


async def test_a_shorter_deadline_is_kept(redis):
    async with store(redis) as affinity:
        await affinity.bind(key(1), candidates(1), 600)
        limits = asked(affinity)
        redis.hang()
        assert (await affinity.bind(key(1), candidates(1), 600, timeout_s=0.05)).source == "own"
        assert limits == [0.05]
        redis.go_on()


async def test_short_deadlines_alone_make_no_outage(redis):
    """A caller with no time left says nothing about Redis: the next one must still be asked for the store's word."""
    counts = Counts()
    async with store(redis, counts=counts) as affinity:
        await affinity.bind(key(1), candidates(1), 600)
        assert (await affinity.bind(key(1), candidates(1), 600, timeout_s=0)).source == "own"
        assert (await affinity.bind(key(1), candidates(1), 600)).source == "store"
        redis.hang()
        for _ in range(3):
            await affinity.bind(key(1), candidates(1), 600, timeout_s=0.02)
        assert affinity.out, "but three in a row are enough"
        redis.go_on()
    assert counts.total("store_outage") == 1


async def test_a_redis_that_became_a_replica(redis):
    """After a failover the old address may lead to a server that takes no writes."""
    async with store(redis) as affinity:
        before = await affinity.bind(key(1), candidates(1), 600)
        redis.cli("replicaof", "127.0.0.1", "9")
        assert (await affinity.bind(key(1), candidates(1), 600)).source == "own"
        redis.cli("replicaof", "no", "one")
        await healed(affinity)
        assert (await affinity.bind(key(1), candidates(1), 600)) == before.__class__(before.worker, fresh=False)


async def test_pauses_grow_while_redis_stays_away(redis):
    """A dead Redis is not knocked at by every decision of every process. The clock is the test's own."""
    now = 1000.0
    async with store(redis, clock=lambda: now) as affinity:
        await affinity.bind(key(1), candidates(1), 600)
        redis.kill()
        limits = asked(affinity)
        for _ in range(4000):
            await affinity.bind(key(1), candidates(1), 600)
            now += 0.005
        assert affinity._outage.pause == 5.0
        assert 6 <= len(limits) <= 14, "20 s: after 0.25, 0.5, 1, 2, 4 s, then every 5 s, each a quarter more or less"


async def test_a_redis_that_came_back_empty_is_filled_again(redis):
    counts = Counts()
    async with store(redis, counts=counts) as affinity, store(redis) as newcomer:
        before = await bind_many(affinity, range(1000))
        redis.kill()
        during = await bind_many(affinity, range(900, 1100))
        redis.start()
        await healed(affinity)
        assert counts.total("store_restored") == 1100
        after = await bind_many(newcomer, range(1100))
        assert [b.fresh for b in after.values()] == [False] * 1100
        assert {n: b.worker for n, b in after.items()} == {n: b.worker for n, b in {**before, **during}.items()}
    assert counts.total("store_disagreement") == 0


async def test_a_redis_that_kept_its_memory_is_not_written_full_again(redis):
    counts = Counts()
    async with store(redis, counts=counts) as affinity:
        await bind_many(affinity, range(1000))
        async with hanging(redis, affinity):
            await affinity.bind(key(1000), candidates(1000), 600)
            assert affinity.out
        await healed(affinity)
    assert counts.total("store_restored") <= 1


async def test_a_restart_that_nobody_noticed_loses_nothing_in_use(redis):
    """Between two binds Redis may come back empty; the first bind of each session carries what its process knows."""
    async with store(redis) as affinity:
        before = await bind_many(affinity, range(100))
        redis.cli("flushall")
        after = {n: await affinity.bind(key(n), candidates(n + 1000), 600) for n in range(100)}
    assert [b.fresh for b in after.values()] == [False] * 100
    assert [b.worker for b in after.values()] == [b.worker for b in before.values()]


async def test_a_quick_restart_costs_no_bind(redis):
    """The stale connection is opened anew within the same bind."""
    counts = Counts()
    async with store(redis, counts=counts) as affinity:
        before = await affinity.bind(key(1), candidates(1), 600)
        redis.kill()
        redis.start()
        after = await affinity.bind(key(1), candidates(1)[::-1], 600)
        assert (after.worker, after.fresh, after.source) == (before.worker, False, "store")
    assert counts.total("store_outage") == 0


async def test_a_move_during_an_outage_outlives_it(redis):
    """The prefix now lives on the new worker; a Redis that slept through the move must not call the session back."""
    counts = Counts()
    async with store(redis, counts=counts) as affinity:
        before = await affinity.bind(key(1), candidates(1), 600)
        index = WORKERS.index(before.worker)
        async with hanging(redis, affinity):
            moved = await affinity.bind(key(1), candidates(1, {index: "worker_lost"}), 600)
        await healed(affinity)
        after = await affinity.bind(key(1), candidates(1), 600)
        assert (after.worker, after.moved_from, after.moves, after.source) == (moved.worker, before.worker, 1, "store")
    assert counts.total("store_disagreement") == 0


async def test_disagreements_are_counted_and_end(redis):
    """Two processes that see different workers during an outage bind a session differently: the first to write wins, the other says so."""
    counts = Counts()
    async with store(redis, counts=counts) as one, store(redis, counts=counts) as other:
        await one.bind(key(0), candidates(0), 600)
        await other.bind(key(0), candidates(0), 600)
        redis.kill()
        a = await one.bind(key(1), candidates(1), 600)
        b = await other.bind(key(1), candidates(1)[1:], 600)
        assert a.worker != b.worker
        redis.start()
        await healed(one)
        await healed(other)
        assert {(await s.bind(key(1), candidates(1), 600)).worker for s in (one, other)} == {a.worker}
    assert counts.total("store_disagreement") == 1


async def test_a_redis_that_is_out_when_the_pool_opens_is_no_error():
    server = Redis()
    pool = WorkerPool(["http://127.0.0.1:9"], affinity=server.url)
    async with pool:
        assert (await pool.acquire("s")).source == "hash"
        with server:
            for _ in range(100):
                if (await pool.acquire("s")).source == "store":
                    break
                await asyncio.sleep(0.05)
            assert (await pool.acquire("s")).source == "store"
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


async def test_cancelled_binds_do_not_mix_up_replies(redis):
    """A decision that is cancelled leaves a reply on its way; the next bind on that connection must not take it for its own."""
    async with store(redis) as affinity:
        before = await bind_many(affinity, range(200))
        draw = random.Random(1)
        for _ in range(300):
            tasks = [asyncio.create_task(affinity.bind(key(n), candidates(n), 600)) for n in draw.sample(range(200), 8)]
            await asyncio.sleep(draw.uniform(0, 0.002))
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        after = await asyncio.gather(*(affinity.bind(key(n), candidates(n), 600) for n in range(200)))
    assert [b.worker for b in after] == [b.worker for b in before.values()]
    assert not any(b.fresh for b in after)


async def test_a_server_that_forgot_the_script_gets_it_again(redis):
    async with store(redis) as affinity:
        await affinity.bind(key(1), candidates(1), 600)
        redis.cli("script", "flush")
        assert (await affinity.bind(key(1), candidates(1), 600)).source == "store"


async def test_a_full_redis_is_an_outage_not_an_error():
    counts = Counts()
    with Redis("--maxmemory", "100kb", "--maxmemory-policy", "noeviction") as full:
        async with store(full, counts=counts) as affinity:
            assert (await affinity.bind(key(1), candidates(1), 600)).worker == candidates(1)[0].worker
    assert counts.total("store_outage") == 1


DOCS = (Path(__file__).parents[3] / "docs/workers.md").read_text("utf-8")
ACL = re.search(r"^ACL SETUSER gate (.*)$", DOCS, re.MULTILINE)[1].replace(">password", ">secret").split()


async def test_a_user_with_the_documented_rights_is_enough(redis):
    redis.cli("acl", "setuser", "gate", *ACL)
    async with store(f"redis://gate:secret@127.0.0.1:{redis.port}/0") as affinity:
        await affinity.open()
        before = await bind_many(affinity, range(50))
        assert {b.source for b in before.values()} == {"store"}
        await affinity.release(key(1))
        redis.kill()
        await affinity.bind(key(2), candidates(2), 600)
        redis.start()
        redis.cli("acl", "setuser", "gate", *ACL)
        await healed(affinity)
        assert {(await affinity.bind(key(n), candidates(n), 600)).source for n in range(2, 50)} == {"store"}


@pytest.mark.parametrize(
    ("user", "rights"),
    [
        ("nobody:wrong", None),
        ("gate:wrong", ACL),
        ("gate:secret", ACL[:-3]),
        ("gate:secret", [a for a in ACL if a != "+hset"]),
        ("gate:secret", ["on", ">secret", "~x", "+@all"]),
    ],
    ids=["no user", "wrong password", "no TTLs", "no writes", "other keys"],
)
async def test_a_redis_that_refuses_us_is_said_when_the_pool_opens(redis, user, rights):
    """Otherwise every bind goes by hash for ever, and only a metric knows."""
    if rights:
        redis.cli("acl", "setuser", "gate", *rights)
    pool = WorkerPool(["http://127.0.0.1:9"], affinity=f"redis://{user}@127.0.0.1:{redis.port}")
    with pytest.raises(OptionError, match="Redis refuses us") as caught:
        await pool.open()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "wrong" not in str(caught.value)
    assert f"redis://127.0.0.1:{redis.port}" in str(caught.value)
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


@asynccontextmanager
async def tls_in_front_of(port):
    """TLS ended by a proxy, since the bundled redis-server speaks none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")

    async def pump(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_tls(redis):
    async with tls_in_front_of(redis.port) as port:
        async with store(f"rediss://127.0.0.1:{port}?ssl_ca_certs={TLS / 'cert.pem'}") as affinity:
            await affinity.open()
            assert (await affinity.bind(key(1), candidates(1), 600)).source == "store"
        counts = Counts()
        async with store(f"rediss://127.0.0.1:{port}", counts=counts) as distrusting:
            assert (await distrusting.bind(key(2), candidates(2), 600)).source == "hash", "an unknown certificate gets no session"


async def test_unix_sockets(tmp_path):
    with Redis("--unixsocket", str(tmp_path / "redis.sock")):
        async with store(f"unix://{tmp_path / 'redis.sock'}") as affinity:
            assert (await affinity.bind(key(1), candidates(1), 600)).source == "store"


async def test_a_cluster(tmp_path):
    """Bindings are spread over the nodes, and each script finds all its keys on one."""
    nodes = [Redis("--cluster-enabled", "yes", "--cluster-config-file", str(tmp_path / f"{n}.conf")) for n in range(2)]
    counts = Counts()
    with nodes[0] as one, nodes[1] as two:
        one.cli("cluster", "meet", "127.0.0.1", str(two.port))
        one.cli("cluster", "addslots", *map(str, range(8192)))
        two.cli("cluster", "addslots", *map(str, range(8192, 16384)))
        for node in nodes:
            for _ in range(200):
                if "cluster_state:ok" in node.cli("cluster", "info"):
                    break
                await asyncio.sleep(0.05)
        url = f"redis+cluster://127.0.0.1:{one.port}"
        async with store(url, counts=counts) as affinity, store(url) as other:
            await affinity.open()
            before = await bind_many(affinity, range(200))
            after = await bind_many(other, range(200))
            assert [b.worker for b in after.values()] == [b.worker for b in before.values()]
            assert {b.source for b in before.values()} == {"store"}
            assert not any(b.fresh for b in after.values())
            assert all(int(node.cli("dbsize")) > 3 for node in nodes)
            await affinity.release(key(1))
    assert counts.total("store_outage") == 0


def test_every_event_loop_has_its_own_connections(redis):
    """The sync face, a web server's loop and a background loop share one store."""
    affinity = RedisAffinity(redis.url, timeout_s=5.0)

    async def work():
        found = await bind_many(affinity, range(100))
        await affinity.aclose()
        return [b.worker for b in found.values()], {b.source for b in found.values()}

    results = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(work()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.append(asyncio.run(work()))
    assert all(result == results[0] for result in results)
    assert results[0][1] == {"store"}

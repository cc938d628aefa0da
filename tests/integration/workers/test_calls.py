"""The openai client over sticky transports, streams and killed workers. If these fail, agents lose calls or prefixes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from itertools import pairwise

import httpx
import httpx2
import pytest
from openai import APIConnectionError, AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from warmgate.standin import StandIn
from warmgate.workers import AsyncStickyTransport, AsyncStickyTransport2, Rule, StickyTransport, StickyTransport2, WorkerPool, session

QUICK = Rule(interval_s=0.2, timeout_s=15.0, pause_s=0.1, longest_pause_s=0.5)
"""Dead workers refuse at once; patience is for living ones on a machine that has other work."""
PATIENT = 120.0
NOWHERE = "http://session.invalid/v1"


def messages(turn, name):
    return [{"role": "user", "content": f"{name} " + "tell me more. " * 20 * (turn + 1)}]


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_calls_reach_their_sessions_worker(stream):
    async with StandIn() as one, StandIn() as other, WorkerPool([one.url, other.url], health=QUICK) as pool:
        client = AsyncOpenAI(
            base_url=NOWHERE,
            api_key="k",
            max_retries=0,
            timeout=PATIENT,
            http_client=DefaultAsyncHttpxClient(transport=AsyncStickyTransport2(pool)),
        )
        async with client:
            for number in range(12):
                headers = {"X-Session-ID": f"s{number}"}
                reply = await client.chat.completions.create(
                    model="standin", messages=messages(0, number), extra_headers=headers, stream=stream
                )
                if stream:
                    assert "".join([c.choices[0].delta.content or "" async for c in reply if c.choices])
            assert (await client.models.list()).data
        for worker in (one, other):
            chats = [r for r in worker.requests if r.path == "/v1/chat/completions"]
            assert chats
            for request in chats:
                assert (await pool.acquire(request.headers["x-session-id"])).worker == worker.url
                assert request.headers["host"] == worker.url.removeprefix("http://")


def test_sync_openai_streams_too():
    with StandIn() as one, StandIn() as other, WorkerPool([one.url, other.url], health=QUICK) as pool:
        transport = StickyTransport2(pool)
        with OpenAI(
            base_url=NOWHERE, api_key="k", max_retries=0, timeout=PATIENT, http_client=DefaultHttpxClient(transport=transport)
        ) as client:
            for number in range(6):
                with session(f"s{number}"):
                    stream = client.chat.completions.create(model="standin", messages=messages(0, number), stream=True)
                    assert len(list(stream)) > 1
        assert len(one.requests) + len(other.requests) >= 6


async def test_streams_are_handed_on_as_they_come():
    """A transport that reads ahead would hold back the first token until the last one is there."""
    async with (
        StandIn() as worker,
        WorkerPool([worker.url]) as pool,
        httpx.AsyncClient(transport=AsyncStickyTransport(pool), timeout=PATIENT) as client,
    ):
        body = {"model": "standin", "messages": messages(0, "s"), "stream": True, "max_tokens": 2}
        headers = {"X-Session-ID": "s", "x-standin-fault": "drip_feed=0.0005"}
        began = asyncio.get_running_loop().time()
        async with client.stream("POST", NOWHERE + "/chat/completions", json=body, headers=headers) as reply:
            times = [asyncio.get_running_loop().time() - began async for _ in reply.aiter_raw()]
        assert times[0] < times[-1] / 2


async def test_decision_and_agent_call_by_url_alone():
    """base_url() for clients whose transport cannot be replaced."""
    async with StandIn() as one, StandIn() as other, WorkerPool([one.url, other.url]) as pool:
        for number in range(10):
            url = await pool.base_url(f"s{number}")
            async with httpx.AsyncClient() as client:
                assert (await client.get(url + "/health")).status_code == 200
            assert url == (await pool.acquire(f"s{number}", "gate_workers")).worker


@pytest.mark.parametrize(
    ("library", "transport"), [(httpx, AsyncStickyTransport), (httpx2, AsyncStickyTransport2)], ids=["httpx", "httpx2"]
)
async def test_faults_of_living_workers_reach_the_caller_as_they_are(library, transport):
    async with StandIn() as one, StandIn() as other, WorkerPool([one.url, other.url], health=QUICK) as pool:
        where = await pool.base_url("s")
        async with library.AsyncClient(transport=transport(pool), timeout=PATIENT) as client:
            for fault, seen in [
                ("reset", library.ReadError),
                ("close", library.RemoteProtocolError),
                ("half_headers", library.RemoteProtocolError),
            ]:
                headers = {"X-Session-ID": "s", "x-standin-fault": fault}
                with pytest.raises(seen):
                    await client.post(
                        NOWHERE + "/chat/completions", json={"model": "standin", "messages": messages(0, "s")}, headers=headers
                    )
            reply = await client.post(NOWHERE + "/chat/completions", json={}, headers={"X-Session-ID": "s", "x-standin-fault": "503"})
            assert reply.status_code == 503
        assert await pool.base_url("s") == where
        assert pool.counts.total("retried_elsewhere") == pool.counts.total("worker_lost") == 0


async def test_kill_one_of_two_mid_run_and_bring_it_back(two_workers):
    """No call is lost that had not begun to stream; the dead worker's sessions move once, the other's stay; afterwards nobody moves."""
    one, other = two_workers
    async with WorkerPool([one.url, other.url], health=QUICK) as pool, AsyncExitStack() as stack:
        client = AsyncOpenAI(
            base_url=NOWHERE,
            api_key="k",
            max_retries=0,
            timeout=PATIENT,
            http_client=DefaultAsyncHttpxClient(transport=AsyncStickyTransport2(pool)),
        )
        stack.push_async_callback(client.close)
        names = [f"s{n}" for n in range(24)]
        at_first = {name: await pool.base_url(name) for name in names}
        assert 6 <= Counter(at_first.values())[one.url] <= 18
        where: dict[str, list[str]] = defaultdict(list)
        lost_before_streaming: list[str] = []
        cut_while_streaming = 0
        draw = random.Random(3)
        a_third_is_done = asyncio.Event()

        async def agent(name, turns):
            nonlocal cut_while_streaming
            for turn in range(turns):
                begun = False
                headers = {"X-Session-ID": name, "x-standin-fault": f"slow={draw.uniform(0, 0.05):.3f}"}
                try:
                    stream = await client.chat.completions.create(
                        model="standin", messages=messages(turn, name), extra_headers=headers, stream=True, max_tokens=16
                    )
                    begun = True
                    async for _ in stream:
                        pass
                except (APIConnectionError, httpx2.TransportError) as fault:
                    if begun:
                        cut_while_streaming += 1
                    else:
                        lost_before_streaming.append(f"{name} {turn} {fault!r} {fault.__cause__!r}")
                where[name].append(await pool.base_url(name))
                if sum(map(len, where.values())) == 4 * len(names):
                    a_third_is_done.set()

        async def killer():
            await a_third_is_done.wait()
            one.kill()

        await asyncio.gather(killer(), *(agent(name, 12) for name in names))
        assert lost_before_streaming == []
        for name in names:
            path = [at_first[name], *where[name]]
            changes = sum(a != b for a, b in pairwise(path))
            assert changes == (at_first[name] == one.url), (name, path)
            binding = await pool.acquire(name)
            assert (binding.worker, binding.moves) == (other.url, int(at_first[name] == one.url))
        assert pool.counts.total("retried_elsewhere") >= 1
        assert pool.counts.total("session_moved") == Counter(at_first.values())[one.url]

        one.start()
        assert await pool.ready(10, least=2)
        where.clear()
        await asyncio.gather(*(agent(name, 3) for name in names))
        assert lost_before_streaming == []
        assert {worker for path in where.values() for worker in path} == {other.url}
        assert pool.counts.total("session_moved") == Counter(at_first.values())[one.url]
        print(f"{cut_while_streaming} streams cut, {pool.counts.total('retried_elsewhere')} calls made again elsewhere")


def test_kill_with_the_sync_transport(two_workers):
    one, other = two_workers
    with WorkerPool([one.url, other.url], health=QUICK) as pool, httpx.Client(transport=StickyTransport(pool), timeout=PATIENT) as client:
        name = next(n for n in map(str, range(50)) if pool.acquire_sync(n).worker == one.url)
        body = {"model": "standin", "messages": messages(0, name)}
        assert client.post(NOWHERE + "/chat/completions", json=body, headers={"X-Session-ID": name}).status_code == 200
        one.kill()
        assert client.post(NOWHERE + "/chat/completions", json=body, headers={"X-Session-ID": name}).status_code == 200
        assert pool.acquire_sync(name).moved_from == one.url

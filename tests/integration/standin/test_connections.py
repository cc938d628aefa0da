"""The stand-in's connections: HTTP/1.1 as clients rely on it, bounds, and faults of the wire as they look from outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from warmgate.errors import OptionError
from warmgate.standin import StandIn

DECISION = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "Is it red?"}}}


def raw(body: Any = DECISION, path: str = "/v1/systemone", headers: str = "") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n{headers}\r\n"
    return head.encode() + content


@asynccontextmanager
async def connected(worker: StandIn) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def one_reply(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode()
    lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    body = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 10)
    return int(lines[0].split()[1]), headers, body


class TestRequests:
    async def test_a_connection_is_kept(self):
        """Pools would open a connection a call."""
        async with StandIn() as worker, connected(worker) as (reader, writer):
            for _ in range(5):
                writer.write(raw())
                assert (await one_reply(reader))[0] == 200
            assert len(worker._connections) == 1

    async def test_requests_sent_ahead_are_answered_in_order(self):
        async with StandIn() as worker, connected(worker) as (reader, writer):
            writer.write(b"".join(raw(headers=f"x-request-id: r{n}\r\n") for n in range(20)))
            ids = [json.loads((await one_reply(reader))[2])["id"] for _ in range(20)]
            assert ids == [f"decision-r{n}" for n in range(20)]

    async def test_a_request_in_many_pieces(self):
        async with StandIn() as worker, connected(worker) as (reader, writer):
            for byte in raw():
                writer.write(bytes([byte]))
                await writer.drain()
            assert (await one_reply(reader))[0] == 200

    async def test_chunked_bodies_and_waiting_for_100(self):
        async with StandIn() as worker, connected(worker) as (reader, writer):
            head = "POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
            writer.write(f"{head}expect: 100-continue\r\n\r\n".encode())
            assert b"100" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            content = json.dumps(DECISION).encode()
            for at in range(0, len(content), 7):
                piece = content[at : at + 7]
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            writer.write(b"0\r\n\r\n")
            assert (await one_reply(reader))[0] == 200

    async def test_connection_close_is_obeyed(self):
        async with StandIn() as worker, connected(worker) as (reader, writer):
            writer.write(raw(headers="connection: close\r\n"))
            assert (await one_reply(reader))[0] == 200
            assert await asyncio.wait_for(reader.read(), 5) == b""

    @pytest.mark.parametrize(
        "junk", [b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n"]
    )
    async def test_what_is_not_http_is_told_so(self, junk: bytes):
        async with StandIn() as worker, connected(worker) as (reader, writer):
            writer.write(junk)
            status, headers, _ = await one_reply(reader)
            assert (status, headers["x-warmgate-standin"]) == (400, "1")
            assert await asyncio.wait_for(reader.read(), 5) == b""

    async def test_bodies_are_bounded(self):
        async with StandIn(max_body=1000) as worker, connected(worker) as (reader, writer):
            writer.write(raw(b"x" * 2000))
            assert (await one_reply(reader))[0] == 413

    async def test_heads_are_bounded(self):
        async with StandIn() as worker, connected(worker) as (reader, writer):
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 200_000)
            assert (await one_reply(reader))[0] in (400, 431)

    async def test_a_client_that_dawdles_is_let_go(self):
        """A byte now and then must not hold a connection for ever."""
        async with StandIn(read_timeout=0.3) as worker, connected(worker) as (reader, writer):
            started = time.monotonic()

            async def drip() -> None:
                for byte in raw():
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            status, _, _ = await one_reply(reader)
            assert (status, time.monotonic() - started < 2) == (408, True)
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)

    async def test_idle_connections_end(self):
        async with StandIn(keep_alive=0.2) as worker, connected(worker) as (reader, writer):
            writer.write(raw())
            await one_reply(reader)
            assert await asyncio.wait_for(reader.read(), 5) == b""

    async def test_a_client_that_leaves_ends_its_request(self):
        """A cancelled decision must free its blocks and keep its prompt warm."""
        async with StandIn(fault="slow=30", block_size=4) as worker:
            async with connected(worker) as (_, writer):
                writer.write(raw({**DECISION, "state": "word " * 50}))
                await writer.drain()
                for _ in range(100):
                    if worker.counters["running"]:
                        break
                    await asyncio.sleep(0.01)
                assert worker.counters["running"] == 1
            for _ in range(100):
                if not worker.counters["running"]:
                    break
                await asyncio.sleep(0.01)
            assert (worker.counters["running"], worker.counters["finished"]["abort"]) == (0, 1)
            assert worker.cached_blocks > 10
            assert worker.requests[-1].status == 0

    async def test_a_reader_too_slow_for_a_stream_does_not_fill_memory(self):
        reply = "word " * 20_000
        async with StandIn(script={"chat": [{"content": reply}]}) as worker, connected(worker) as (reader, writer):
            writer.write(raw({"messages": [{"role": "user", "content": "x"}], "stream": True}, "/v1/chat/completions"))
            await asyncio.sleep(0.5)
            (connection,) = worker._connections
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() < 1 << 20
            data = await read_until(reader, b"data: [DONE]\n\n")
            assert data.count(b"data: ") > 10_000


async def read_until(reader: asyncio.StreamReader, mark: bytes) -> bytes:
    data = b""
    while mark not in data[-100:]:
        piece = await asyncio.wait_for(reader.read(1 << 16), 30)
        assert piece
        data += piece
    return data


class TestFaultsOfTheWire:
    async def get(self, worker: StandIn, fault: str, seconds: float = 5) -> httpx.Response:
        async with httpx.AsyncClient(base_url=worker.url, timeout=seconds) as client:
            return await client.post("/v1/systemone", json=DECISION, headers={"x-standin-fault": fault})

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("reset", httpx.ReadError),
            ("close", httpx.RemoteProtocolError),
            ("half_headers", httpx.RemoteProtocolError),
            ("half_body", httpx.RemoteProtocolError),
            ("not_http", httpx.RemoteProtocolError),
            ("hang", httpx.ReadTimeout),
            ("slow=3", httpx.ReadTimeout),
            ("drip_feed=1", httpx.ReadTimeout),
        ],
    )
    async def test_as_a_client_sees_them(self, fault: str, error: type[Exception]):
        async with StandIn() as worker:
            with pytest.raises(error):
                await self.get(worker, fault, seconds=0.5)
            assert (await self.get(worker, "slow=0")).status_code == 200  # and the next request is served
            assert worker.counters["running"] == 0 or fault in ("hang", "slow=3")

    async def test_drip_feed_arrives_whole_in_the_end(self):
        async with StandIn() as worker:
            started = time.monotonic()
            reply = await self.get(worker, "drip_feed=0.001")
            assert reply.json()["model"] == "standin"
            assert time.monotonic() - started > 0.3

    async def test_a_huge_body(self):
        async with StandIn() as worker:
            assert len((await self.get(worker, "huge_body=5", seconds=30)).content) > 5_000_000

    async def test_half_a_stream(self):
        async with StandIn() as worker, httpx.AsyncClient(base_url=worker.url) as client:
            body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post("/v1/chat/completions", json=body, headers={"x-standin-fault": "half_body"})

    async def test_counted_faults_of_a_test(self):
        async with StandIn() as worker:
            worker.fault("503", times=2)
            assert [(await self.get(worker, "slow=0")).status_code for _ in range(3)] == [503, 503, 200]
            worker.fault("garbage")
            assert (await self.get(worker, "slow=0")).text.startswith("<p>")
            worker.heal()
            assert (await self.get(worker, "slow=0")).status_code == 200


class TestLife:
    def test_from_code_without_a_loop(self):
        """Users' synchronous tests run it in a thread."""
        with StandIn(model="mine", kv_events_port=0) as worker:
            assert httpx.get(worker.url + "/v1/models").json()["data"][0]["id"] == "mine"
            httpx.post(worker.url + "/v1/systemone", json=DECISION)
            assert worker.requests[-1].json() == DECISION
            assert worker.counters["queries"] > 0
            worker.clear_cache()
            assert worker.cached_blocks == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(worker.url + "/health")

    async def test_nothing_is_left_behind(self):
        """A user's test run would end with warnings about tasks and sockets."""
        before = asyncio.all_tasks()
        async with StandIn(kv_events_port=0, fault="hang") as worker:
            async with httpx.AsyncClient(timeout=0.2) as client:
                with pytest.raises(httpx.ReadTimeout):
                    await client.post(worker.url + "/v1/systemone", json=DECISION)
            idle = await asyncio.open_connection("127.0.0.1", worker.port)
            await asyncio.sleep(0.05)
            assert worker._connections
        with contextlib.suppress(ConnectionError):
            assert await idle[0].read() == b""
        idle[1].close()
        assert asyncio.all_tasks() == before
        assert not worker._connections

    async def test_it_can_start_again(self):
        worker = StandIn()
        for _ in range(2):
            async with worker, httpx.AsyncClient() as client:
                assert (await client.get(worker.url + "/health")).status_code == 200

    async def test_a_port_that_is_taken(self):
        async with StandIn() as worker:
            with pytest.raises(OptionError, match="cannot listen"):
                await StandIn(port=worker.port).start()
            with pytest.raises(OptionError, match="KV events"):
                async with StandIn(kv_events_port=worker.port):
                    pass
        with pytest.raises(OptionError, match="cannot listen"):
            StandIn(host="203.0.113.9").start_thread()

    async def test_many_at_once(self):
        """Benchmarks and busy agents: 64 callers, no error, counters that add up."""
        async with StandIn() as worker, httpx.AsyncClient(base_url=worker.url, limits=httpx.Limits(max_connections=64)) as client:
            replies = await asyncio.gather(*(client.post("/v1/systemone", json={**DECISION, "state": f"s{n % 9}"}) for n in range(200)))
            assert {reply.status_code for reply in replies} == {200}
            assert worker.counters["queries"] == sum(reply.json()["usage"]["input_tokens"] for reply in replies)
            assert worker.counters["running"] == 0

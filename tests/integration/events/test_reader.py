"""The event reader on real sockets: gaps, restarts, a dead publisher, a flood, and decisions that never wait for any of it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import httpx
import pytest

from tests.integration.events.traffic import Pooled, Traffic, mixed, until
from warmgate.errors import OptionError
from warmgate.prefix.events import EventReader, EventSource, sources_of
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.intake import Intake
from warmgate.standin import StandIn


def publisher(port: int, pipe: Connection, replay: bool, first: int) -> None:
    """A process that publishes what the test tells it to, as vLLM does: (names stored, names removed, drop)."""
    import msgspec
    import zmq

    context = zmq.Context()
    pub, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    pub.set_hwm(0)
    for sock in (pub, router):
        sock.linger = 0
    pub.bind(f"tcp://127.0.0.1:{port}")
    if replay:
        router.bind(f"tcp://127.0.0.1:{port + 1}")
    number, kept = first, []
    pipe.send("ready")
    while True:
        if replay and router.poll(1):
            client, _, start = router.recv_multipart()
            for seq, payload in kept:
                if seq >= int.from_bytes(start, "big"):
                    router.send_multipart([client, b"", b"", seq.to_bytes(8, "big"), payload])
            router.send_multipart([client, b"", b"", (-1).to_bytes(8, "big", signed=True), b""])
        if not pipe.poll(0 if replay else 0.01):
            continue
        order = pipe.recv()
        if order is None:
            return
        stored, removed, drop, times = order
        for _ in range(times):
            events: list[dict[str, Any]] = []
            if stored:
                events.append({"type": "BlockStored", "block_hashes": stored, "parent_block_hash": 1, "token_ids": [1] * 16 * len(stored), "block_size": 16, "lora_id": None, "medium": "GPU", "lora_name": None})  # fmt: skip
            if removed:
                events.append({"type": "BlockRemoved", "block_hashes": removed, "medium": "GPU"})
            payload = msgspec.msgpack.encode([time.time(), events, 0])
            kept.append((number, payload))
            if not drop:
                pub.send_multipart([b"", number.to_bytes(8, "big"), payload])
            number += 1
        pipe.send(number)


class Publisher:
    def __init__(self, port: int, *, replay: bool = True, first: int = 0) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=publisher, args=(port, theirs, replay, first), daemon=True)
        self.process.start()
        assert self.pipe.poll(60)
        assert self.pipe.recv() == "ready"

    def send(self, stored: list[int], removed: list[int] | None = None, *, drop: bool = False, times: int = 1) -> None:
        self.pipe.send((stored, removed or [], drop, times))
        assert self.pipe.poll(60)
        self.pipe.recv()

    def kill(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


@pytest.fixture
def port() -> int:
    """The first of two in a row; the replay socket listens on the next."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            number = one.getsockname()[1]
            with suppress(OSError, OverflowError):
                two.bind(("127.0.0.1", number + 1))
                return number


@pytest.fixture
def publishers() -> Iterator[list[Publisher]]:
    made: list[Publisher] = []
    yield made
    for one in made:
        one.kill()


def reader_of(port: int, *, replay: bool = True) -> EventReader:
    source = EventSource(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}" if replay else None)
    reader = EventReader(source, Intake(ShadowIndex(16, source="events")))
    reader.start()
    return reader


def fresh(reader: EventReader) -> bool:
    return until(lambda: reader.status.state == "fresh")


def holds(reader: EventReader, names: set[int]) -> bool:
    return until(lambda: set(reader.intake.index._copies) == names)


def test_before_after_and_missed(port: int, publishers: list[Publisher]):
    """What happened before we listened, and what the network dropped, is fetched: no figure rests on a hole."""
    publishers.append(Publisher(port))
    publishers[0].send([1, 2, 3])
    reader = reader_of(port)
    try:
        assert fresh(reader), reader.status
        assert holds(reader, {1, 2, 3})
        publishers[0].send([4], [1])
        assert holds(reader, {2, 3, 4})
        publishers[0].send([5], [2], drop=True)
        publishers[0].send([6])
        assert holds(reader, {3, 4, 5, 6})
        assert reader.intake.index.doubt is None
        assert reader.intake.gaps == 0
    finally:
        reader.close()
    assert reader.status.state == "gone"
    assert "gone" in (reader.intake.index.doubt or "")


def test_a_gap_that_nobody_fills_is_said(port: int, publishers: list[Publisher]):
    publishers.append(Publisher(port, replay=False))
    reader = reader_of(port, replay=False)
    try:
        until(lambda: reader._connected)
        for _ in range(50):  # a new subscription takes a moment
            publishers[0].send([1])
            if until(lambda: reader.intake.batches > 0, 0.1):
                break
        publishers[0].send([2], drop=True)
        publishers[0].send([3])
        assert until(lambda: 3 in reader.intake.index)
        assert until(lambda: reader.status.state == "lagging"), reader.status
        assert "lost" in reader.status.why
        assert reader.intake.gaps == 1
    finally:
        reader.close()


@pytest.mark.parametrize("more", [0, 5])
def test_a_restarted_worker_is_noticed(port: int, publishers: list[Publisher], more: int):
    """Blocks of a dead process would count as resident, also where the new one has published more batches than the old."""
    publishers.append(Publisher(port))
    reader = reader_of(port)
    try:
        assert fresh(reader)
        publishers[0].send([1])
        publishers[0].send([2])
        assert holds(reader, {1, 2})
        publishers[0].kill()
        assert until(lambda: reader.status.state == "gone")
        publishers.append(Publisher(port))
        names = {100 + n for n in range(more)}
        for name in sorted(names):
            publishers[1].send([name])
        assert until(lambda: reader.intake.restarts == 1), (reader.status, reader.intake.expected)
        assert holds(reader, names)
        assert fresh(reader)
        publishers[1].send([7])
        assert holds(reader, names | {7})
        assert reader.intake.index.doubt is None
    finally:
        reader.close()


def test_a_broken_line_alone_is_no_restart(port: int, publishers: list[Publisher]):
    """What is resident would be forgotten at every hiccup of the network."""
    import asyncio as aio

    publishers.append(Publisher(port))
    publishers[0].send([1, 2])
    door = socket.create_server(("127.0.0.1", 0))
    door.setblocking(False)
    through = door.getsockname()[1]
    stop = None
    writers: list[Any] = []

    async def proxy() -> None:
        nonlocal stop
        stop = aio.Event()

        async def pump(reader: aio.StreamReader, writer: aio.StreamWriter) -> None:
            try:
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
            except OSError:
                pass
            finally:
                writer.close()

        async def serve(reader: aio.StreamReader, writer: aio.StreamWriter) -> None:
            there, back = await aio.open_connection("127.0.0.1", port)
            writers.extend([writer, back])
            await aio.gather(pump(reader, back), pump(there, writer))

        async with await aio.start_server(serve, sock=door):
            await stop.wait()

    import threading

    loop = aio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy()), daemon=True)
    thread.start()
    reader = EventReader(EventSource(f"tcp://127.0.0.1:{through}", f"tcp://127.0.0.1:{port + 1}"), Intake(ShadowIndex(16, source="events")))
    reader.start()
    try:
        assert fresh(reader)
        assert holds(reader, {1, 2})
        states: list[str] = []
        loop.call_soon_threadsafe(lambda: [w.transport.abort() for w in writers])
        assert until(lambda: states.append(reader.status.state) or "gone" in states)
        publishers[0].send([3], [1])
        assert fresh(reader)
        assert holds(reader, {2, 3})
        assert reader.intake.restarts == 0
        assert reader.intake.index.doubt is None
    finally:
        reader.close()
        assert stop is not None
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_nobody_there(port: int):
    """A worker without events costs a doubt, and no decision waits for it."""
    reader = reader_of(port)
    try:
        time.sleep(0.3)
        assert reader.status.state == "gone"
        assert "gone" in (reader.intake.index.find([1], 99).doubt or "")
    finally:
        reader.close()
    with pytest.raises(OptionError):
        EventReader(EventSource("nonsense"), Intake(ShadowIndex(16))).start()


def test_a_dead_reader_is_known(port: int, publishers: list[Publisher], monkeypatch: pytest.MonkeyPatch):
    """A fault in the reader would leave an index that grows older and claims to be sure."""
    publishers.append(Publisher(port))
    reader = reader_of(port)
    try:
        assert fresh(reader)

        def broken(*_: object) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(reader.intake, "take", broken)
        publishers[0].send([1])
        assert until(lambda: reader.status.state == "gone")
        assert "a fault of ours" in reader.status.why
        assert reader.intake.index.doubt is not None
    finally:
        reader.close()


async def test_a_flood_delays_no_decision(port: int, publishers: list[Publisher]):
    """While a worker announces as fast as it can, the event loop that decides must keep running: counted in ticks, not seconds."""
    publishers.append(Publisher(port))
    reader = reader_of(port)
    try:
        assert await asyncio.to_thread(fresh, reader)
        index = reader.intake.index
        started = time.monotonic()
        flood = asyncio.create_task(asyncio.to_thread(publishers[0].send, list(range(500)), list(range(500)), times=1500))
        ticks, longest = 0, 0.0
        while not flood.done() or reader.intake.batches < 1500:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            index.find(list(range(100)), 2000)
            longest = max(longest, time.monotonic() - before)
            ticks += 1
            assert time.monotonic() - started < 120, reader.intake.batches
        assert ticks > 20
        assert longest < 0.5 * (time.monotonic() - started) + 0.5
        assert reader.intake.blocks == 750_000
        assert len(index) == 0
    finally:
        await asyncio.to_thread(reader.close)


@pytest.mark.parametrize("kv_tokens", [1 << 20, 40 * 32])
def test_prediction_is_exact_on_the_stand_in(kv_tokens: int):
    """The same as on a real vLLM (tests/engine/test_prediction.py), without one: events, model and usage agree to the token."""
    with StandIn(block_size=32, kv_tokens=kv_tokens, kv_events_port=0, max_model_len=1200) as worker:
        source = sources_of(httpx.get(worker.url + "/kv_event_sources").json(), worker.url)[0]
        model = httpx.get(worker.url + "/v1/models").json()["data"][0]["id"]
        traffic = Traffic(Pooled(worker.url, model, 32, 1200, source.endpoint, source.replay), blocks=kv_tokens // 32)
        try:
            assert traffic.reader is not None
            assert fresh(traffic.reader)
            mixed(traffic, sessions=4, rounds=3, seed=1)
            for tally in traffic.tally.values():
                assert tally.wrong == []
                assert tally.refused == []
                assert tally.calls >= 12
            lost = traffic.trackers["events"].sums.calls.lost
            assert set(lost) == (set() if kv_tokens > 2000 else {"eviction"})
            assert until(lambda: len(traffic.trackers["events"].index(worker.url) or ()) == worker.cached_blocks)
        finally:
            traffic.close()

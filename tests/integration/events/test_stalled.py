"""A gate whose events stop coming: the publisher hangs, dies, or our own reader hangs. Decisions go on as if nothing were."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from tests.integration.events.traffic import until
from tests.integration.gate.agents import TOOLS, Two, agent_call, conversation, settings
from warmgate.gate import Gate
from warmgate.prefix.events import EventReader, EventSource
from warmgate.standin import StandIn
from warmgate.standin.events import END
from warmgate.telemetry.protocol import ReadSeen, Silent
from warmgate.turn import Turn


def publish(events: str, replay: str, pipe: Connection) -> None:
    """A process that publishes a worker's events, and answers for what was missed, as the engine's own process does for vLLM."""
    import zmq

    context = zmq.Context()
    sub, pub, router = (context.socket(kind) for kind in (zmq.XSUB, zmq.XPUB, zmq.ROUTER))
    sub.connect(events)
    pipe.send((pub.bind_to_random_port("tcp://127.0.0.1"), router.bind_to_random_port("tcp://127.0.0.1")))
    threading.Thread(target=zmq.proxy, args=(sub, pub), daemon=True).start()
    while True:
        client, *asked = router.recv_multipart()
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(replay)
            dealer.send_multipart(asked)
            number = b""
            while number != END:
                frames = dealer.recv_multipart()
                number = frames[-2]
                router.send_multipart([client, *frames])


class Publisher:
    """The process, and where it publishes."""

    def __init__(self, source: EventSource) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        self.process = spawn.Process(target=publish, args=(source.endpoint, source.replay, theirs), daemon=True)
        self.process.start()
        assert ours.poll(60)
        first, second = ours.recv()
        self.source = EventSource(f"tcp://127.0.0.1:{first}", f"tcp://127.0.0.1:{second}")

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()


class Seen(Silent):
    """The reads of a gate, as a listener is told of them."""

    inline = True

    def __init__(self) -> None:
        self.reads: list[ReadSeen] = []

    def read(self, fact: ReadSeen) -> None:
        self.reads.append(fact)


@pytest.fixture
def made() -> Iterator[list[Publisher]]:
    publishers: list[Publisher] = []
    yield publishers
    for one in publishers:
        one.end()


@pytest.mark.parametrize("trouble", ["stalled", "killed", "reader hangs"])
async def test_decisions_wait_for_no_event(made: list[Publisher], trouble: str, monkeypatch: pytest.MonkeyPatch):
    """An engine that is busy, or a fault in our own reader, would stop the agents; figures may carry a doubt, decisions no delay.

    Shown by order, not by the clock: whole turns are decided, called and observed while the trouble lasts, and it ends only afterwards.
    """
    seen, free, hung = Seen(), threading.Event(), threading.Event()
    async with StandIn(block_size=32, kv_events_port=0) as worker, Gate(settings(worker), mounts=Two(), telemetry=[seen]) as gate:
        following = gate.means.watch.following
        assert following is not None
        direct = following.readers[worker.url]
        direct.close()
        publisher = await asyncio.to_thread(Publisher, direct.source)
        made.append(publisher)
        reader = following.readers[worker.url] = EventReader(publisher.source, direct.intake)
        reader.start()
        assert await asyncio.to_thread(until, lambda: reader.status.state == "fresh"), reader.status

        async def turns(session: str) -> int:
            """Requests that four turns cost, probes of the worker's health aside."""
            before = len(worker.requests)
            for messages in conversation(4, session):
                turn = Turn(session, messages, TOOLS)
                decision = await gate.decide(turn)
                await gate.observe(turn, await agent_call(decision, turn))
            return sum(request.method == "POST" for request in list(worker.requests)[before:])

        await turns("before")
        asked = await turns("calm")
        assert await asyncio.to_thread(until, lambda: len(reader.intake.index) == worker.cached_blocks)
        batches = reader.intake.batches
        if trouble == "stalled":
            publisher.signal(signal.SIGSTOP)
        elif trouble == "killed":
            publisher.end()
        else:
            take = reader.intake.take

            def hang(*batch: Any) -> Any:
                hung.set()
                free.wait(120)
                return take(*batch)

            monkeypatch.setattr(reader.intake, "take", hang)
        try:
            for number in range(3):
                assert await turns(f"trouble {number}") == asked
            assert reader.intake.batches == batches  # nothing was heard: the trouble lasted all the while
            assert hung.is_set() == (trouble == "reader hangs")
            assert all(fact.outcome == "answered" and len(fact.survival) == 2 for fact in seen.reads)
        finally:
            free.set()
            if trouble == "stalled":
                publisher.signal(signal.SIGCONT)
        if trouble == "killed":
            assert await asyncio.to_thread(until, lambda: reader.status.state == "gone"), reader.status
            await turns("after")
            assert "gone" in (seen.reads[-1].survival[0].expected.doubt or "")
        else:
            assert await asyncio.to_thread(until, lambda: len(reader.intake.index) == worker.cached_blocks)
            await turns("after")
            last = seen.reads[-1].survival[0].expected
            assert last.captured == last.reusable > 0

"""Faults of the connection itself, on real sockets, for the httpx path and the openai client's (httpx2) alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.engines.leaks import dead_port, nothing_left
from tests.integration.engines.scripted import Scripted, Sent, reply
from warmgate.engines import AskRequest, Chain, Deadline, Decisions, RoundTrip, SystemOne
from warmgate.engines.retry import RetryPolicy
from warmgate.errors import DeadlineExceeded, EngineError, MalformedAnswer, ServerFault, Unreachable
from warmgate.questions import Noul, Question

QUESTIONS: dict[str, Question] = {"q": Noul(instructions="Is a shell needed?")}
QUICK = RetryPolicy(attempts=2, first_s=0.001, longest_s=0.002)
ENGINES: dict[str, Callable[..., Any]] = {
    "systemone": SystemOne,
    "decisions": Decisions,
    "decisions-sglang": lambda url, **options: Decisions(url, dialect="sglang", **options),
    "round_trip": RoundTrip,
}
DEADLINE_S = 0.4


async def drip(_: Sent, writer: asyncio.StreamWriter) -> None:
    """A body that comes byte by byte, quicker than any read time-out."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
    for _byte in range(100000):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def drip_head(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100000):
        writer.write(b"x-%d: y\r\n" % number)
        await writer.drain()
        await asyncio.sleep(0.01)


async def silence(_: Sent, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def reset(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def half_a_body(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, {"answers": {}})[:-5])
    await writer.drain()
    writer.close()


async def garbage(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
    await writer.drain()
    writer.close()


async def huge(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _chunk in range(4096):
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def huge_announced(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")


async def huge_error(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n")
    for _chunk in range(4096):
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def crumbs(_: Sent, writer: asyncio.StreamWriter) -> None:
    """Chunks of one byte, thousands in each packet: reading what has arrived takes longer than the deadline allows."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n" * 1000)
        await writer.drain()
        await asyncio.sleep(0.002)


async def redirect(sent: Sent, writer: asyncio.StreamWriter) -> None:
    assert "elsewhere" not in sent.path
    writer.write(reply(307, b"", location="/elsewhere"))


async def empty(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, b""))


async def odd(_: Sent, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, {"choices": [], "answers": []}))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (drip, DeadlineExceeded),
        (drip_head, (DeadlineExceeded, MalformedAnswer)),
        (silence, DeadlineExceeded),
        (reset, Unreachable),
        (half_a_body, Unreachable),
        (garbage, MalformedAnswer),
        (huge, MalformedAnswer),
        (huge_announced, MalformedAnswer),
        (huge_error, MalformedAnswer),
        (crumbs, (DeadlineExceeded, MalformedAnswer)),
        (redirect, ServerFault),
        (empty, MalformedAnswer),
        (odd, MalformedAnswer),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_every_fault_of_the_wire_is_typed_in_time_and_leaves_nothing(name: str, script: Any, kind: Any):
    """An agent that waits for its gate must not hang with it, and a long-lived process must not leak with every fault."""
    seconds = 99.0
    with Scripted(script) as server:
        for _ in range(8):
            async with nothing_left():
                start = time.monotonic()
                async with ENGINES[name](server.url, model="m", policy=QUICK) as engine:
                    with pytest.raises(EngineError) as caught:
                        await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(DEADLINE_S))
                seconds = min(seconds, time.monotonic() - start)
            assert isinstance(caught.value, kind), caught.value
            if seconds <= DEADLINE_S + 0.05:
                break
    assert seconds <= DEADLINE_S + 0.05


@pytest.mark.parametrize("name", ENGINES)
async def test_a_dead_port_is_unreachable(name: str):
    async with nothing_left(), ENGINES[name](f"http://127.0.0.1:{dead_port()}", model="m", policy=QUICK) as engine:
        with pytest.raises(Unreachable):
            await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(2))


@pytest.mark.parametrize("name", ENGINES)
async def test_a_busy_server_is_asked_again_after_the_wait_it_names(name: str):
    came: list[float] = []

    async def script(_: Sent, writer: asyncio.StreamWriter) -> None:
        came.append(time.monotonic())
        writer.write(reply(429, {"error": "busy"}, retry_after_ms="60"))

    with Scripted(script) as server:
        async with ENGINES[name](server.url, model="m", policy=QUICK) as engine:
            with pytest.raises(EngineError) as caught:
                await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(5))
    assert caught.value.status == 429
    assert len(came) == 2  # the openai client's own retries are off
    assert came[1] - came[0] >= 0.06


@pytest.mark.parametrize("name", ENGINES)
async def test_the_environment_adds_no_key_no_organisation_and_no_proxy(name: str, monkeypatch: pytest.MonkeyPatch):
    """The openai client reads a dozen variables; a local worker must get none of what they say."""
    secrets = {
        "OPENAI_API_KEY": "sk-env",
        "OPENAI_ORG_ID": "org-env",
        "OPENAI_PROJECT_ID": "proj-env",
        "OPENAI_BASE_URL": "http://env.test",
    }
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    for variable, value in (secrets | proxies).items():
        monkeypatch.setenv(variable, value)
    with Scripted(empty) as server:
        async with ENGINES[name](server.url, model="m", policy=QUICK) as engine:
            with pytest.raises(MalformedAnswer):
                await engine.ask(AskRequest(questions=QUESTIONS, state="x", request_id="t-1"), deadline=Deadline(5))
        headers = str(server.sent[0].headers)
        assert "env" not in headers
        assert "authorization" not in server.sent[0].headers
        assert server.sent[0].headers["x-request-id"].startswith("t-1")
        assert server.sent[0].headers["accept-encoding"] == "identity"
        assert "content-encoding" not in server.sent[0].headers


@pytest.mark.parametrize("name", ENGINES)
async def test_connections_are_kept_between_calls(name: str):
    """Opening one costs a round trip, and TLS two more: at every turn of an agent."""
    opened: set[int] = set()

    async def script(_: Sent, writer: asyncio.StreamWriter) -> None:
        opened.add(id(writer))
        writer.write(reply(400, {"error": {"message": "no"}}))

    with Scripted(script) as server:
        async with ENGINES[name](server.url, model="m") as engine:
            for _ in range(5):
                with pytest.raises(EngineError):
                    await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(5))
    assert len(opened) == 1


async def test_a_cancelled_call_closes_its_connection():
    with Scripted(silence) as server:
        async with nothing_left(), SystemOne(server.url) as engine:
            task = asyncio.create_task(engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(30)))
            await asyncio.sleep(0.2)
            assert server.sent
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_a_chain_over_hanging_servers_ends_in_time_with_nothing_left():
    with Scripted(silence) as one, Scripted(drip) as two, Scripted(garbage) as three:
        best = 99.0
        for _ in range(8):
            async with nothing_left():
                start = time.monotonic()
                engines = [SystemOne(one.url), Decisions(two.url, model="m"), RoundTrip(three.url, model="m")]
                async with Chain(engines) as chain:
                    result = await chain.ask(AskRequest(questions=QUESTIONS, state="x", model="m"), deadline=Deadline(DEADLINE_S))
                best = min(best, time.monotonic() - start)
            assert result.outcome == "no_answer"
            assert [step.code for step in result.steps] == ["WG330", "WG330", "WG340"]
            if best <= DEADLINE_S + 0.05:
                break
        assert best <= DEADLINE_S + 0.05


@pytest.mark.parametrize("name", ["systemone", "decisions-sglang", "decisions", "round_trip"])
@pytest.mark.parametrize("after", [b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n", b"\r\nsome words\r\n\r\n"], ids=["a reply", "garbage"])
async def test_what_a_server_sends_beyond_its_reply_is_never_the_next_one(name: str, after: bytes):
    """Two replies to one request, as a confused proxy sends them: the second would be taken for the answer to another question."""
    refusal = reply(418, {"error": {"message": "first"}})

    async def twice(_: Sent, writer: asyncio.StreamWriter) -> None:
        writer.write(refusal + after)

    with Scripted(twice) as server:
        async with nothing_left(), ENGINES[name](server.url, model="m", policy=RetryPolicy(attempts=1)) as engine:
            for number in range(1, 4):
                with pytest.raises(ServerFault) as caught:
                    await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(5))
                assert (caught.value.status, caught.value.server_words) == (418, "first")
                assert len(server.sent) == number

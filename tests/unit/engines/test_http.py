"""One exchange with a worker: what is sent, what is read, what every fault becomes. httpx is stubbed at its transport (respx)."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
import respx
import structlog

from tests.unit.engines.support import QUICK, WORKER, request, vllm_reply
from warmgate.engines import Deadline, Http, SystemOne
from warmgate.engines.http import base_url
from warmgate.errors import (
    BadRequest,
    DeadlineExceeded,
    EngineError,
    MalformedAnswer,
    NotSupported,
    OptionError,
    Overloaded,
    ServerFault,
    Unreachable,
)

URL = f"{WORKER}/v1/systemone"


@respx.mock
async def test_the_request_is_plain_json_with_its_id_and_key_and_nothing_compressed():
    """vLLM answers 400 to compressed bodies; a compressed reply could unfold beyond any limit."""
    route = respx.post(URL).respond(json=vllm_reply())
    async with SystemOne(WORKER, api_key="sk-1", headers={"X-Session-ID": "s7"}) as engine:
        await engine.ask(request(request_id="turn-7"), deadline=Deadline(5))
    sent = route.calls.last.request
    assert sent.headers["x-request-id"] == "turn-7"
    assert sent.headers["authorization"] == "Bearer sk-1"
    assert sent.headers["x-session-id"] == "s7"
    assert sent.headers["accept-encoding"] == "identity"
    assert "content-encoding" not in sent.headers
    assert sent.headers["content-length"] == str(len(sent.content))


@respx.mock
async def test_a_full_queue_is_tried_again_and_a_501_is_not():
    route = respx.post(URL)
    route.side_effect = [httpx.Response(503, json={"error": {"message": "full"}}), httpx.Response(200, json=vllm_reply())]
    async with SystemOne(WORKER, policy=QUICK) as engine:
        assert (await engine.ask(request(), deadline=Deadline(5))).answers["route"].value == "web"
        assert route.call_count == 2
        route.side_effect = [httpx.Response(501, json={"error": {"message": "no"}})]
        with pytest.raises(NotSupported):
            await engine.ask(request(), deadline=Deadline(5))
    assert route.call_count == 3


@pytest.mark.parametrize(
    ("fault", "kind", "tries"),
    [
        (httpx.ConnectError("refused"), Unreachable, 3),
        (httpx.ConnectTimeout("slow"), Unreachable, 3),
        (httpx.ReadError("reset"), Unreachable, 3),
        (httpx.WriteError("broken pipe"), Unreachable, 3),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), Unreachable, 3),
        (httpx.RemoteProtocolError("peer closed connection without sending complete message body"), Unreachable, 3),
        (httpx.RemoteProtocolError("illegal status line"), MalformedAnswer, 1),
        (httpx.DecodingError("bad gzip"), MalformedAnswer, 1),
    ],
)
@respx.mock
async def test_every_connection_fault_is_typed(fault: Exception, kind: type[EngineError], tries: int):
    route = respx.post(URL).mock(side_effect=fault)
    async with SystemOne(WORKER, policy=QUICK) as engine:
        with pytest.raises(kind) as caught:
            await engine.ask(request(), deadline=Deadline(5))
    assert type(caught.value) is kind
    assert route.call_count == tries
    assert WORKER in str(caught.value)


@respx.mock
async def test_a_reply_that_is_too_long_is_not_read_to_its_end():
    read = 0

    async def endless():
        nonlocal read
        for _ in range(1000):
            read += 1
            yield b"x" * 1000

    respx.post(URL).mock(return_value=httpx.Response(200, stream=Body(endless)))
    async with SystemOne(WORKER, max_body=5000) as engine:
        with pytest.raises(MalformedAnswer, match="longer than 5000 bytes"):
            await engine.ask(request(), deadline=Deadline(5))
    assert read < 10


class Body(httpx.AsyncByteStream):
    def __init__(self, make) -> None:
        self._make = make

    async def __aiter__(self):
        async for chunk in self._make():
            yield chunk


@respx.mock
async def test_an_announced_length_beyond_the_limit_is_enough():
    respx.post(URL).mock(return_value=httpx.Response(200, headers={"content-length": "99999999"}, stream=Body(nothing)))
    async with SystemOne(WORKER) as engine:
        with pytest.raises(MalformedAnswer, match="longer"):
            await engine.ask(request(), deadline=Deadline(5))


async def nothing():
    yield b""


@respx.mock
async def test_a_body_that_drips_cannot_pass_the_deadline():
    """Each read is quick, so a read time-out would never fire."""

    async def drip():
        for _ in range(1000):
            await asyncio.sleep(0.01)
            yield b" "

    respx.post(URL).mock(return_value=httpx.Response(200, stream=Body(drip)))
    start = asyncio.get_running_loop().time()
    async with SystemOne(WORKER) as engine:
        with pytest.raises(DeadlineExceeded):
            await engine.ask(request(), deadline=Deadline(0.1))
    assert asyncio.get_running_loop().time() - start < 0.3


@respx.mock
async def test_redirects_are_not_followed():
    """The state is a conversation: it goes where the user said, nowhere else."""
    elsewhere = respx.post("http://elsewhere.test/v1/systemone").respond(json=vllm_reply())
    respx.post(URL).respond(307, headers={"location": "http://elsewhere.test/v1/systemone"})
    async with SystemOne(WORKER) as engine:
        with pytest.raises(ServerFault, match="redirects"):
            await engine.ask(request(), deadline=Deadline(5))
    assert not elsewhere.called


@respx.mock
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    route = respx.post(URL).respond(json=vllm_reply())
    async with SystemOne(WORKER) as engine:
        await engine.ask(request(), deadline=Deadline(5))
    assert route.call_count == 1


@respx.mock
async def test_neither_key_nor_state_nor_the_servers_words_reach_a_log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    route = respx.post(URL)
    route.side_effect = [
        httpx.Response(503, text="you sent: my secret state"),
        httpx.Response(200, json=vllm_reply()),
        httpx.Response(400, json={"error": {"message": "cannot read: my secret state"}}),
    ]
    async with SystemOne(WORKER, api_key="sk-very-secret", policy=QUICK) as engine:
        await engine.ask(request(state="my secret state"), deadline=Deadline(5))
        with pytest.raises(BadRequest) as caught:
            await engine.ask(request(state="my secret state"), deadline=Deadline(5))
    assert "sk-very-secret" not in str(caught.value) + repr(engine)
    ours = [record for record in caplog.records if record.name == "warmgate"]
    assert [record.getMessage() for record in ours] == ["engine.retry", "engine.answered", "engine.failed"]
    assert {getattr(record, "request_id", None) for record in ours} != {None}
    text = " ".join(str(vars(record)) for record in ours)
    assert "secret" not in text


@respx.mock
async def test_an_application_that_configured_structlog_gets_the_events_there():
    respx.post(URL).respond(json=vllm_reply())
    seen: list[dict[str, object]] = []

    def keep(_logger: object, _name: str, event: dict[str, object]) -> dict[str, object]:
        seen.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    try:
        async with SystemOne(WORKER) as engine:
            await engine.ask(request(), deadline=Deadline(5))
    finally:
        structlog.reset_defaults()
    assert seen[0]["event"] == "engine.answered"
    assert seen[0]["questions"] == 3


@respx.mock
async def test_without_a_logging_setup_nothing_is_printed(capsys: pytest.CaptureFixture[str]):
    """A library that prints breaks command lines and terminal programs."""
    respx.post(URL).mock(side_effect=httpx.ConnectError("refused"))
    async with SystemOne(WORKER, policy=QUICK) as engine:
        with pytest.raises(Unreachable):
            await engine.ask(request(), deadline=Deadline(5))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("https://h/gateway/v1/", "https://h/gateway"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_urls_are_taken_with_and_without_v1(given: str, found: str):
    assert base_url(given) == found


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "h:8000",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h?x=1",
        "http://h#x",
        "http://h:99999",
        "http://[::1",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_workers_url_is_refused(bad: str):
    with pytest.raises(OptionError):
        Http(bad)


@pytest.mark.parametrize("key", ["", "a\nb", "ключ", " sk-padded"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str):
    with pytest.raises(OptionError) as caught:
        Http(WORKER, api_key=key)
    assert not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"x": "a\r\nY: z"}, {"": "x"}, {"x": "ключ"}])
def test_headers_that_http_cannot_carry_are_refused(headers: dict[str, str]):
    with pytest.raises(OptionError):
        Http(WORKER, headers=headers)


@respx.mock
async def test_a_call_cancelled_from_outside_stays_a_cancellation():
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    respx.post(URL).mock(side_effect=hang)
    async with SystemOne(WORKER) as engine:
        task = asyncio.create_task(engine.ask(request(), deadline=Deadline(30)))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@respx.mock
async def test_overload_keeps_what_the_server_asked_to_wait():
    respx.post(URL).respond(429, headers={"Retry-After": "7"}, json={"error": "slow down"})
    async with SystemOne(WORKER) as engine:
        with pytest.raises(Overloaded) as caught:
            await engine.ask(request(), deadline=Deadline(0.5))
    assert caught.value.retry_after_s == 7.0

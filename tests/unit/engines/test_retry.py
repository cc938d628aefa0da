"""When a request is sent again: never where it cannot help, never past the deadline."""

from __future__ import annotations

import time
from email.utils import formatdate

import httpx
import pytest

from warmgate.engines.deadline import Deadline
from warmgate.engines.retry import RetryPolicy, retry_after_s, retrying
from warmgate.errors import BadRequest, DeadlineExceeded, EngineError, NotSupported, OptionError, Overloaded, Unreachable

FAST = RetryPolicy(attempts=4, first_s=0.001, longest_s=0.002)


class Server:
    """Fails as told, then answers."""

    def __init__(self, *faults: EngineError) -> None:
        self.faults = list(faults)
        self.calls: list[float] = []

    async def __call__(self) -> str:
        self.calls.append(time.monotonic())
        if self.faults:
            raise self.faults.pop(0)
        return "answer"


async def run(server: Server, seconds: float = 5.0, policy: RetryPolicy = FAST) -> str:
    return await retrying(server, deadline=Deadline(seconds), policy=policy, worker="http://w", request_id="r")


async def test_a_passing_fault_is_tried_again():
    server = Server(Overloaded("full"), Unreachable("gone"))
    assert await run(server) == "answer"
    assert len(server.calls) == 3


@pytest.mark.parametrize("error", [BadRequest("no"), NotSupported("no"), Unreachable("no", retryable=False)])
async def test_a_final_fault_is_not(error: EngineError):
    server = Server(error)
    with pytest.raises(type(error)):
        await run(server)
    assert len(server.calls) == 1


async def test_tries_are_counted():
    server = Server(*[Overloaded("full")] * 9)
    with pytest.raises(Overloaded):
        await run(server)
    assert len(server.calls) == 4


async def test_the_wait_a_server_asks_for_is_kept():
    server = Server(Overloaded("full", retry_after_s=0.08))
    assert await run(server) == "answer"
    assert server.calls[1] - server.calls[0] >= 0.08


async def test_a_wait_that_would_meet_the_deadline_is_not_begun():
    """The time that is left belongs to the next engine."""
    server = Server(Overloaded("full", retry_after_s=30.0))
    start = time.monotonic()
    with pytest.raises(Overloaded):
        await run(server, seconds=0.5)
    assert time.monotonic() - start < 0.25
    assert len(server.calls) == 1


async def test_waits_are_jittered_over_their_whole_range():
    """Clients that were refused together must not come back together."""
    policy = RetryPolicy(attempts=2, first_s=0.02, longest_s=0.02)
    waits: list[float] = []
    for _ in range(25):
        server = Server(Overloaded("full"))
        await run(server, policy=policy)
        waits.append(server.calls[1] - server.calls[0])
    assert min(waits) < 0.012
    assert max(waits) - min(waits) > 0.005


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({"retry-after-ms": "soon", "Retry-After": "9"}, 9.0),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "1e30"}, None),
        ({"Retry-After": "tomorrow"}, None),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_the_headers_that_ask_for_a_wait(headers: dict[str, str], seconds: float | None):
    assert retry_after_s(httpx.Headers(headers)) == seconds


def test_a_date_is_a_wait_too():
    found = retry_after_s(httpx.Headers({"Retry-After": formatdate(time.time() + 30, usegmt=True)}))
    assert found is not None
    assert 27 < found <= 30


async def test_a_passed_deadline_raises_before_anything_runs():
    ran = False
    with pytest.raises(DeadlineExceeded):
        async with Deadline(-1).enforce("http://w"):
            ran = True
    assert not ran


async def test_the_deadline_cuts_whatever_runs_and_leaves_other_timeouts_alone():
    import asyncio

    start = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="within 30 ms"):
        async with Deadline(0.03).enforce("http://w"):
            await asyncio.sleep(5)
    assert time.monotonic() - start < 0.5
    with pytest.raises(TimeoutError):
        async with Deadline(5).enforce("http://w"):
            raise TimeoutError("of somebody else")


def test_a_deadline_is_a_finite_number_and_the_earlier_of_two_wins():
    for bad in (float("nan"), float("inf")):
        with pytest.raises(OptionError):
            Deadline(bad)
    early = Deadline(1)
    assert early.within(100) is early
    assert early.within(0.1).remaining() <= 0.1
    assert Deadline(0).passed

"""The sync face: the same engines for code that cannot await, wherever it stands."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time

import pytest
import respx

from tests.unit.engines.support import QUESTIONS, WORKER, request, vllm_reply
from warmgate.engines import Chain, Deadline, Portal, SystemOne, get_portal
from warmgate.errors import DeadlineExceeded, OptionError

URL = f"{WORKER}/v1/systemone"


@respx.mock
def test_plain_code_asks_and_gets_the_same_answers():
    respx.post(URL).respond(json=vllm_reply())
    engine = SystemOne(WORKER)
    assert list(engine.ask_sync(request(), deadline=Deadline(5)).answers) == list(QUESTIONS)
    assert Chain([engine]).ask_sync(request(), deadline=Deadline(5)).outcome == "answered"
    get_portal().run(engine.aclose())


@respx.mock
async def test_it_works_in_the_thread_of_a_running_loop():
    """A sync tool called by an async agent stands there; ``asyncio.run`` would raise."""
    respx.post(URL).respond(json=vllm_reply())
    engine = SystemOne(WORKER)
    assert engine.ask_sync(request(), deadline=Deadline(5)).answers["route"].value == "web"
    assert (await engine.ask(request(), deadline=Deadline(5))).answers["route"].value == "web"
    get_portal().run(engine.aclose())
    await engine.aclose()


@respx.mock
def test_threads_share_it():
    respx.post(URL).respond(json=vllm_reply())
    engine = SystemOne(WORKER)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(engine.ask_sync(request(), deadline=Deadline(5)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 8
    get_portal().run(engine.aclose())


def test_errors_come_through_as_they_are():
    engine = SystemOne(WORKER)
    with pytest.raises(DeadlineExceeded):
        engine.ask_sync(request(), deadline=Deadline(0))


async def _wait() -> None:
    await asyncio.sleep(0.01)


def test_a_sync_call_on_the_portals_own_loop_is_refused_instead_of_hanging():
    own = Portal()

    async def inside() -> None:
        own.run(_wait())

    with pytest.raises(OptionError, match="never end"):
        own.run(inside())
    own.close()


def test_closing_ends_the_thread_and_cancels_what_runs_and_it_starts_again():
    own = Portal()
    own.run(_wait())
    before = {thread.name for thread in threading.enumerate()}
    assert "warmgate-portal" in before
    ended = threading.Event()

    async def linger() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    cancelled: list[BaseException] = []

    def wait() -> None:
        try:
            own.run(linger())
        except concurrent.futures.CancelledError as error:
            cancelled.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    thread = own._thread
    own.close()
    waiting.join(5)
    assert ended.is_set()
    assert cancelled
    assert thread is not None
    assert not thread.is_alive()
    own.run(_wait())
    own.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_a_loop_of_its_own():
    """Servers that fork workers after start-up would hang in the first sync call."""
    own = Portal()
    own.run(_wait())
    child = os.fork()
    if child == 0:
        try:
            own.run(_wait())
            os._exit(0)
        except BaseException:  # noqa: BLE001
            os._exit(1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hung")
    own.close()

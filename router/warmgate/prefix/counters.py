"""Cached tokens by the movement of a worker's own counters: the only source for reads whose answers report none.

A delta is exact when nothing else ran between two scrapes, and worthless when something did. So it is refused, with the reason, unless the
worker was idle before and after and counted exactly the requests and prompt tokens that we sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
PROMPT = "vllm:prompt_tokens_total"
DONE = "vllm:request_success_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
BORN = "process_start_time_seconds"

TRIES, PAUSE_S = 10, 0.05
"""How long to wait for the counters to take in what was answered: they move with the engine's step."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one scrape said. Counts are tokens, ``done`` and ``busy`` requests; ``None`` where the series is missing."""

    queries: int | None
    hits: int | None
    prompt: int | None
    done: int | None
    busy: int
    born: float | None = None

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """From a page of ``/metrics``."""
        from warmgate.doctor.exposition import Metrics

        page = Metrics(text)

        def whole(name: str) -> int | None:
            total = page.total(name)
            return None if total is None else round(total)

        return cls(whole(QUERIES), whole(HITS), whole(PROMPT), whole(DONE), (whole(RUNNING) or 0) + (whole(WAITING) or 0), page.total(BORN))


@dataclass(frozen=True, slots=True)
class Delta:
    """What our own requests moved: tokens looked up and found. ``queries`` 0 for an engine that does not read its cache."""

    queries: int
    hits: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The counters are no source here."""

    reason: str


def judge(before: Snapshot, after: Snapshot, *, prompt_tokens: int | None, requests: int) -> Delta | Refused:
    """Whether two scrapes around our own requests say what these moved.

    Args:
        before: Taken before they were sent.
        after: Taken after all were answered.
        prompt_tokens: Tokens of all their prompts, where we know; ``None`` trusts the requests counted alone.
        requests: How many engine requests they were.
    """
    if before.queries is None or before.hits is None or after.queries is None or after.hits is None:
        return Refused("the worker shows no prefix cache counters")
    if before.born != after.born or after.queries < before.queries or after.hits < before.hits:
        return Refused("the worker restarted in between")
    if before.busy:
        return Refused(f"{before.busy} requests were in flight before")
    if after.busy:
        return Refused(f"{after.busy} requests were in flight after")
    queries, hits = after.queries - before.queries, after.hits - before.hits
    if before.done is not None and after.done is not None and after.done - before.done != requests:
        return Refused(f"{after.done - before.done} requests ended, {requests} were ours")
    if (
        prompt_tokens is not None
        and before.prompt is not None
        and after.prompt is not None
        and after.prompt - before.prompt != prompt_tokens
    ):
        return Refused(f"{after.prompt - before.prompt:,} prompt tokens were processed, {prompt_tokens:,} were ours")
    if prompt_tokens is not None and queries not in (0, prompt_tokens):
        return Refused(f"{queries:,} tokens were looked up, {prompt_tokens:,} were ours")
    if hits > queries:
        return Refused("more tokens found than looked up")
    return Delta(queries, hits)


class Window:
    """One measurement under way. Set :attr:`prompt_tokens` and :attr:`requests` before it closes; then read :attr:`result`."""

    def __init__(self) -> None:
        self.prompt_tokens: int | None = None
        self.requests = 1
        self.result: Delta | Refused = Refused("the measurement was not finished")


class CounterSource:
    """The counters of one worker as a source.

    Only one window is open at a time; a second one, and one while other requests of ours are in flight, is refused at once.

    Args:
        scrape: Fetches the text of ``/metrics``; whatever it raises is a reason to refuse.
        in_flight: Requests that this process has on the worker besides the measured ones.
    """

    def __init__(self, scrape: Callable[[], Awaitable[str]], in_flight: Callable[[], int] = lambda: 0) -> None:
        self._scrape = scrape
        self._in_flight = in_flight
        self._open = False

    @asynccontextmanager
    async def window(self) -> AsyncGenerator[Window, None]:
        """Measure what is sent inside. Never raises of its own; the block's exceptions pass through."""
        window = Window()
        if self._open or self._in_flight():
            window.result = Refused("other requests of this process are in flight")
            yield window
            return
        self._open = True
        try:
            before = await self._read()
            if isinstance(before, Snapshot) and before.busy:
                before = Refused(f"{before.busy} requests were in flight before")
            yield window
            window.result = before if isinstance(before, Refused) else await self._settle(before, window)
        finally:
            self._open = False

    async def _settle(self, before: Snapshot, window: Window) -> Delta | Refused:
        result: Delta | Refused = window.result
        for attempt in range(TRIES):
            after = await self._read()
            if isinstance(after, Refused):
                return after
            if self._in_flight():
                return Refused("other requests of this process are in flight")
            result = judge(before, after, prompt_tokens=window.prompt_tokens, requests=window.requests)
            if isinstance(result, Delta):
                return result
            if attempt + 1 < TRIES and not _overshot(before, after, window):
                await asyncio.sleep(PAUSE_S)
            else:
                break
        return result

    async def _read(self) -> Snapshot | Refused:
        try:
            return Snapshot.of(await self._scrape())
        except Exception as fault:  # noqa: BLE001 -- a source that fails is refused, not a reason to fail a decision
            return Refused(f"its metrics cannot be read ({type(fault).__name__})")


def _overshot(before: Snapshot, after: Snapshot, window: Window) -> bool:
    """Whether waiting cannot help: more has happened than we sent."""
    return before.done is not None and after.done is not None and after.done - before.done > window.requests

"""When the worker's counters may be believed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from warmgate.prefix.counters import CounterSource, Delta, Refused, Snapshot, judge
from warmgate.standin.metrics import Counters

BEFORE = Snapshot(queries=1000, hits=500, prompt=1000, done=10, busy=0, born=1.0)
AFTER = replace(BEFORE, queries=1300, hits=700, prompt=1300, done=13)


def test_exact_when_alone():
    assert judge(BEFORE, AFTER, prompt_tokens=300, requests=3) == Delta(300, 200)
    assert judge(BEFORE, AFTER, prompt_tokens=None, requests=3) == Delta(300, 200)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (replace(BEFORE, busy=1), AFTER, "in flight before"),
        (BEFORE, replace(AFTER, busy=2), "in flight after"),
        (BEFORE, replace(AFTER, done=14), "4 requests ended, 3 were ours"),
        (BEFORE, replace(AFTER, prompt=1301), "301 prompt tokens"),
        (BEFORE, replace(AFTER, queries=1301), "301 tokens were looked up"),
        (BEFORE, replace(AFTER, born=2.0), "restarted"),
        (BEFORE, replace(AFTER, queries=10), "restarted"),
        (replace(BEFORE, queries=None), AFTER, "no prefix cache counters"),
        (BEFORE, replace(AFTER, hits=900), "more tokens found"),
    ],
)
def test_refused_when_anything_else_ran(before: Snapshot, after: Snapshot, why: str):
    """Somebody else's hits would be booked as ours."""
    found = judge(before, after, prompt_tokens=300, requests=3)
    assert isinstance(found, Refused)
    assert why in found.reason


def test_an_engine_that_does_not_look():
    """Models that never read their cache query nothing: that is a measurement, of 0."""
    assert judge(BEFORE, replace(AFTER, queries=1000, hits=500), prompt_tokens=300, requests=3) == Delta(0, 0)


def page(c: Counters) -> str:
    done = "".join(f'vllm:request_success_total{{engine="0",finished_reason="{why}"}} {n}\n' for why, n in c.finished.items())
    return (
        f'vllm:num_requests_running{{engine="0"}} 0.0\nvllm:prompt_tokens_total{{engine="0"}} {c.prompt_tokens}\n{done}'
        f'vllm:prefix_cache_queries_total{{engine="0"}} {c.queries}\nvllm:prefix_cache_hits_total{{engine="0"}} {c.hits}\n'
    )


class Worker:
    def __init__(self) -> None:
        self.counters = Counters()
        self.late = 0

    async def scrape(self) -> str:
        if self.late:
            self.late -= 1
            return page(Counters())
        return page(self.counters)

    def run(self, tokens: int, hits: int) -> None:
        c = self.counters
        c.queries += tokens
        c.prompt_tokens += tokens
        c.hits += hits
        c.finished["length"] += 1


async def test_a_window():
    worker = Worker()
    source = CounterSource(worker.scrape)
    async with source.window() as window:
        worker.run(100, 64)
        worker.late = 2  # counters may move a moment after the reply
        window.prompt_tokens = 100
    assert window.result == Delta(100, 64)


async def test_a_window_is_refused_beside_another():
    worker = Worker()
    source = CounterSource(worker.scrape)
    async with source.window() as one:
        async with source.window() as two:
            worker.run(10, 0)
        one.prompt_tokens = 10
    assert isinstance(two.result, Refused)
    assert one.result == Delta(10, 0)
    async with CounterSource(worker.scrape, lambda: 1).window() as three:
        pass
    assert isinstance(three.result, Refused)


async def test_somebody_else_meanwhile():
    worker = Worker()
    async with CounterSource(worker.scrape).window() as window:
        worker.run(10, 0)
        worker.run(20, 16)
        window.prompt_tokens = 10
    assert isinstance(window.result, Refused)


async def test_a_worker_without_metrics_is_refused_not_raised():
    """A broken metrics page must not break a decision."""

    async def scrape() -> str:
        raise OSError("connection refused")

    async with CounterSource(scrape).window() as window:
        pass
    assert window.result == Refused("its metrics cannot be read (OSError)")

    async def html() -> str:
        return "<html>not found</html>"

    async with CounterSource(html).window() as window:
        pass
    assert isinstance(window.result, Refused)


async def test_a_cancelled_window_can_be_opened_again():
    worker = Worker()
    source = CounterSource(worker.scrape)
    with pytest.raises(asyncio.CancelledError):
        async with source.window():
            raise asyncio.CancelledError
    async with source.window() as window:
        worker.run(10, 0)
        window.prompt_tokens = 10
    assert window.result == Delta(10, 0)

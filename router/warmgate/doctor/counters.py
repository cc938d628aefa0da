"""The worker's own counters of its prefix cache, read around a request while nothing else is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from warmgate.doctor.cache import scrape
from warmgate.doctor.exposition import Metrics
from warmgate.doctor.visit import Visit
from warmgate.errors import EngineError

T = TypeVar("T")

_TRIES, _PAUSE_S = 10, 0.05
"""How long to wait for the counters to take in a request that was answered: they move with the engine's step, mostly before the reply."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Tokens looked up in the cache, and found there."""

    queries: int
    hits: int


async def around(visit: Visit, work: Callable[[], Awaitable[T]], tokens: Callable[[T], int | None]) -> tuple[T, Delta | None]:
    """Run ``work`` and say how the counters moved.

    Args:
        visit: The endpoint. Where requests scatter, counters are not used: each scrape may be of another worker.
        work: The request.
        tokens: The prompt tokens of its result, or None.

    Returns:
        The result, and the movement: None where it cannot be had, or where it shows that others used the worker meanwhile.

    Raises:
        EngineError: From ``work``.
    """
    before = await _quiet(visit)
    result = await work()
    if before is None:
        return result, None
    sent = tokens(result)
    delta = Delta(0, 0)
    for attempt in range(_TRIES):
        after = await _read(visit)
        if after is None:
            return result, None
        delta = Delta(round(_queries(after) - _queries(before)), round(_hits(after) - _hits(before)))
        if sent is None or delta.queries >= sent:
            break
        if attempt + 1 < _TRIES:
            await asyncio.sleep(_PAUSE_S)
    mine = delta.queries in (0, sent) and 0 <= delta.hits <= delta.queries
    return result, delta if mine else None


async def _quiet(visit: Visit) -> Metrics | None:
    """The counters, if they are this worker's and it is idle."""
    if visit.metrics is None or visit.scattered:
        return None
    found = await _read(visit)
    if found is None or found.total("vllm:prefix_cache_queries_total") is None:
        return None
    busy = (found.total("vllm:num_requests_running") or 0) + (found.total("vllm:num_requests_waiting") or 0)
    return None if busy else found


async def _read(visit: Visit) -> Metrics | None:
    try:
        return await scrape(visit)
    except EngineError:
        return None


def _queries(metrics: Metrics) -> float:
    return metrics.total("vllm:prefix_cache_queries_total") or 0.0


def _hits(metrics: Metrics) -> float:
    return metrics.total("vllm:prefix_cache_hits_total") or 0.0

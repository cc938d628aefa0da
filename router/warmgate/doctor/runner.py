"""Examining endpoints: which checks, in which order, under one deadline.

Checks of one stage run side by side. Stages that compute or read counters run alone, across all endpoints: two of them may lead to the same
worker. A check whose endpoint does not answer, or whose ground is missing, is skipped with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from warmgate.doctor import access, cache, clock, cors, decisions, identity, reachability, reuse, topology, trial
from warmgate.doctor.check import Check, skipped
from warmgate.doctor.report import EndpointReport, Report
from warmgate.doctor.visit import Options, Visit
from warmgate.engines.deadline import Deadline
from warmgate.engines.http import base_url
from warmgate.errors import DeadlineExceeded, EngineError, OptionError, one_line

Run: TypeAlias = Callable[[Visit], Awaitable[Check]]

_FREE: tuple[dict[str, Run], ...] = (
    {"health": identity.health, "version": identity.version, "models": identity.models},
    {"metrics": cache.metrics, "kv_events": cache.kv_events, "api_key": access.api_key, "gateway": topology.gateway},
    {"one_worker": topology.one_worker, "kv_cache": cache.kv_cache},
)
_ALONE: tuple[dict[str, Run], ...] = (
    {"route": decisions.route},
    {"strategy": decisions.strategy, "label_mass": decisions.label_mass, "request_id": decisions.request_ids},
    {"compression": decisions.compression},
    {"reads_cached": reuse.reads_cached},
)
_LAST: dict[str, Run] = {
    "prefix_caching": cache.prefix_caching,
    "shorter_prefix": reuse.shorter_prefix,
    "cached_tokens": reuse.cached_tokens,
    "clock": clock.clock,
}

CHECKS = (
    reachability.NAME,
    "health",
    "version",
    "models",
    "gateway",
    "one_worker",
    "api_key",
    "cors_stranger",
    "cors_origin",
    "route",
    "strategy",
    "label_mass",
    "request_id",
    "compression",
    "metrics",
    "prefix_caching",
    "kv_cache",
    "reads_cached",
    "shorter_prefix",
    "cached_tokens",
    "kv_events",
    "clock",
)
"""Every check, in the order of a report. ``cors_origin`` comes once for each origin asked for."""

_OF_ANY_SERVER = frozenset({"health", "version", "models", "clock"})
"""Checks that say something about a server that is no model server."""


async def examine(urls: Sequence[str], options: Options, *, seconds: float) -> Report:
    """Examine endpoints.

    Args:
        urls: Base URLs, with or without ``/v1``.
        options: What to examine for.
        seconds: For all of it.

    Raises:
        OptionError: A URL, an origin, the key or the time is not one.
    """
    if not 0 < seconds < 1e6:
        raise OptionError(f"{seconds!r} is not a time", where="--timeout", mend="give seconds, more than 0")
    for origin in options.origins:
        cors.check_origin(origin)
    deadline = Deadline(seconds)
    visits = [Visit(url, options, deadline) for url in dict.fromkeys(map(base_url, urls))]
    alone = asyncio.Lock()
    return Report(endpoints=list(await asyncio.gather(*(_examine(visit, alone) for visit in visits))))


async def _examine(visit: Visit, alone: asyncio.Lock) -> EndpointReport:
    begun = time.monotonic()
    done: list[Check] = []
    try:
        done.append(await reachability.reachable(visit))
        if done[0].status == "fail":
            done += [skipped(name, "the endpoint does not answer") for name in _names(visit)[1:]]
        else:
            await _stages(visit, alone, done)
    finally:
        await visit.aclose()
    return EndpointReport(
        url=visit.url,
        checks=[_without(check, visit.options.api_key) for check in _in_order(done)],
        facts=visit.facts,
        requests=visit.tally.requests,
        tokens_sent=visit.tally.tokens,
        seconds=round(time.monotonic() - begun, 3),
    )


async def _stages(visit: Visit, alone: asyncio.Lock, done: list[Check]) -> None:
    for stage in _FREE:
        done += await _stage(visit, stage)
    done += await _stage(visit, {"cors_stranger": cors.stranger})
    for origin in visit.options.origins:
        done += await _stage(visit, {"cors_origin": partial(cors.origin, origin=origin)})
    async with alone:
        for stage in _ALONE:
            done += await _stage(visit, stage)
        if _ground(visit, "shorter_prefix") is None:
            await trial.experiment(visit)
        done += await _stage(visit, _LAST)


async def _stage(visit: Visit, checks: dict[str, Run]) -> list[Check]:
    return list(await asyncio.gather(*(_one(visit, name, run) for name, run in checks.items())))


async def _one(visit: Visit, name: str, run: Run) -> Check:
    missing = _ground(visit, name)
    if missing is not None:
        return skipped(name, missing)
    if visit.deadline.passed and name != "clock":
        return skipped(name, f"the time was up ({visit.deadline.seconds:g} s)", mend="allow more with --timeout")
    try:
        return await run(visit)
    except DeadlineExceeded:
        if visit.deadline.passed:
            return skipped(name, f"the time was up ({visit.deadline.seconds:g} s)", mend="allow more with --timeout")
        return skipped(name, "no answer in time", mend="is the server busy or hanging? see its log")
    except EngineError as error:
        return skipped(name, f"no answer: {error.what}", mend=error.mend)


_NEEDS_MODEL = frozenset({"route", "compression"})
_NEEDS_KEY = frozenset({"route", "strategy", "label_mass", "request_id", "compression", "reads_cached", "shorter_prefix", "cached_tokens"})


def _ground(visit: Visit, name: str) -> str | None:
    """Why a check makes no sense here, or None."""
    if visit.facts.server == "none" and name not in _OF_ANY_SERVER:
        return "not a model server"
    if visit.denied and name in _NEEDS_KEY:
        return "closed without the right API key; see api_key"
    if visit.facts.model is None and name in _NEEDS_MODEL:
        return "no model to ask; see models"
    return None


def _names(visit: Visit) -> list[str]:
    """The checks of this visit, in order."""
    return [name for name in CHECKS if name != "cors_origin" or visit.options.origins]


def _in_order(checks: Sequence[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: CHECKS.index(check.name))


def _without(check: Check, secret: str | None) -> Check:
    """The check in one printable line a field, and without the API key, should a server have sent it back."""

    def clean(text: str | None) -> str | None:
        if text is None:
            return None
        return one_line(text.replace(secret, "***") if secret else text, 600)

    return msgspec.structs.replace(check, seen=clean(check.seen) or "", mend=clean(check.mend), where=clean(check.where))

"""Does a shared prefix hit on this worker, and what has to be done for it? Learnt by the doctor's experiment, kept for a while.

With full attention every whole block of a shared prefix hits. Sliding-window and recurrent layers keep state only where a request ended, so
that a prompt which shares a *proper* prefix of an earlier one finds nothing, unless that prefix was sent on its own before (*planted*). A
pooling model reads no cache at all. The model's name proves none of this: it is measured, with prompts of a few blocks that nobody else has
(:mod:`warmgate.doctor.trial`), in the background when a worker is first used, again after :data:`TTL_S` and after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from warmgate.engines.deadline import Deadline
from warmgate.engines.events import emit
from warmgate.engines.loops import PerLoop
from warmgate.errors import EngineError, one_line

Hits: TypeAlias = Literal["first", "planted", "never", "unread", "off", "unknown"]
"""When a prompt that shares a proper prefix with an earlier one finds it: at once; only if the prefix was sent on its own before; not even
then. ``unread``: decisions look into no cache. ``off``: there is none. ``unknown``: not yet measured, or not measurable."""

TTL_S = 1800.0
"""How long a finding holds. Flags change with restarts, which are noticed; this is for those that are not."""

RETRY_S = 60.0
"""Until the next try where nothing was found out."""

PROBE_S = 30.0
"""Longest experiment. Six short prompts; a busy worker queues them."""

MISSES = 3
"""Planted prompts in a row that found nothing, until planting is given up on a worker."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one worker and model.

    Attributes:
        hits: See :data:`Hits`.
        why: One sentence.
        mend: What would change it.
        unit: Tokens that hits are a multiple of, as measured or stated.
        max_model_len: Tokens a prompt and its reply may have.
        asked: Prompts and decisions that finding out cost.
    """

    hits: Hits
    why: str
    mend: str | None = None
    unit: int | None = None
    max_model_len: int | None = None
    asked: int = 0

    @property
    def pays(self) -> bool:
        """Whether aligned states save anything, as far as is known."""
        return self.hits in ("first", "planted", "unknown")

    @property
    def plant(self) -> bool:
        """Whether the shared prefix has to be sent on its own first."""
        return self.hits == "planted"


UNKNOWN = Finding("unknown", "whether a shorter prefix hits on this worker is not known yet: it is being measured")

Learn: TypeAlias = Callable[[str, str, Mapping[str, str]], Awaitable[Finding]]


@dataclass(slots=True)
class _Known:
    finding: Finding
    until: float
    restarts: int
    missed: int = 0


class Findings:
    """What is known of all workers. Usable from several event loops; each worker is measured by one of them at a time.

    Args:
        learn: Measures a worker: base URL, model and headers to send along.
        ttl_s: See :data:`TTL_S`.
        clock: Seconds; a test hands in its own.
    """

    def __init__(self, learn: Learn, *, ttl_s: float = TTL_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._learn = learn
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Known] = {}
        self._learning: set[tuple[str, str]] = set()
        self._tasks: PerLoop[set[asyncio.Task[None]]] = PerLoop(set)

    async def of(self, worker: str, model: str, headers: Mapping[str, str], *, restarts: int = 0, wait_s: float = 0.0) -> Finding:
        """The finding, at once or after at most ``wait_s`` seconds; the measuring goes on beside the call.

        A finding that has only grown old stays in force until it is replaced; one from before a restart does not.
        """
        key = (worker, model)
        with self._lock:
            known = self._known.get(key)
            restarted = known is not None and known.restarts != restarts
            due = (known is None or restarted or self._clock() >= known.until) and key not in self._learning
            if due:
                self._learning.add(key)
        if due:
            task = asyncio.create_task(self._measure(key, headers, restarts), name="warmgate-probe")
            tasks = self._tasks.get()
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if (known is None or restarted) and wait_s > 0:
                await asyncio.wait([task], timeout=wait_s)
                known, restarted = self._known.get(key), False
        return known.finding if known is not None and not restarted else UNKNOWN

    def missed(self, worker: str, model: str) -> Finding | None:
        """Note that a prompt whose prefix was planted found nothing. The new finding, where this one was once too often."""
        with self._lock:
            known = self._known.get((worker, model))
            if known is None or not known.finding.plant:
                return None
            known.missed += 1
            if known.missed < MISSES:
                return None
            known.finding = replace(
                known.finding,
                hits="never",
                why=f"{known.missed} prompts in a row found nothing of a prefix planted for them",
                mend=known.finding.mend or "start vLLM with --prefix-match-unit 32, so that hits land inside a long block",
            )
            return known.finding

    def found(self, worker: str, model: str) -> None:
        """Note that a planted prefix was found."""
        with self._lock:
            known = self._known.get((worker, model))
            if known is not None:
                known.missed = 0

    def all(self) -> dict[tuple[str, str], Finding]:
        """(worker, model) → finding, as of now."""
        with self._lock:
            return {key: known.finding for key, known in self._known.items()}

    async def _measure(self, key: tuple[str, str], headers: Mapping[str, str], restarts: int) -> None:
        try:
            finding = await self._learn(*key, headers)
        except EngineError as fault:
            finding = Finding("unknown", f"whether a shorter prefix hits could not be measured: {fault.what}")
        except Exception as fault:  # noqa: BLE001 -- measuring is a service to the decision and must not end it
            finding = Finding("unknown", f"whether a shorter prefix hits could not be measured: {one_line(repr(fault), 160)}")
        finally:
            with self._lock:
                self._learning.discard(key)
        for_s = RETRY_S if finding.hits == "unknown" else self._ttl_s
        with self._lock:
            self._known[key] = _Known(finding, self._clock() + for_s, restarts)
        emit(logging.INFO, "reuse.learnt", worker=key[0], model=key[1], hits=finding.hits)

    async def aclose(self) -> None:
        """End what this event loop is measuring."""
        tasks = list(self._tasks.pop() or ())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(worker: str, model: str, headers: Mapping[str, str], *, api_key: str | None = None) -> Finding:
    """Run the doctor's experiment on one worker.

    Raises:
        EngineError: The worker does not answer.
    """
    from warmgate.doctor import cache, decisions, identity
    from warmgate.doctor.reuse import shorter_prefix
    from warmgate.doctor.styles import CLEF, by_name
    from warmgate.doctor.trial import experiment
    from warmgate.doctor.visit import Options, Visit

    visit = Visit(worker, Options(model=model, api_key=api_key), Deadline(PROBE_S))
    if headers:
        visit.line = visit.new_line(api_key=api_key, headers=headers)
    try:
        await identity.models(visit)
        await cache.metrics(visit)
        facts = visit.facts
        facts.model = model
        visit.style = by_name(model)
        await experiment(visit)
        if visit.reuse.repeat is None and facts.prefix_caching is not False:
            await decisions.route(visit)  # a pooling model completes nothing; its decisions tell
        check = await shorter_prefix(visit)
    finally:
        await visit.aclose()
    unit = facts.hit_granularity or facts.block_size
    length, asked = facts.max_model_len, visit.tally.requests

    def found(hits: Hits, why: str, mend: str | None = None) -> Finding:
        return Finding(hits, why, mend, unit, length, asked)

    if facts.prefix_caching is False:
        return found("off", "the worker's prefix cache is off", "start vLLM without --no-enable-prefix-caching")
    if visit.style is CLEF:
        return found("unread", "this model's decisions never look into the prefix cache", "ask it as a sidecar")
    if facts.shorter_prefix == "first":
        return found("first", check.seen)
    if facts.shorter_prefix in ("planted", "second"):  # a junction seen by the second request is kept where a planted prefix ends, too
        return found("planted", check.seen, check.mend)
    if facts.shorter_prefix == "never":
        return found("never", check.seen, check.mend)
    if facts.recurrent is False and facts.prefix_caching and not facts.window and visit.style is not None and not visit.style.windows:
        return found("first", f"by what the worker states (prefix caching on, no recurrent layers); not measured: {check.seen}")
    return found("unknown", f"whether a shorter prefix hits on this worker could not be measured: {check.seen}", check.mend)

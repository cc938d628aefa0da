"""Circuit breakers, one per worker and engine: a worker that keeps failing is left alone for a while, then tried once.

Closed: calls pass. After :attr:`Rule.failures` failures in a row, or one that is final for this worker and engine, it opens: calls are
skipped without being sent. After the pause it is half open: one call passes as a trial; its success closes the breaker, its failure
opens it for twice as long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from warmgate.engines.events import emit
from warmgate.errors import (
    BadRequest,
    EngineError,
    NotSupported,
    Refused,
    RouteAbsent,
    Unauthorized,
    UnknownModel,
)

NOT_THE_WORKER = (BadRequest, UnknownModel, Refused)
"""Failures that say something about the request: the next one may succeed."""

FINAL = (NotSupported, RouteAbsent, Unauthorized)
"""Failures that the same worker and engine will give again until someone changes the server."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When breakers open, and for how long (seconds)."""

    failures: int = 3
    pause_s: float = 5.0
    final_pause_s: float = 60.0
    longest_s: float = 300.0


class Breaker:
    """The state of one (worker, engine). Not safe across threads; give each event loop its own :class:`Breakers`."""

    def __init__(self, worker: str, engine: str, rule: Rule, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._engine = engine
        self._rule = rule
        self._clock = clock
        self._failures = 0
        self._pause = 0.0
        self._opened_at: float | None = None
        self._trial = False
        self.reason = ""
        """What opened it, one line."""

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """As of now."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._clock() - self._opened_at >= self._pause else "open"

    def admit(self) -> bool:
        """Whether a call may go out now. A True while half open is the one trial: report its end by one of the methods below."""
        state = self.state
        if state == "half_open" and not self._trial:
            self._trial = True
            return True
        return state == "closed"

    def succeeded(self) -> None:
        """The call was answered."""
        if self._opened_at is not None:
            emit(logging.INFO, "breaker.closed", engine=self._engine, worker=self._worker)
        self._failures, self._pause, self._opened_at, self._trial = 0, 0.0, None, False

    def failed(self, error: EngineError) -> None:
        """The call failed. Faults of the request leave the state as it is."""
        if isinstance(error, NOT_THE_WORKER):
            self.abandoned()
            return
        self._failures += 1
        if self._opened_at is not None:
            if self._trial:
                self._open(min(self._rule.longest_s, self._pause * 2), error)
        elif isinstance(error, FINAL):
            self._open(self._rule.final_pause_s, error)
        elif self._failures >= self._rule.failures:
            self._open(self._rule.pause_s, error)

    def abandoned(self) -> None:
        """The call was cancelled or says nothing about the worker: a trial may be made again."""
        self._trial = False

    def _open(self, pause: float, error: EngineError) -> None:
        self._opened_at, self._pause, self._trial = self._clock(), pause, False
        self.reason = error.what
        emit(logging.WARNING, "breaker.opened", engine=self._engine, worker=self._worker, code=error.code, open_s=pause)


class Breakers:
    """All breakers of one gate.

    Args:
        rule: When they open.
        clock: Seconds; a test hands in its own.
    """

    def __init__(self, rule: Rule | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rule = rule or Rule()
        self._clock = clock
        self._all: dict[tuple[str, str], Breaker] = {}

    def of(self, worker: str, engine: str) -> Breaker:
        """The breaker of one worker and engine, made closed at first."""
        key = (worker, engine)
        if key not in self._all:
            self._all[key] = Breaker(worker, engine, self._rule, self._clock)
        return self._all[key]

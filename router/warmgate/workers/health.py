"""Whether a worker takes sessions: one small state machine, fed by probes and by the outcomes of calls.

==============  ==========================================  =============================================================
state           takes new sessions / keeps its own          leaves it by
==============  ==========================================  =============================================================
``unknown``     yes / yes (nobody asked it yet)             the first probe or call
``ready``       yes / yes                                   a refused connection, or :attr:`Rule.fall` failed probes in a row
``lost``        no / no                                     a probe it answers; unprobed, its pause ends: ``half_open``
``half_open``   one at a time / yes                         a call it answers, or :attr:`Rule.rise` probes: ``ready``
==============  ==========================================  =============================================================

A refused connection is proof: nothing listens there. A time-out is not: a worker under load is slow, and moving its sessions would cost
it and its neighbours their prefixes. So time-outs, broken connections and faults of calls only bring the next probe forward; without
probes (a pool that was never opened) broken connections count by themselves. Pauses double and are jittered by half, so that a fleet of
routers does not fall on a worker that has just come back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from warmgate.errors import OptionError
from warmgate.workers.binding import Outcome

State = Literal["unknown", "ready", "half_open", "lost"]

Probe = Literal["alive", "unready", "refused", "reset", "timeout"]
"""What a look at a worker found: it answers; it answers 5xx (loading, or its engine is dead); or it does not, and how."""

Change = Literal["lost", "back"]

OVERDUE_S = 5.0
"""A probe that is this late will not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How health is judged. Times in seconds.

    Args:
        path: What is asked of a worker. vLLM answers 200, or 503 once its engine is dead.
        interval_s: Between probes of a worker, jittered by a quarter.
        timeout_s: Longest wait for one probe.
        fall: Failed probes in a row that make a worker lost.
        rise: Answered probes in a row that make a lost worker ready without a call.
        pause_s: First pause of a lost worker; it doubles.
        longest_pause_s: Longest pause.
        trial_s: How long the one session let onto a half-open worker may leave its outcome unreported.
        restart_interval_s: Between looks at a worker's start time.

    Raises:
        OptionError: A number that makes no sense.
    """

    path: str = "/health"
    interval_s: float = 2.0
    timeout_s: float = 2.0
    fall: int = 3
    rise: int = 2
    pause_s: float = 1.0
    longest_pause_s: float = 15.0
    trial_s: float = 30.0
    restart_interval_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("interval_s", "timeout_s", "fall", "rise", "pause_s", "longest_pause_s", "trial_s", "restart_interval_s"):
            if not 0 < getattr(self, name) < 1e6:
                raise OptionError(f"must be a positive number, not {getattr(self, name)!r}", where=f"health.{name}")
        if not self.path.startswith("/"):
            raise OptionError("a health path begins with /", where="health.path")


class Health:
    """The health of one worker. Not safe across threads: its pool holds a lock.

    Args:
        rule: See :class:`Rule`.
        clock: Seconds; a test hands in its own.
        jitter: Draws from an interval.
    """

    __slots__ = (
        "_clock",
        "_failures",
        "_jitter",
        "_missed",
        "_pause",
        "_probed",
        "_resume_at",
        "_rule",
        "_state",
        "_successes",
        "_trial_until",
        "next_probe",
    )

    def __init__(
        self, rule: Rule, *, clock: Callable[[], float] = time.monotonic, jitter: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._rule = rule
        self._clock = clock
        self._jitter = jitter
        self._state: State = "unknown"
        self._failures = 0
        self._successes = 0
        self._pause = 0.0
        self._resume_at = 0.0
        self._trial_until = 0.0
        self._probed = False
        self._missed = False  # lost, and not heard of since
        self.next_probe = clock()
        """When to probe next, in seconds of the clock."""

    @property
    def state(self) -> State:
        """As of now."""
        if self._state == "lost" and self._clock() >= self._resume_at and self._unprobed():
            self._state, self._trial_until = "half_open", 0.0
        return self._state

    def _unprobed(self) -> bool:
        """Whether nobody probes: the pool was never opened, or the event loop that probed is gone."""
        return not self._probed or self._clock() > self.next_probe + self._rule.timeout_s + OVERDUE_S

    @property
    def open(self) -> bool:
        """Whether it takes a session now."""
        state = self.state
        return state in ("unknown", "ready") or (state == "half_open" and self._clock() >= self._trial_until)

    def placed(self) -> None:
        """A session was placed here: while half open, the only one until its outcome is known."""
        if self.state == "half_open":
            self._trial_until = self._clock() + self._rule.trial_s

    def probed(self, found: Probe) -> Change | None:
        """Take in the result of a probe."""
        self._probed = True
        if found == "alive":
            self._failures = 0
            change = self._answered("half_open")
            if self._state == "half_open":
                self._successes += 1
                if self._successes >= self._rule.rise:
                    self._ready()
        else:
            change = self._failed(proof=found == "refused")
        wait = self._pause if self._state == "lost" else self._rule.interval_s
        self.next_probe = self._clock() + wait * self._jitter(0.75, 1.25)
        return change

    def reported(self, outcome: Outcome) -> Change | None:
        """Take in the outcome of a call."""
        if outcome == "ok":
            self._failures = 0
            change = self._answered("ready")
            self._ready()
            return change
        if outcome == "overloaded":  # alive, and a session that waits keeps its prefix
            self._trial_until = 0.0
            return None
        if outcome == "refused":
            return self._failed(proof=True)
        self.next_probe = min(self.next_probe, self._clock())
        if outcome == "reset" and not self._probed:
            return self._failed(proof=False)
        if self.state == "half_open":
            return self._failed(proof=True)
        return None

    def _answered(self, then: State) -> Change | None:
        """Take in an answer, and say whether it brings the worker back."""
        if self._state == "lost":
            self._state, self._successes, self._trial_until = then, 0, 0.0
        elif self._state == "unknown":
            self._ready()
        missed, self._missed = self._missed, False
        return "back" if missed else None

    def _ready(self) -> None:
        self._state, self._pause, self._successes, self._trial_until = "ready", 0.0, 0, 0.0

    def _failed(self, *, proof: bool) -> Change | None:
        """Take in a failure, and say whether it loses the worker."""
        self._failures += 1
        self._successes = 0
        if self._state in ("unknown", "ready") and not proof and self._failures < self._rule.fall:
            return None
        self._pause = min(self._rule.longest_pause_s, self._pause * 2 or self._rule.pause_s)
        self._resume_at = self._clock() + self._pause * self._jitter(0.75, 1.25)
        self._state = "lost"
        missed, self._missed = self._missed, True
        return None if missed else "lost"

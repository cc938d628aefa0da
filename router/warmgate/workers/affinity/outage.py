"""Whether a store elsewhere answers, and when to try it again while it does not."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Literal

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0

STRIKES = 3
"""Doubtful failures in a row that count as one: calls that a caller's shorter deadline, or a stall of this process, cut off."""

Turn = Literal["ask", "trial", "skip"]
"""What a call is to do: ask the store; ask it, as the one trial of this pause; or go without it."""

Verdict = Literal["nothing", "begins", "goes on"]
"""What a failure means: nothing (yet); an outage begins; it goes on."""


class Outage:
    """The state of one store, for all threads and event loops of this process. Pauses double, jittered by a quarter.

    Args:
        clock: Seconds; a test hands in its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jitter = random.Random()  # noqa: S311 -- spreads retries
        self._out = False
        self._trial_at = 0.0
        self._strikes = 0
        self.pause = 0.0
        """Seconds from the last failed trial to the next one."""

    @property
    def out(self) -> bool:
        """Whether the store does not answer now."""
        return self._out

    def turn(self) -> Turn:
        """What a call about to be made is to do. A trial must be ended by one of the methods below."""
        if not self._out:
            return "ask"
        with self._lock:
            now = self._clock()
            if now < self._trial_at:
                return "skip"
            self._trial_at = now + self.pause
            return "trial"

    def failed(self, turn: Turn, *, doubtful: bool = False) -> Verdict:
        """The call failed; doubtful where that may not be the store's doing."""
        with self._lock:
            begins = not self._out
            if begins:
                self._strikes += 1
                if doubtful and self._strikes < STRIKES:
                    return "nothing"
                self.pause = FIRST_PAUSE_S
            elif turn == "trial":
                self.pause = min(LONGEST_PAUSE_S, self.pause * 2)
            else:
                return "nothing"  # sent before the outage was known
            self._out = True
            self._trial_at = self._clock() + self.pause * self._jitter.uniform(0.75, 1.25)
            return "begins" if begins else "goes on"

    def succeeded(self) -> bool:
        """The call was answered. True where that ends an outage."""
        with self._lock:
            self._strikes = 0
            ended, self._out = self._out, False
            return ended

    def cut_off(self, turn: Turn) -> None:
        """The call was cancelled: a trial may be made again at once."""
        if turn == "trial":
            self._trial_at = self._clock()

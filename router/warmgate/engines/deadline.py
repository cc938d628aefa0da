"""One deadline for everything a decision does, retries and fallbacks included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from warmgate.errors import DeadlineExceeded, OptionError


class Deadline:
    """A point in monotonic time.

    Args:
        seconds: From now on. Zero or less is a deadline already passed.

    Raises:
        OptionError: Not a finite number.
    """

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float) -> None:
        if not -1e9 < seconds < 1e9:  # NaN fails this too
            raise OptionError(f"a deadline must be a finite number of seconds, not {seconds!r}")
        self.seconds = seconds
        self.at = time.monotonic() + seconds
        """In seconds of :func:`time.monotonic`, which is also the clock of asyncio's loops on POSIX."""

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.at

    def within(self, seconds: float) -> Deadline:
        """The earlier of this deadline and ``seconds`` from now."""
        return self if seconds >= self.remaining() else Deadline(seconds)

    @asynccontextmanager
    async def enforce(self, where: str) -> AsyncGenerator[None]:
        """Cancel the block when the time is up: a body that drips cannot pass it, as it can pass a read time-out.

        Raises:
            DeadlineExceeded: The time was up, before the block or during it.
        """
        remaining = self.at - time.monotonic()
        if remaining <= 0:
            raise self.exceeded(where)
        scope = asyncio.timeout(remaining)
        try:
            async with scope:
                yield
        except TimeoutError:
            if scope.expired():
                raise self.exceeded(where) from None
            raise

    def exceeded(self, where: str) -> DeadlineExceeded:
        """The error that says so."""
        return DeadlineExceeded(
            f"no answer within {self.seconds * 1000:.0f} ms",
            where=where,
            mend="allow more time, or ask fewer questions; a decision cut off still leaves the prompt's prefix warm",
        )

    def __repr__(self) -> str:
        return f"Deadline({self.at - time.monotonic():+.3f} s)"

"""When a request is sent again, and how long to wait before.

Only errors that say they are ``retryable`` are: a full queue (429, 503, 529), a broken connection, a gateway's 502 and 504. A wait
that would meet the deadline is not begun: the error goes to the caller at once, who may have another engine for the time left.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from warmgate.engines.deadline import Deadline
from warmgate.engines.events import emit
from warmgate.errors import EngineError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast. Waits are drawn evenly from 0 to ``first_s · 2ⁿ``, at most ``longest_s`` (full jitter)."""

    attempts: int = 4
    first_s: float = 0.05
    longest_s: float = 2.0


NO_RETRY = RetryPolicy(attempts=1)


async def retrying(call: Callable[[], Awaitable[T]], *, deadline: Deadline, policy: RetryPolicy, worker: str, request_id: str) -> T:
    """Run ``call`` until it answers, fails for good, or the deadline leaves no room for another wait.

    Raises:
        EngineError: The last failure.
    """
    jitter = wait_random_exponential(multiplier=policy.first_s, max=policy.longest_s)

    def wait(state: RetryCallState) -> float:
        error = _error(state)
        asked = error.retry_after_s if error is not None else None
        return jitter(state) if asked is None else asked

    def hopeless(state: RetryCallState) -> bool:
        return state.upcoming_sleep >= deadline.remaining()

    def report(state: RetryCallState) -> None:
        error = _error(state)
        emit(
            logging.INFO,
            "engine.retry",
            worker=worker,
            request_id=request_id,
            attempt=state.attempt_number,
            wait_s=state.upcoming_sleep,
            code=error.code if error else None,
            status=error.status if error else None,
        )

    again = AsyncRetrying(
        stop=lambda state: stop_after_attempt(policy.attempts)(state) or hopeless(state),
        wait=wait,
        retry=retry_if_exception(lambda error: isinstance(error, EngineError) and error.retryable),
        before_sleep=report,
        reraise=True,
    )
    return await again(call)


def _error(state: RetryCallState) -> EngineError | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, EngineError) else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds a reply asks to wait: ``retry-after-ms``, else ``Retry-After`` in seconds or as an HTTP date. None if neither is readable.

    ``headers`` must look names up without regard to case, as httpx's do.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _until(text) if name == "retry-after" else -1.0
        if 0 <= seconds < 1e9:
            return seconds
    return None


def _until(date: str) -> float:
    """Seconds from now to an HTTP date, 0 for one in the past, −1 for no date."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return -1.0

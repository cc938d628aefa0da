"""CPU time of a piece of work, best of N: the least noisy figure on a shared machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

Line = tuple[str, bool | None]
"""What a benchmark yields: a sentence with its figures, and whether its bound held (None: no bound)."""
Lines = Iterator[Line]


def cpu(work: Callable[[], T], times: int = 3) -> tuple[float, T]:
    """Seconds of CPU the best of ``times`` runs took, and the last run's result."""
    best = float("inf")
    result: T
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result

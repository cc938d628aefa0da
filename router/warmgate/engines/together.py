"""Work side by side, and work that a cancellation must not cut in the middle: nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order. The first failure cancels the others and is raised when they have ended."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def to_the_end(closing: Awaitable[object]) -> None:
    """Close something wholly. A cancellation meanwhile is passed on when that is done: cut short, it would leave open what is left.

    For what takes a moment, never for what waits for somebody else.
    """
    task = asyncio.ensure_future(closing)
    cut: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            cut = cancelled
    if cut is not None:
        raise cut
    await task

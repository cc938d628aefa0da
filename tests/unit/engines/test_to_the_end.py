"""Closing that a cancellation must not cut short: each connection left open would show as a leak in the user's process."""

from __future__ import annotations

import asyncio

import pytest

from warmgate.engines.together import to_the_end


async def test_a_cancelled_close_closes_all_the_same_and_the_cancellation_is_passed_on():
    """A gate closed while its loop ends would keep the sockets that were next in line."""
    closed: list[int] = []
    begun = asyncio.Event()

    async def close() -> None:
        for each in range(3):
            begun.set()
            await asyncio.sleep(0)
            closed.append(each)

    task = asyncio.create_task(to_the_end(close()))
    await begun.wait()
    for _ in range(2):  # the end of a loop cancels again
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [0, 1, 2]


async def test_a_close_that_fails_says_so():
    """A fault while closing would pass in silence."""

    async def close() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await to_the_end(close())

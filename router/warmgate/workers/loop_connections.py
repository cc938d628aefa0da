"""Connections of a client that outlives an event loop: a program may begin one after another, with the same client in each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Generic, Protocol, TypeVar

from warmgate.engines.loops import PerLoop


class Closes(Protocol):
    """What holds connections."""

    async def aclose(self) -> None:
        """Close them."""


T = TypeVar("T", bound=Closes)


class LoopConnections(Generic[T]):
    """One set of connections for each event loop.

    A connection belongs to the loop that opened it: with one set for all, the second :func:`asyncio.run` of a program would take up a
    connection of the first one's loop, which is closed. A set is closed when :func:`asyncio.run` ends its loop.

    Args:
        make: Makes a set.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._opened: PerLoop[_Opened[T]] = PerLoop(lambda: _Opened(make(), self._opened))

    async def get(self) -> T:
        """Those of the running loop."""
        return await self._opened.get().connections()

    async def aclose(self) -> None:
        """Close what this loop opened. Other loops are not touched."""
        opened = self._opened.pop()
        if opened is not None:
            await opened.life.aclose()


class _Opened(Generic[T]):
    """A loop's connections, held open by an async generator: those a loop closes when it ends."""

    def __init__(self, made: T, loops: PerLoop[_Opened[T]]) -> None:
        self._made = made
        self._begun = False
        self.life = self._live(loops)

    async def connections(self) -> T:
        if not self._begun:
            self._begun = True
            await anext(self.life)
        return self._made

    async def _live(self, loops: PerLoop[_Opened[T]]) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            loops.pop()
            await self._made.aclose()

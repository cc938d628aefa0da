"""Connections of a framework's async client, which lives as long as its agent: through as many event loops as the program begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2

from warmgate.engines.loops import PerLoop
from warmgate.workers.failover import IDLE_S

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=IDLE_S)


class LoopTransport(httpx2.AsyncBaseTransport):
    """Sends over connections of the running event loop.

    A connection belongs to the loop that opened it: with one set for all, the second :func:`asyncio.run` of a program would take up a
    connection of the first one's loop, which is closed. Connections are closed when :func:`asyncio.run` ends their loop.
    """

    def __init__(self) -> None:
        self._opened = PerLoop(self._open)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send."""
        return await (await self._opened.get().transport()).handle_async_request(request)

    async def aclose(self) -> None:
        """Close what this loop opened. Other loops are not touched."""
        opened = self._opened.pop()
        if opened is not None:
            await opened.life.aclose()

    def _open(self) -> _Opened:
        return _Opened(self._opened)


class _Opened:
    """A loop's connections, held open by an async generator: those a loop closes when it ends."""

    def __init__(self, loops: PerLoop[_Opened]) -> None:
        self._transport = httpx2.AsyncHTTPTransport(trust_env=False, limits=_LIMITS)
        self._begun = False
        self.life = self._live(loops)

    async def transport(self) -> httpx2.AsyncHTTPTransport:
        if not self._begun:
            self._begun = True
            await anext(self.life)
        return self._transport

    async def _live(self, loops: PerLoop[_Opened]) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            loops.pop()
            await self._transport.aclose()

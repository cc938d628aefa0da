"""A pool of connections whose cost does not grow with their number.

httpcore's pool looks at every connection at every request, idle ones once for each other: with 64 calls in flight that takes more time
than everything else together. Here each connection is a transport of its own ("lane") with room for one; the one used last is taken
first, so that few stay warm and the rest expire.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx

from warmgate.engines.handshake import handshake_closed
from warmgate.engines.surplus import close_if_surplus
from warmgate.engines.together import to_the_end

KEEP_S = 60.0
"""Seconds an idle connection stays open."""


class Lanes(httpx.AsyncBaseTransport):
    """HTTP/1.1 connections to one server, for one event loop.

    Args:
        tls: For https.
        limit: Most connections at a time; further requests wait for one.
    """

    def __init__(self, tls: ssl.SSLContext, limit: int) -> None:
        self._tls = tls
        self._free: list[httpx.AsyncHTTPTransport] = []
        self._room = asyncio.Semaphore(limit)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send on the lane used last, or on a new one."""
        await self._room.acquire()
        lane = self._free.pop() if self._free else self._lane()
        try:
            if request.url.scheme == "https":
                request.extensions = dict(request.extensions)  # may be shared between requests
                async with handshake_closed(request.extensions):
                    response = await lane.handle_async_request(request)
            else:
                response = await lane.handle_async_request(request)
        except BaseException:
            self._room.release()
            await to_the_end(lane.aclose())  # its connection is in an unknown state
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        network = response.extensions.get("network_stream")
        response.stream = _Stream(response.stream, lambda: self._done(lane, network))
        return response

    def _lane(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_S)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, http2=False, limits=limits)

    async def _done(self, lane: httpx.AsyncHTTPTransport, network: object) -> None:
        try:
            await close_if_surplus(lane, network)
        finally:
            self._free.append(lane)
            self._room.release()

    async def aclose(self) -> None:
        """Close what is idle; lanes in use close with their response."""
        lanes, self._free = self._free, []
        await to_the_end(asyncio.gather(*(lane.aclose() for lane in lanes), return_exceptions=True))


class _Stream(httpx.AsyncByteStream):
    """A body that gives its lane back when it is closed."""

    def __init__(self, inner: httpx.AsyncByteStream, done: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._done: Callable[[], Awaitable[None]] | None = done

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            yield chunk

    async def aclose(self) -> None:
        done, self._done = self._done, None
        try:
            await self._inner.aclose()
        finally:
            if done is not None:
                await done()

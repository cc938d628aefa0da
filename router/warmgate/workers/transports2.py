"""Transports for httpx2: a client's calls go to their session's worker, streams included.

``openai`` 3 runs on httpx2::

    client = AsyncOpenAI(base_url="http://session.invalid/v1", http_client=DefaultAsyncHttpxClient(transport=AsyncStickyTransport2(pool)))
    await client.chat.completions.create(..., extra_headers={"X-Session-ID": session})

See :mod:`warmgate.workers.transports`, whose rules these follow.
"""

from __future__ import annotations

import httpx2

from warmgate.workers.binding import Role
from warmgate.workers.failover import IDLE_S, SESSION_HEADER, Calls
from warmgate.workers.loop_connections import LoopConnections
from warmgate.workers.pool import WorkerPool

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=IDLE_S)


class StickyTransport2(httpx2.BaseTransport):
    """For ``httpx2.Client``.

    Args:
        pool: Where calls go. It is not closed with the transport.
        role: Which of its roles.
        session_header: Where a request carries its session.
        inner: What sends; None makes one that takes no proxy from the environment.

    Raises:
        OptionError: The header's name cannot be one.
    """

    def __init__(
        self, pool: WorkerPool, *, role: Role = "workers", session_header: str = SESSION_HEADER, inner: httpx2.BaseTransport | None = None
    ) -> None:
        self._calls = Calls(pool, role, session_header, faults=httpx2.TransportError, buffered=httpx2.ByteStream)
        self._inner = inner or httpx2.HTTPTransport(trust_env=False, limits=_LIMITS)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send to the session's worker."""
        return self._calls.send_sync(request, self._inner.handle_request)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncStickyTransport2(httpx2.AsyncBaseTransport):
    """For ``httpx2.AsyncClient``, in any number of event loops. Arguments as :class:`StickyTransport2`."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        role: Role = "workers",
        session_header: str = SESSION_HEADER,
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._calls = Calls(pool, role, session_header, faults=httpx2.TransportError, buffered=httpx2.ByteStream)
        self._inner = inner
        self._own = LoopConnections(_connections)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send to the session's worker."""
        inner = self._inner or await self._own.get()
        return await self._calls.send(request, inner.handle_async_request)

    async def aclose(self) -> None:
        """Close the connections; of its own those of the running event loop."""
        await (self._inner or self._own).aclose()


def _connections() -> httpx2.AsyncHTTPTransport:
    return httpx2.AsyncHTTPTransport(trust_env=False, limits=_LIMITS)

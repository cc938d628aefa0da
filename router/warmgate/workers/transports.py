"""Transports for httpx: a client's calls go to their session's worker, streams included.

The session is the ``X-Session-ID`` header of the request, or the :func:`warmgate.workers.session` block around the call. Scheme, host
and port of the URL are replaced (a placeholder such as ``http://session.invalid/v1`` is as good as any); a gateway's header is added;
nothing else is touched. A call is made again elsewhere only when no reply had begun and the worker is found dead. What is shared with
httpx2, on which ``openai`` 3 runs, is in :mod:`warmgate.workers.failover`.
"""

from __future__ import annotations

import httpx

from warmgate.workers.binding import Role
from warmgate.workers.failover import IDLE_S, SESSION_HEADER, Calls
from warmgate.workers.loop_connections import LoopConnections
from warmgate.workers.pool import WorkerPool

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=IDLE_S)


class StickyTransport(httpx.BaseTransport):
    """For ``httpx.Client``.

    Args:
        pool: Where calls go. It is not closed with the transport.
        role: Which of its roles.
        session_header: Where a request carries its session.
        inner: What sends; None makes one that takes no proxy from the environment.

    Raises:
        OptionError: The header's name cannot be one.
    """

    def __init__(
        self, pool: WorkerPool, *, role: Role = "workers", session_header: str = SESSION_HEADER, inner: httpx.BaseTransport | None = None
    ) -> None:
        self._calls = Calls(pool, role, session_header, faults=httpx.TransportError, buffered=httpx.ByteStream)
        self._inner = inner or httpx.HTTPTransport(trust_env=False, limits=_LIMITS)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the session's worker."""
        return self._calls.send_sync(request, self._inner.handle_request)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncStickyTransport(httpx.AsyncBaseTransport):
    """For ``httpx.AsyncClient``, in any number of event loops. Arguments as :class:`StickyTransport`."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        role: Role = "workers",
        session_header: str = SESSION_HEADER,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._calls = Calls(pool, role, session_header, faults=httpx.TransportError, buffered=httpx.ByteStream)
        self._inner = inner
        self._own = LoopConnections(_connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the session's worker."""
        inner = self._inner or await self._own.get()
        return await self._calls.send(request, inner.handle_async_request)

    async def aclose(self) -> None:
        """Close the connections; of its own those of the running event loop."""
        await (self._inner or self._own).aclose()


def _connections() -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(trust_env=False, limits=_LIMITS)

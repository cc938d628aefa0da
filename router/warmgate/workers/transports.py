"""Transports for httpx: a client's calls go to their session's worker, streams included.

The session is the ``X-Session-ID`` header of the request, or the :func:`warmgate.workers.session` block around the call. Scheme, host
and port of the URL are replaced (a placeholder such as ``http://session.invalid/v1`` is as good as any); a gateway's header is added;
nothing else is touched. A call is made again elsewhere only when no reply had begun and the worker is found dead. What is shared with
httpx2, on which ``openai`` 3 runs, is in :mod:`warmgate.workers.failover`.
"""

from __future__ import annotations

import httpx

from warmgate.workers.binding import Role
from warmgate.workers.failover import SESSION_HEADER, Calls, Target
from warmgate.workers.pool import WorkerPool


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
        self._calls = Calls(pool, role, session_header, httpx.TransportError)
        self._inner = inner or httpx.HTTPTransport(trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the session's worker."""

        def transmit(target: Target) -> httpx.Response:
            return self._inner.handle_request(_directed(request, target))

        return self._calls.send_sync(request.headers, transmit, replayable=isinstance(request.stream, httpx.ByteStream))

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncStickyTransport(httpx.AsyncBaseTransport):
    """For ``httpx.AsyncClient``. Arguments as :class:`StickyTransport`."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        role: Role = "workers",
        session_header: str = SESSION_HEADER,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._calls = Calls(pool, role, session_header, httpx.TransportError)
        self._inner = inner or httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the session's worker."""

        async def transmit(target: Target) -> httpx.Response:
            return await self._inner.handle_async_request(_directed(request, target))

        return await self._calls.send(request.headers, transmit, replayable=isinstance(request.stream, httpx.ByteStream))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _directed(request: httpx.Request, target: Target) -> httpx.Request:
    """The request as it goes to a worker. A copy: logs and redirects of the client see its own."""
    scheme, host, port, path = target.address()
    url = request.url.copy_with(scheme=scheme, host=host, port=port)
    if path:
        url = url.copy_with(raw_path=path.encode("ascii") + request.url.raw_path)
    headers = request.headers.copy()
    headers["Host"] = url.netloc.decode("ascii")
    headers.update(target.headers)
    return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)

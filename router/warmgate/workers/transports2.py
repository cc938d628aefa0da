"""Transports for httpx2: a client's calls go to their session's worker, streams included.

``openai`` 3 runs on httpx2::

    client = AsyncOpenAI(base_url="http://session.invalid/v1", http_client=DefaultAsyncHttpxClient(transport=AsyncStickyTransport2(pool)))
    await client.chat.completions.create(..., extra_headers={"X-Session-ID": session})

See :mod:`warmgate.workers.transports`, whose rules these follow.
"""

from __future__ import annotations

import httpx2

from warmgate.workers.binding import Role
from warmgate.workers.failover import SESSION_HEADER, Calls, Target
from warmgate.workers.pool import WorkerPool


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
        self._calls = Calls(pool, role, session_header, httpx2.TransportError)
        self._inner = inner or httpx2.HTTPTransport(trust_env=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send to the session's worker."""

        def transmit(target: Target) -> httpx2.Response:
            return self._inner.handle_request(_directed(request, target))

        return self._calls.send_sync(request.headers, transmit, replayable=isinstance(request.stream, httpx2.ByteStream))

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncStickyTransport2(httpx2.AsyncBaseTransport):
    """For ``httpx2.AsyncClient``. Arguments as :class:`StickyTransport2`."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        role: Role = "workers",
        session_header: str = SESSION_HEADER,
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._calls = Calls(pool, role, session_header, httpx2.TransportError)
        self._inner = inner or httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send to the session's worker."""

        async def transmit(target: Target) -> httpx2.Response:
            return await self._inner.handle_async_request(_directed(request, target))

        return await self._calls.send(request.headers, transmit, replayable=isinstance(request.stream, httpx2.ByteStream))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _directed(request: httpx2.Request, target: Target) -> httpx2.Request:
    """The request as it goes to a worker. A copy: logs and redirects of the client see its own."""
    scheme, host, port, path = target.address()
    url = request.url.copy_with(scheme=scheme, host=host, port=port)
    if path:
        url = url.copy_with(raw_path=path.encode("ascii") + request.url.raw_path)
    headers = request.headers.copy()
    headers["Host"] = url.netloc.decode("ascii")
    headers.update(target.headers)
    return httpx2.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)

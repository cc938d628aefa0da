"""The ``openai`` client, held to the rules of :mod:`warmgate.engines.http`: bounded bodies, no proxies or keys from the environment, no
redirects, no retries of its own. It runs on httpx2; replies are taken raw and checked here, since the client's models check nothing.

Importing this module imports ``openai``, which takes half a second: it belongs to start-up, never into a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol, Self

import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, OpenAIError

from warmgate import __version__
from warmgate.engines.deadline import Deadline
from warmgate.engines.envelopes import error_of
from warmgate.engines.faults import fault_of
from warmgate.engines.handshake import handshake_closed
from warmgate.engines.http import BREATH, CONNECT_S, MAX_BODY, base_url, bearer, checked, default_tls, request_headers, too_long
from warmgate.engines.loops import PerLoop
from warmgate.engines.retry import RetryPolicy, retrying
from warmgate.engines.surplus import close_if_surplus
from warmgate.errors import MalformedAnswer, one_line


class Raw(Protocol):
    """What ``with_raw_response`` methods return, as far as it is used."""

    @property
    def content(self) -> bytes:
        """The body."""
        ...


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport whose replies end at ``limit`` bytes."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, worker: str, limit: int, *, anonymous: bool) -> None:
        self._inner = inner
        self._worker = worker
        self._limit = limit
        self._anonymous = anonymous

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._anonymous:  # the client insists on a key; without one, none is sent
            request.headers.pop("Authorization", None)
        if request.url.scheme == "https":
            async with handshake_closed(request.extensions):
                response = await self._inner.handle_async_request(request)
        else:
            response = await self._inner.handle_async_request(request)
        request_id = request.headers.get("X-Request-Id", "")
        announced = response.headers.get("content-length", "")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await response.stream.aclose()  # we asked for none; inflating it could pass any limit
            raise MalformedAnswer("the reply is compressed although none was asked for", where=self._worker, request_id=request_id)
        if announced.isdecimal() and int(announced) > self._limit:
            await response.stream.aclose()
            raise too_long(self._worker, request_id, self._limit)
        network = response.extensions.get("network_stream")
        stream = _Stream(response.stream, self._worker, request_id, self._limit, lambda: close_if_surplus(self._inner, network))
        response.stream = stream
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream(httpx2.AsyncByteStream):
    def __init__(
        self, inner: httpx2.AsyncByteStream, worker: str, request_id: str, limit: int, done: Callable[[], Awaitable[None]]
    ) -> None:
        self._inner = inner
        self._worker = worker
        self._request_id = request_id
        self._limit = limit
        self._done = done

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left, count = self._limit, 0
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise too_long(self._worker, self._request_id, self._limit)
            count += 1
            if count % BREATH == 0:
                await asyncio.sleep(0)
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            await self._done()


class OpenAIHttp:
    """An ``AsyncOpenAI`` per event loop for one server. Arguments as for :class:`~warmgate.engines.http.Http`."""

    def __init__(
        self,
        worker: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connections: int = 256,
        max_body: int = MAX_BODY,
        policy: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        bearer(api_key)  # refuses what no header can carry
        self.worker = base_url(worker)
        self.policy = policy or RetryPolicy()
        self._key = api_key
        self._headers = {"user-agent": f"warmgate/{__version__}", "accept-encoding": "identity", **checked(headers)}
        self._limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=60.0)
        self._max_body = max_body
        self._tls = tls or default_tls(self.worker)
        self._clients = PerLoop(self._client)

    def _client(self) -> AsyncOpenAI:
        inner = httpx2.AsyncHTTPTransport(verify=self._tls, trust_env=False, http2=False, limits=self._limits)
        transport = _Bounded(inner, self.worker, self._max_body, anonymous=self._key is None)
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        client = AsyncOpenAI(
            base_url=f"{self.worker}/v1",
            api_key=self._key or "none",
            max_retries=0,
            timeout=timeout,
            default_headers=self._headers,
            http_client=httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False, follow_redirects=False),
        )
        client.organization = client.project = None  # it takes these from the environment
        return client

    async def call(
        self,
        send: Callable[[AsyncOpenAI, Mapping[str, str]], Awaitable[Raw]],
        *,
        path: str,
        deadline: Deadline,
        request_id: str,
    ) -> bytes:
        """The body of a 2xx, sent again while that makes sense.

        Args:
            send: Sends one request with the client and the extra headers it is given.
            path: The route, for messages.
            deadline: When to give up.
            request_id: Sent as X-Request-Id.

        Raises:
            EngineError: Any other outcome.
        """

        async def once() -> bytes:
            try:
                async with deadline.enforce(self.worker):
                    return (await send(self._clients.get(), {**request_headers.get(), "X-Request-Id": request_id})).content
            except APIStatusError as fault:
                reply = fault.response
                raise error_of(
                    reply.status_code, reply.headers, reply.content, where=self.worker, request_id=request_id, path=path
                ) from None
            except APIConnectionError as fault:
                raise fault_of(fault.__cause__ or fault, worker=self.worker, request_id=request_id) from fault
            except OpenAIError as fault:
                raise MalformedAnswer(one_line(str(fault), 160), where=self.worker, request_id=request_id) from fault
            except httpx2.HTTPError as fault:  # while the body is read
                raise fault_of(fault, worker=self.worker, request_id=request_id) from fault

        return await retrying(once, deadline=deadline, policy=self.policy, worker=self.worker, request_id=request_id)

    async def aclose(self) -> None:
        """Close this loop's connections."""
        client = self._clients.pop()
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

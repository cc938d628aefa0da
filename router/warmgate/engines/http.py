"""One worker over HTTP: a pool of connections, bodies with a bound, every fault a typed error.

- HTTP/1.1, kept alive, one pool per worker and event loop (connections belong to the loop that opened them): httpx's transports
  without its client, whose cookies, redirects and proxies are not wanted here (see :mod:`warmgate.engines.lanes`).
- Request bodies are never compressed: vLLM answers 400 to those. Replies are asked for uncompressed: a small body cannot unfold to a
  huge one, and reading stops at :data:`MAX_BODY` bytes.
- HTTP_PROXY, ALL_PROXY and ~/.netrc are not consulted. The state is a whole conversation and the worker is named
  by the caller; a variable of the surroundings must not send it elsewhere or add credentials.
- Redirects are not followed, for the same reason.
- The hard limit is :meth:`Deadline.enforce` around the whole exchange; httpx's own time-outs bound only the connect.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import msgspec

from warmgate import __version__
from warmgate.engines.deadline import Deadline
from warmgate.engines.envelopes import error_of, is_page
from warmgate.engines.faults import fault_of
from warmgate.engines.lanes import Lanes
from warmgate.engines.loops import PerLoop
from warmgate.engines.retry import RetryPolicy, retrying
from warmgate.errors import MalformedAnswer, OptionError, one_line
from warmgate.secret import remember

MAX_BODY = 4 << 20
"""Longest reply read, in bytes. 64 questions of 26 options take about 100 kB."""

BREATH = 256
"""Chunks after which the loop gets a turn: thousands of tiny ones may be buffered already, and the deadline's timer must strike."""

CONNECT_S = 2.0
"""Longest wait for a connection: a host that drops packets should leave time for the next engine."""

request_headers: ContextVar[Mapping[str, str]] = ContextVar("warmgate_request_headers", default={})  # noqa: B039 -- never changed in place
"""Headers of the ask under way (:attr:`AskRequest.headers`), sent with each of its requests, whichever engine makes them. A context
variable, since a gateway must see them on an engine's side calls too (``/tokenize``), several calls deep."""

_TIMEOUTS = {"timeout": {"connect": CONNECT_S, "read": None, "write": None, "pool": None}}


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply read whole."""

    status: int
    headers: httpx.Headers
    body: bytes


def base_url(url: str) -> str:
    """A worker's URL without a trailing slash or ``/v1``.

    Raises:
        OptionError: Not an http or https URL of a host, or one with credentials, a query or a fragment.
    """
    wrong = OptionError(f"{one_line(url, 80)!r} is not a worker's URL", mend="write http://host:port")
    if any(c.isspace() for c in url):
        raise wrong
    try:
        parts = urlsplit(url)
        if not parts.netloc.isascii():
            raise OptionError(f"{one_line(url, 80)!r} has a host beyond ASCII", mend="write it in its xn-- form")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise wrong
    except ValueError:
        raise wrong from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise OptionError("a worker's URL has no credentials, query or fragment", mend="give the API key by name: api_key_env")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def bearer(api_key: str | None) -> dict[str, str]:
    """The Authorization header for a key.

    Raises:
        OptionError: The key cannot stand in a header.
    """
    if api_key is None:
        return {}
    if not api_key or not api_key.isascii() or not api_key.isprintable() or api_key != api_key.strip():
        raise OptionError("the API key is empty or has characters that no header can carry", mend="check the variable it came from")
    remember(api_key)
    return {"authorization": f"Bearer {api_key}"}


def checked(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Headers with their names in lower case.

    Raises:
        OptionError: A name or value that HTTP cannot carry.
    """
    for name, value in (headers or {}).items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not (value.isascii() and value.isprintable()):
            raise OptionError(f"the header {one_line(name, 40)!r} cannot be sent", mend="use printable ASCII")
    return {name.lower(): value for name, value in (headers or {}).items()}


class Http:
    """Calls to one worker.

    Args:
        worker: Its base URL, ``http://host:port``.
        api_key: Sent as a bearer token. Never logged and in no message.
        headers: Sent with every request, such as a session header a router hashes.
        connections: Most connections at a time, per event loop; more requests wait for one.
        max_body: See :data:`MAX_BODY`.
        policy: When to send again.
        tls: For https; without it, the system's certificates (and SSL_CERT_FILE, which OpenSSL reads).
    """

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
        self.worker = base_url(worker)
        self.max_body = max_body
        self.policy = policy or RetryPolicy()
        given = {
            "host": urlsplit(self.worker).netloc,
            "user-agent": f"warmgate/{__version__}",
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            **checked(headers),
            **bearer(api_key),
        }
        self._headers = list(given.items())
        self._tls = tls or default_tls(self.worker)
        self._lanes = PerLoop(lambda: Lanes(self._tls, connections))
        self._urls: dict[str, httpx.URL] = {}

    def __repr__(self) -> str:
        return f"Http({self.worker!r})"

    async def exchange(self, method: str, path: str, body: bytes | None, *, deadline: Deadline, request_id: str) -> Reply:
        """One request and its whole reply, whatever the status; not sent again.

        Raises:
            DeadlineExceeded: The time was up.
            Unreachable: No connection, or it broke.
            MalformedAnswer: The reply is longer than allowed, or not HTTP.
        """
        try:
            async with deadline.enforce(self.worker):
                headers = [*self._headers, *request_headers.get().items(), ("X-Request-Id", request_id)]
                request = httpx.Request(method, self._url(path), headers=headers, content=body, extensions=_TIMEOUTS)
                response = await self._lanes.get().handle_async_request(request)
                assert isinstance(response.stream, httpx.AsyncByteStream)
                try:
                    body_read = await self._read(response.headers, response.stream, request_id)
                finally:
                    await response.stream.aclose()
                return Reply(response.status_code, response.headers, body_read)
        except httpx.HTTPError as fault:
            raise fault_of(fault, worker=self.worker, request_id=request_id) from fault

    def _url(self, path: str) -> httpx.URL:
        """Parsed once: a URL takes longer to parse than a reply."""
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx.URL(self.worker + path)
        return url

    async def _read(self, headers: httpx.Headers, stream: httpx.AsyncByteStream, request_id: str) -> bytes:
        """The body. One that is too long is not read on, and its connection is closed."""
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self.max_body:
            raise too_long(self.worker, request_id, self.max_body)
        chunks: list[bytes] = []
        size = 0
        async for chunk in stream:
            size += len(chunk)
            if size > self.max_body:
                raise too_long(self.worker, request_id, self.max_body)
            chunks.append(chunk)
            if len(chunks) % BREATH == 0:
                await asyncio.sleep(0)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def post(self, path: str, body: bytes, *, deadline: Deadline, request_id: str) -> bytes:
        """The body of a 200, sent again while that makes sense.

        Raises:
            EngineError: Any other outcome.
        """

        async def once() -> bytes:
            reply = await self.exchange("POST", path, body, deadline=deadline, request_id=request_id)
            if reply.status != 200:
                raise error_of(reply.status, reply.headers, reply.body, where=self.worker, request_id=request_id, path=path)
            return reply.body

        return await retrying(once, deadline=deadline, policy=self.policy, worker=self.worker, request_id=request_id)

    async def aclose(self) -> None:
        """Close this loop's connections. Those of other loops close with them."""
        lanes = self._lanes.pop()
        if lanes is not None:
            await lanes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def decode(body: bytes, kind: type[Any], *, worker: str, request_id: str) -> Any:
    """A JSON body as ``kind`` (msgspec: fields nobody knows are skipped, types are strict).

    Raises:
        MalformedAnswer: Not JSON, or of another shape; it says where.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        page = is_page(body)
        raise MalformedAnswer(
            "the reply is a web page: no decision server answers there"
            if page
            else f"the reply is not an answer: {one_line(str(fault) or type(fault).__name__, 200)}",
            where=worker,
            mend="check the URL and the port" if page else "check that the worker's dialect is the one configured",
            status=200,
            request_id=request_id,
        ) from None


def too_long(worker: str, request_id: str, limit: int) -> MalformedAnswer:
    """The error for a body beyond the limit."""
    return MalformedAnswer(f"the reply is longer than {limit} bytes", where=worker, request_id=request_id)


def default_tls(worker: str) -> ssl.SSLContext:
    """The system's certificates for https. For plain http a context that trusts nobody: loading certificates takes 20 ms."""
    return ssl.create_default_context() if worker.startswith("https") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

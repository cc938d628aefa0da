"""One endpoint under examination: its connections, what was asked of it, and what the checks learnt from each other."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from warmgate.doctor.exposition import Metrics
from warmgate.doctor.findings import Decision, Facts, Reuse, Tally
from warmgate.doctor.styles import ReadStyle
from warmgate.engines.deadline import Deadline
from warmgate.engines.http import Http, Reply
from warmgate.engines.retry import NO_RETRY
from warmgate.engines.together import to_the_end
from warmgate.engines.wire import usage_of

PATIENCE_S = 10.0
"""Longest wait for a reply that costs no tokens."""

MAX_BODY = 16 << 20
"""Longest reply read, in bytes: /metrics of a worker with many adapters has a few million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to examine an endpoint for.

    Args:
        model: The model to ask; without it, the first that is served.
        api_key: Sent as a bearer token, never shown.
        origins: Browser origins that must be let in.
    """

    model: str | None = None
    api_key: str | None = None
    origins: tuple[str, ...] = ()


class Line(Http):
    """An :class:`~warmgate.engines.Http` that counts, and keeps replies by the id of their request."""

    def __init__(self, worker: str, tally: Tally, **options: Any) -> None:
        super().__init__(worker, policy=NO_RETRY, connections=8, max_body=MAX_BODY, **options)
        self.tally = tally
        self.replies: dict[str, Reply] = {}

    async def exchange(self, method: str, path: str, body: bytes | None, *, deadline: Deadline, request_id: str) -> Reply:
        """See :meth:`Http.exchange`."""
        self.tally.requests += 1
        reply = await super().exchange(method, path, body, deadline=deadline, request_id=request_id)
        if body is not None:
            self.replies[request_id] = reply
            usage = usage_of(object_of(reply).get("usage"))
            self.tally.tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        return reply


@dataclass
class Visit:
    """An examination under way. Checks of later stages read what earlier ones left in it.

    Args:
        url: Base URL, without ``/v1``.
        options: What to examine for.
        deadline: When to stop.
    """

    url: str
    options: Options
    deadline: Deadline
    facts: Facts = field(default_factory=Facts)
    tally: Tally = field(default_factory=Tally)
    addresses: tuple[str, ...] = ()
    """What the host's name resolved to."""
    metrics: Metrics | None = None
    """The first scrape, where there is one of vLLM's."""
    style: ReadStyle | None = None
    denied: bool = False
    """Whether /v1 is closed to us: no key, or a wrong one."""
    decision: Decision | None = None
    """The probe decision, where the route answered it."""
    reuse: Reuse = field(default_factory=Reuse)
    scattered: bool = False
    """Whether requests may land on different workers or engines."""
    hops: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self._tls = ssl.create_default_context() if self.url.startswith("https") else None
        self._lines: list[Line] = []
        self._gets: dict[tuple[str, bool], asyncio.Task[Reply]] = {}
        session = request_id()  # gateways that route by session keep the probes on one worker by these
        headers = {"X-Session-ID": session, "X-SMG-Routing-Key": session}
        self.line = self.new_line(api_key=self.options.api_key, headers=headers)
        self.bare = self.new_line()

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port number."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def new_line(self, *, api_key: str | None = None, headers: Mapping[str, str] | None = None) -> Line:
        """Connections of their own, with these headers."""
        line = Line(self.url, self.tally, tls=self._tls, api_key=api_key, headers=headers)
        self._lines.append(line)
        return line

    async def get(self, path: str, *, bare: bool = False) -> Reply:
        """GET a path, asked once however many checks want it. ``bare``: without the API key.

        Raises:
            EngineError: No reply.
        """
        key = (path, bare)
        if key not in self._gets:
            line = self.bare if bare else self.line
            self._gets[key] = asyncio.create_task(self.call("GET", path, line=line))
        return await self._gets[key]

    async def call(self, method: str, path: str, body: object = None, *, line: Line | None = None, patience: float = PATIENCE_S) -> Reply:
        """One request; ``body`` is sent as JSON, or as it is when it is bytes.

        Raises:
            EngineError: No reply.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        deadline = self.deadline.within(patience)
        return await (line or self.line).exchange(method, path, data, deadline=deadline, request_id=request_id())

    def where(self, method: str, path: str) -> str:
        """A route as reports name it."""
        return f"{method} {self.url}{path}"

    async def aclose(self) -> None:
        """Close every connection, cancelled or not."""
        await to_the_end(self._close())

    async def _close(self) -> None:
        for task in self._gets.values():
            task.cancel()
        await asyncio.gather(*self._gets.values(), return_exceptions=True)
        for line in self._lines:
            await line.aclose()


def request_id() -> str:
    """A fresh X-Request-Id, recognisable in the server's log."""
    return f"warmgate-doctor-{token_hex(6)}"


def json_of(reply: Reply) -> Any:
    """The body as JSON, or None where it is not."""
    try:
        return msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def object_of(reply: Reply) -> dict[str, Any]:
    """The body as a JSON object; empty where it is none."""
    data = json_of(reply)
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}

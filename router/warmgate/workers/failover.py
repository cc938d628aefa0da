"""One call, on one worker and, should that be found dead before its reply begins, on the next: what all transports share.

Nothing here imports a client library: httpx and httpx2 agree in all that is used of them, and a transport hands in the two types that must
be its library's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from warmgate.errors import DeadlineExceeded, EngineError, MalformedAnswer, OptionError, Overloaded, ServerFault, Unreachable
from warmgate.workers.binding import Binding, Outcome, Role
from warmgate.workers.context import current_session
from warmgate.workers.pool import WorkerPool
from warmgate.workers.probe import of_this_machine

if TYPE_CHECKING:
    import httpx
    import httpx2

SESSION_HEADER = "X-Session-ID"
"""vLLM's chat takes this one and reports it in its KV events."""

IDLE_S = 3.0
"""How long a transport of ours keeps an idle connection. vLLM closes one after 5 s (``VLLM_HTTP_TIMEOUT_KEEP_ALIVE``), which is httpx's
limit too: a call sent at that very moment would be lost with it, though its worker is well."""

Kind = Literal["connect", "connect_timeout", "broken", "timeout", "other"]
"""What a library's error amounts to: no connection; none in time; broken before the reply's head; no reply in time; not the worker's."""

_KINDS: Mapping[str, Kind] = {
    "ConnectError": "connect",
    "ConnectTimeout": "connect_timeout",
    "ReadError": "broken",
    "WriteError": "broken",
    "CloseError": "broken",
    "RemoteProtocolError": "broken",
    "ReadTimeout": "timeout",
    "WriteTimeout": "timeout",
}
_OUTCOMES: Mapping[Kind, Outcome] = {"connect": "refused", "connect_timeout": "timeout", "broken": "reset", "timeout": "timeout"}


def kind_of(fault: Exception) -> Kind:
    """The kind of an error of httpx or httpx2, whose names agree."""
    if of_this_machine(fault):
        return "other"
    return _KINDS.get(type(fault).__name__, "other")


def outcome_of(error: EngineError) -> Outcome:
    """What an engine's error says of its worker, for :meth:`warmgate.workers.WorkerPool.report`."""
    if isinstance(error, Unreachable):
        cause = error.__cause__
        return "refused" if isinstance(cause, Exception) and kind_of(cause) == "connect" else "reset"
    if isinstance(error, DeadlineExceeded):
        return "timeout"
    if isinstance(error, Overloaded):
        return "overloaded"
    return "fault" if isinstance(error, (ServerFault, MalformedAnswer)) else "ok"  # the others are replies


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes.

    Args:
        worker: Base URL.
        headers: To be set on it.
    """

    worker: str
    headers: Mapping[str, str]

    def address(self) -> tuple[str, str, int | None, str]:
        """Scheme, host, port and a path to put in front of the request's own."""
        parts = urlsplit(self.worker)
        return parts.scheme, parts.hostname or "", parts.port, parts.path


class Reply(Protocol):
    """The head of a reply, as httpx and httpx2 have it."""

    @property
    def status_code(self) -> int:
        """Its status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers; names in any case."""
        ...


R = TypeVar("R", bound=Reply)
Q = TypeVar("Q", "httpx.Request", "httpx2.Request")


def directed(request: Q, target: Target) -> Q:
    """The request as it goes to a worker: scheme, host, port and ``Host`` replaced, the target's headers added, nothing else touched.

    A copy: logs and redirects of the client see its own.
    """
    scheme, host, port, path = target.address()
    url = request.url.copy_with(scheme=scheme, host=host, port=port)
    if path:
        url = url.copy_with(raw_path=path.encode("ascii") + request.url.raw_path)
    headers = request.headers.copy()
    headers["Host"] = url.netloc.decode("ascii")
    headers.update(target.headers)
    make = cast("Callable[..., Q]", type(request))  # which of the two libraries url and stream are from is lost on pyright
    return make(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)


class Calls:
    """Sends the calls of one transport.

    Args:
        pool: Where they may go.
        role: Which of its roles.
        session_header: Where a request carries its session.
        faults: What the library raises when a call fails.
        buffered: The library's kind of body that can be sent twice.

    Raises:
        OptionError: The header's name cannot be one.
    """

    def __init__(self, pool: WorkerPool, role: Role, session_header: str, *, faults: type[Exception], buffered: type) -> None:
        if not session_header.isascii() or not session_header.replace("-", "").replace("_", "").isalnum():
            raise OptionError(f"{session_header!r} cannot be the name of a header", where="session_header")
        self._pool = pool
        self._role: Role = role
        self._header = session_header
        self._faults = faults
        self._buffered = buffered

    def _begin(self, headers: Mapping[str, str]) -> Attempt:
        return Attempt(self._pool, self._role, headers.get(self._header) or current_session())

    async def send(self, request: Q, transmit: Callable[[Q], Awaitable[R]]) -> R:
        """Make a call.

        Args:
            request: As the client made it.
            transmit: Sends a request, up to the head of the reply.
        """
        attempt = self._begin(request.headers)
        replayable = isinstance(request.stream, self._buffered)
        while True:
            session = attempt.session
            target = attempt.target(
                await self._pool.anyone(self._role) if session is None else await self._pool.acquire(session, self._role)
            )
            try:
                reply = await transmit(directed(request, target))
            except self._faults as fault:
                if not attempt.failed(fault, replayable=replayable) or not await self._pool.found_dead(target.worker):
                    raise
            else:
                return attempt.answered(reply)

    def send_sync(self, request: Q, transmit: Callable[[Q], R]) -> R:
        """:meth:`send` for code that cannot await."""
        attempt = self._begin(request.headers)
        replayable = isinstance(request.stream, self._buffered)
        while True:
            session = attempt.session
            target = attempt.target(self._pool.anyone_sync(self._role) if session is None else self._pool.acquire_sync(session, self._role))
            try:
                reply = transmit(directed(request, target))
            except self._faults as fault:
                if not attempt.failed(fault, replayable=replayable) or not self._pool.found_dead_sync(target.worker):
                    raise
            else:
                return attempt.answered(reply)


class Attempt:
    """One call under way, on one worker after another.

    Args:
        pool: Where it may go.
        role: Which of its roles.
        session: Whose call it is; None goes to any open worker.
    """

    __slots__ = ("_fault", "_pool", "_role", "_tried", "session")

    def __init__(self, pool: WorkerPool, role: Role, session: str | None) -> None:
        self._pool = pool
        self._role: Role = role
        self._tried: list[str] = []
        self._fault: Exception | None = None
        self.session = session

    def target(self, bound: Binding | str) -> Target:
        """Where to send it.

        Raises:
            Exception: The last worker's fault, where the session is still, or again, on a worker that was tried.
        """
        target = Target(bound.worker, bound.headers) if isinstance(bound, Binding) else Target(bound, {})
        if self._fault is not None:
            if target.worker in self._tried:
                raise self._fault
            self._pool.counts.add("retried_elsewhere", role=self._role)
        self._tried.append(target.worker)
        return target

    def failed(self, fault: Exception, *, replayable: bool) -> bool:
        """Report a failure, and say whether to look if the worker is dead: only then may the call be made elsewhere."""
        self._fault = fault
        kind = kind_of(fault)
        if kind == "other":
            return False
        self._pool.report(self._tried[-1], _OUTCOMES[kind])
        if kind == "timeout":
            return False  # slow is not dead, and the worker may be computing
        return replayable or kind != "broken"

    def answered(self, reply: R) -> R:
        """Report that the head of a reply came."""
        outcome: Outcome = "ok"
        if reply.status_code in (429, 503, 529):
            outcome = "overloaded"
        elif reply.status_code >= 500:
            outcome = "fault"
        self._pool.report(self._tried[-1], outcome)
        if self.session is not None:
            self._pool.saw(self.session, reply.headers, self._role)
        return reply

"""The contract of an affinity store: where a session is, or is to be, in one step that nobody else can come between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from warmgate.workers.binding import Binding

Stance = Literal["open", "keep", "worker_lost", "drained"]
"""What a worker does now: takes sessions; keeps those it has; or lets them go, and why."""


class Candidate(NamedTuple):
    """One worker of the pool, from a session's point of view."""

    worker: str
    weight: float
    stance: Stance


@runtime_checkable
class Affinity(Protocol):
    """Remembers the worker of each session of one role."""

    async def bind(self, session_key: str, candidates: Sequence[Candidate], ttl: float, *, timeout_s: float | None = None) -> Binding:
        """The session's worker; chosen and remembered where there is none, or where it lets its sessions go. Atomic.

        Args:
            session_key: From :func:`warmgate.workers.hashing.session_key`; never a raw session id.
            candidates: Every worker of the pool, in the session's order of preference, at least one of them open.
            ttl: Seconds the binding is kept; every bind renews it.
            timeout_s: Longest wait for a store elsewhere, where that is less than the store's own limit.

        Returns:
            The binding. A store that is out, or full, is no error: the binding's source says so.
        """
        ...

    async def release(self, session_key: str) -> None:
        """Forget a session. A store that is out is no error: the binding ends by its TTL."""
        ...

    async def open(self) -> None:
        """Connect, where there is something to connect to.

        Raises:
            OptionError: The store refuses us: credentials, rights, or not a store at all. One that is out is no error.
        """
        ...

    async def maintain(self) -> None:
        """Called about twice a second while the pool is open: reconnect, write back. Returns quickly when there is nothing to do."""
        ...

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        ...

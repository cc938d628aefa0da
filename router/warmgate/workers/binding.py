"""Where a session's calls go, and why: the words that pools, stores and transports share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["workers", "gate_workers"]
"""``workers`` serve the agent's own model; ``gate_workers`` a small decision model beside it."""

ROLES: tuple[Role, ...] = ("workers", "gate_workers")

Reason = Literal["hashed", "bounded", "worker_lost", "drained", "removed"]
"""Why a session is where it is: its hash's first choice among the open workers, the next one since the first was full, or moved there
because its worker was lost, drained, or taken out of the pool."""

Source = Literal["store", "own", "hash"]
"""Who says so: the affinity store; this process alone, while the store is out; or the hash, to which other processes come as well."""

Outcome = Literal["ok", "refused", "reset", "timeout", "overloaded", "fault"]
"""How a call to a worker ended: a reply; no connection; a connection broken before the reply's head; no reply in time; 429, 503 or 529;
any other 5xx."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A session on its worker.

    Args:
        worker: Base URL, ``http://host:port``.
        fresh: This very call placed or moved the session.
        moved_from: The worker it was on before its last move; None when it never moved.
        reason: See :data:`Reason`.
        moves: How often it was moved.
        source: See :data:`Source`.
        restarts: Restarts of this worker that this process noticed. A higher number than at the session's last call means that its
            prefix is gone, though the worker is the same.
        headers: To be sent with every call of the session: what a gateway hashes. Empty without one.
    """

    worker: str
    fresh: bool
    moved_from: str | None = None
    reason: Reason = "hashed"
    moves: int = 0
    source: Source = "store"
    restarts: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

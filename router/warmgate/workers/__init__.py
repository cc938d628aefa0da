"""Which worker a session sticks to, and getting its calls there. docs/workers.md says which mode when.

One question a module: ``hashing`` (where would it go), ``affinity`` (where is it), ``health`` and ``probe`` (who is alive), ``discovery``
(who is there), ``fleet`` (all that for one role), ``watch`` (what runs beside), ``pool`` (the face of it), ``failover`` and
``transports`` (calls), ``gateway`` (behind another router). Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmgate.workers.affinity import Affinity, Candidate, MemoryAffinity
    from warmgate.workers.affinity.redis import RedisAffinity
    from warmgate.workers.binding import Binding, Outcome, Reason, Role
    from warmgate.workers.context import current_session, session
    from warmgate.workers.counts import Counts
    from warmgate.workers.discovery import WorkerSpec
    from warmgate.workers.failover import outcome_of
    from warmgate.workers.fleet import WorkerStatus
    from warmgate.workers.gateway import SMG, VLLM_ROUTER, Gateway
    from warmgate.workers.hashing import Rendezvous, session_key
    from warmgate.workers.health import Rule
    from warmgate.workers.pool import WorkerPool
    from warmgate.workers.transports import AsyncStickyTransport, StickyTransport
    from warmgate.workers.transports2 import AsyncStickyTransport2, StickyTransport2

_HOME = {
    "SMG": "gateway",
    "VLLM_ROUTER": "gateway",
    "Affinity": "affinity",
    "AsyncStickyTransport": "transports",
    "AsyncStickyTransport2": "transports2",
    "Binding": "binding",
    "Candidate": "affinity",
    "Counts": "counts",
    "Gateway": "gateway",
    "MemoryAffinity": "affinity",
    "Outcome": "binding",
    "Reason": "binding",
    "RedisAffinity": "affinity.redis",
    "Rendezvous": "hashing",
    "Role": "binding",
    "Rule": "health",
    "StickyTransport": "transports",
    "StickyTransport2": "transports2",
    "WorkerPool": "pool",
    "WorkerSpec": "discovery",
    "WorkerStatus": "fleet",
    "current_session": "context",
    "outcome_of": "failover",
    "session": "context",
    "session_key": "hashing",
}
__all__ = [
    "SMG",
    "VLLM_ROUTER",
    "Affinity",
    "AsyncStickyTransport",
    "AsyncStickyTransport2",
    "Binding",
    "Candidate",
    "Counts",
    "Gateway",
    "MemoryAffinity",
    "Outcome",
    "Reason",
    "RedisAffinity",
    "Rendezvous",
    "Role",
    "Rule",
    "StickyTransport",
    "StickyTransport2",
    "WorkerPool",
    "WorkerSpec",
    "WorkerStatus",
    "current_session",
    "outcome_of",
    "session",
    "session_key",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

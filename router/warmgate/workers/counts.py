"""What happens to workers and sessions, counted. Telemetry listens; tests and ``top`` read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Literal, get_args

Counted = Literal[
    "session_placed",  # role, reason: a session got its first worker
    "session_moved",  # role, reason: a session went to another worker
    "worker_lost",  # role, worker
    "worker_back",  # role, worker: answers again after it was lost
    "worker_restart",  # role, worker
    "workers_all_out",  # role: no worker was open, so all were tried
    "retried_elsewhere",  # role: a call whose worker died before its reply began went to another
    "store_outage",  # role: the affinity store stopped answering
    "store_healed",  # role: it answers again
    "store_bypassed",  # role: a session bound without the store, by hash or by this process's memory
    "store_restored",  # role: a binding of this process written to the store after an outage
    "store_disagreement",  # role: processes had bound a session to different workers during an outage
    "store_evicted",  # role: the least recently used session forgotten, since the store was full
    "discovery_failed",  # role: a DNS name did not resolve; the last answer stays in force
    "gateway_moved",  # role: the gateway sent a session to another worker than before
]
COUNTED: tuple[Counted, ...] = get_args(Counted)

Listener = Callable[[Counted, dict[str, str], int], None]
"""Called with what happened, its labels and how often, on whichever thread it happened. It must not raise or block."""


class Counts:
    """Counters, safe across threads.

    Args:
        listener: Hears every count; labels are few and bounded (roles, reasons, workers, never sessions).
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._totals: Counter[tuple[Counted, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, what: Counted, number: int = 1, **labels: str) -> None:
        """Count ``number`` of ``what``."""
        if number <= 0:
            return
        with self._lock:
            self._totals[what, tuple(sorted(labels.items()))] += number
        if self._listener is not None:
            self._listener(what, labels, number)

    def total(self, what: Counted, **labels: str) -> int:
        """How often ``what`` happened with at least these labels."""
        wanted = labels.items()
        with self._lock:
            return sum(n for (name, having), n in self._totals.items() if name == what and wanted <= dict(having).items())

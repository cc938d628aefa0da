"""Bindings in this process's memory: the default, and what the Redis store falls back to."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmgate.errors import OptionError
from warmgate.workers.affinity._base import Candidate
from warmgate.workers.binding import Binding, Reason, Source
from warmgate.workers.counts import Counts
from warmgate.workers.hashing import BOUND, Named, first_with_room

MAX_ENTRIES = 100_000
"""Sessions remembered by default; about 40 MB."""


@dataclass(slots=True)
class Entry:
    """One remembered session."""

    worker: str
    moved_from: str | None
    reason: Reason
    moves: int
    expires: float
    unsynced: bool = False
    """Placed, moved or used while the shared store was out."""

    def binding(self, *, fresh: bool, source: Source) -> Binding:
        """As a caller sees it."""
        return Binding(self.worker, fresh, self.moved_from, self.reason, self.moves, source)


class MemoryAffinity:
    """Least recently used sessions leave first, at their TTL or when there are too many.

    Args:
        max_entries: Most sessions remembered. A flood of ids pushes out the sessions that were used longest ago; those fall back to
            their hash, which is where most of them were.
        bound: See :data:`warmgate.workers.hashing.BOUND`.
        counts: Where evictions are counted.
        role: Label of those counts.
        clock: Seconds; a test hands in its own.

    Raises:
        OptionError: No room at all, or a bound below 1.
    """

    def __init__(
        self,
        max_entries: int = MAX_ENTRIES,
        *,
        bound: float = BOUND,
        counts: Counts | None = None,
        role: str = "workers",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_entries < 1:
            raise OptionError("an affinity store needs room for at least one session", where="max_entries")
        if not bound >= 1:
            raise OptionError(f"the load bound must be at least 1, not {bound!r}", where="bound")
        self._max = max_entries
        self._bound = bound
        self._counts = counts or Counts()
        self._role = role
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._loads: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    async def bind(self, session_key: str, candidates: Sequence[Candidate], ttl: float, *, timeout_s: float | None = None) -> Binding:
        """See :meth:`warmgate.workers.affinity.Affinity.bind`."""
        del timeout_s
        return self.bind_now(session_key, candidates, ttl)

    def bind_now(
        self, session_key: str, candidates: Sequence[Candidate], ttl: float, *, source: Source | None = None, bound: float | None = None
    ) -> Binding:
        """:meth:`bind` without awaiting.

        Args:
            session_key: See :meth:`bind`.
            candidates: See :meth:`bind`.
            ttl: See :meth:`bind`.
            source: What the binding says; anything but None also marks the entry as unsynced. A new entry is then the hash's word.
            bound: In place of the store's own.
        """
        with self._lock:
            now = self._clock()
            self._expire(now)
            entry = self._entries.get(session_key)
            if entry is not None and entry.expires <= now:
                self._forget(session_key)
                entry = None
            leave = reason_to_leave(entry.worker, candidates) if entry is not None else None
            fresh = entry is None or leave is not None
            if entry is None or leave is not None:
                if entry is not None:
                    self._forget(session_key)
                placed, spilled = place(candidates, self._loads.__getitem__, self._bound if bound is None else bound)
                previous = entry.worker if entry is not None else None
                reason: Reason = leave or ("bounded" if spilled else "hashed")
                entry = Entry(placed, previous, reason, entry.moves + 1 if entry is not None else 0, now + ttl)
                self._insert(session_key, entry)
            else:
                entry.expires = now + ttl
                self._entries.move_to_end(session_key)
            if source is not None:
                entry.unsynced = True
                source = "hash" if fresh and entry.moves == 0 else source
            return entry.binding(fresh=fresh, source=source or "store")

    async def release(self, session_key: str) -> None:
        """Forget a session."""
        with self._lock:
            self._forget(session_key)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def maintain(self) -> None:
        """Nothing to mend."""

    async def aclose(self) -> None:
        """Nothing to close: the sessions stay, other event loops use them too."""

    def load(self, worker: str) -> int:
        """Sessions remembered on a worker."""
        with self._lock:
            return self._loads[worker]

    def entry(self, session_key: str) -> Entry | None:
        """What is remembered of a session, without renewing it."""
        with self._lock:
            entry = self._entries.get(session_key)
            return entry if entry is not None and entry.expires > self._clock() else None

    def put(self, session_key: str, entry: Entry, *, renew: bool = True) -> None:
        """Remember what another store says. Without ``renew``, only of a session that is remembered, and it keeps its place."""
        with self._lock:
            if renew:
                self._forget(session_key)
                self._insert(session_key, entry)
            elif (known := self._entries.get(session_key)) is not None:
                self._entries[session_key] = entry
                self._count(known.worker, -1)
                self._count(entry.worker, 1)

    def entries(self) -> list[tuple[str, Entry]]:
        """All live sessions, the least recently used first."""
        with self._lock:
            now = self._clock()
            return [(key, entry) for key, entry in self._entries.items() if entry.expires > now]

    def _insert(self, key: str, entry: Entry) -> None:
        while len(self._entries) >= self._max:
            self._forget(next(iter(self._entries)))
            self._counts.add("store_evicted", role=self._role)
        self._entries[key] = entry
        self._count(entry.worker, 1)

    def _forget(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._count(entry.worker, -1)

    def _count(self, worker: str, by: int) -> None:
        self._loads[worker] += by
        if self._loads[worker] <= 0:
            del self._loads[worker]

    def _expire(self, now: float) -> None:
        """Use renews, so the front expires first (with one TTL; else the bound on entries still holds)."""
        while self._entries:
            key = next(iter(self._entries))
            if self._entries[key].expires > now:
                return
            self._forget(key)


def reason_to_leave(worker: str, candidates: Sequence[Candidate]) -> Reason | None:
    """Why a session on ``worker`` must go elsewhere; None when it stays."""
    for candidate in candidates:
        if candidate.worker == worker:
            stance = candidate.stance
            return None if stance == "open" or stance == "keep" else stance
    return "removed"


def place(candidates: Sequence[Candidate], load: Callable[[str], int], bound: float = math.inf) -> tuple[str, bool]:
    """The worker for a session that has none, and whether the bound bent the hash.

    Raises:
        OptionError: No worker is open.
    """
    order = [Named(c.worker, c.weight) for c in candidates if c.stance == "open"]
    chosen = first_with_room(order, load, bound)
    if chosen is None:
        raise OptionError("no worker of the pool is open", mend="a pool opens all of them when none is; hand in its candidates")
    return chosen, chosen != order[0].worker

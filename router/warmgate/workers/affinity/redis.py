"""Bindings in Redis: processes that share it send a session to one worker.

One bind is one round trip: a script reads or makes the binding, atomically. Everything of one role lives in three keys (bindings, when
they end, sessions per worker), so that the bound on entries is exact; on a cluster in :data:`CLUSTER_SHARDS` times three, by the
session's key.

While Redis is out, or slower than ``timeout_s``, a session keeps the worker this process knows for it, and a new one goes where its
hash says, without the load bound: other processes come to the same. Redis is then left alone for a pause;
:mod:`warmgate.workers.affinity.outage` says how long.
When it is back, this process's bindings are written back; two processes that had bound a session differently meanwhile are counted, and
the first writer wins. Every bind also carries what this process knows, so a Redis that came back empty before anyone noticed loses
nothing that is in use.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from warmgate.engines.events import emit
from warmgate.engines.loops import PerLoop
from warmgate.errors import OptionError, one_line
from warmgate.workers.affinity._base import Candidate
from warmgate.workers.affinity.client import Client, Script, is_refusal
from warmgate.workers.affinity.memory import MAX_ENTRIES, Entry, MemoryAffinity
from warmgate.workers.affinity.outage import Outage, Turn, Verdict
from warmgate.workers.binding import Binding, Reason
from warmgate.workers.counts import Counts
from warmgate.workers.hashing import BOUND

TIMEOUT_S = 0.1
"""Longest wait for one bind, connecting included. A round trip takes under a millisecond in one data centre."""

OPEN_TIMEOUT_S = 2.0
"""Longest wait when the pool opens, outside any decision."""

CONCURRENCY = 32
"""Binds on their way at a time, per event loop. A Redis that hangs is found out by these; the rest then goes without it."""

CLUSTER_SHARDS = 16
"""Parts of the bindings on a Redis cluster, each on one node. The load bound is then kept in each part."""

RESTORE_BATCH = 200
"""Bindings written back in one script, few enough that other clients of the Redis do not wait long."""

SAMPLE = 20
"""Bindings from before an outage that are looked up after it. If one is missing, all are written back."""

NOBODY = "0" * 32
SOMEWHERE = Candidate("probe", 1.0, "open")
"""A session and a worker that cannot exist, to see whether Redis lets us."""

BIND = Script("bind.lua")
RESTORE = Script("restore.lua")
RELEASE = Script("release.lua")


class RedisAffinity:
    """See the module. Safe across event loops and threads: each loop has its own connections.

    Args:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``, with ``user:password@`` where there are ACLs and query options of the
            redis package (``ssl_ca_certs=…``); ``redis+cluster://`` and ``rediss+cluster://`` for a cluster.
        namespace: What keys begin with: deployments that share a Redis differ in it.
        role: Which pool this is.
        max_entries: Most sessions in Redis for this role; beyond, the least recently used are forgotten.
        own_entries: Most sessions this process remembers for an outage.
        bound: See :data:`warmgate.workers.hashing.BOUND`.
        timeout_s: See :data:`TIMEOUT_S`.
        counts: Where outages, disagreements and evictions are counted.
        clock: Seconds; a test hands in its own.

    Raises:
        OptionError: The URL or an option cannot be used, or the redis package is missing.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "warmgate",
        role: str = "workers",
        max_entries: int = 1_000_000,
        own_entries: int = MAX_ENTRIES,
        bound: float = BOUND,
        timeout_s: float = TIMEOUT_S,
        counts: Counts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", namespace):
            raise OptionError("a namespace has 1 to 64 letters, digits or . _ -", where="namespace")
        if not 0 < timeout_s < math.inf:
            raise OptionError(f"must be a positive number of seconds, not {timeout_s!r}", where="timeout_s")
        self._client = PerLoop(Client.maker(url, 4 * CONCURRENCY))
        self._slots = PerLoop(lambda: asyncio.Semaphore(CONCURRENCY))
        self._where = redacted(url)
        self._shards = CLUSTER_SHARDS if "+cluster" in urlsplit(url).scheme else 1
        if max_entries < self._shards:
            raise OptionError(f"an affinity store needs room for at least {self._shards} sessions", where="max_entries")
        self._prefix = f"{namespace}:{role}"
        self._limit = max_entries // self._shards
        self._role = role
        self._bound = bound
        self._timeout_s = timeout_s
        self._counts = counts or Counts()
        self._clock = clock
        self._own = MemoryAffinity(own_entries, bound=bound, counts=Counts(), role=role, clock=clock)
        self._lock = threading.Lock()
        self._outage = Outage(clock)
        self._to_restore: deque[str] = deque()
        self._unsampled: list[str] = []

    def __repr__(self) -> str:
        return f"RedisAffinity({self._where!r}, role={self._role!r})"

    @property
    def out(self) -> bool:
        """Whether Redis does not answer now."""
        return self._outage.out

    async def bind(self, session_key: str, candidates: Sequence[Candidate], ttl: float, *, timeout_s: float | None = None) -> Binding:
        """See :meth:`warmgate.workers.affinity.Affinity.bind`."""
        limit = self._timeout_s if timeout_s is None else max(0.0, min(timeout_s, self._timeout_s))
        async with self._slots.get():
            turn = self._outage.turn() if limit > 0 else "skip"
            if turn != "skip":
                own = self._own.entry(session_key)
                reply = await self._ask(BIND, session_key, self._bind_arguments(session_key, candidates, ttl, own), limit, turn)
                if reply is not None:
                    binding = self._learn(session_key, own, reply, ttl)
                    await self._restore_some(limit)
                    return binding
        self._counts.add("store_bypassed", role=self._role)
        return self._own.bind_now(session_key, candidates, ttl, source="own", bound=math.inf)

    async def release(self, session_key: str) -> None:
        """See :meth:`warmgate.workers.affinity.Affinity.release`."""
        await self._own.release(session_key)
        turn = self._outage.turn()
        if turn != "skip":
            await self._ask(RELEASE, session_key, [session_key], self._timeout_s, turn)

    async def open(self) -> None:
        """See :meth:`warmgate.workers.affinity.Affinity.open`."""
        try:
            arguments = self._bind_arguments(NOBODY, [SOMEWHERE], 1.0, None)
            await self._client.get().run(BIND, self._keys(NOBODY, "probe"), arguments, OPEN_TIMEOUT_S)
        except Client.faults() as fault:
            if is_refusal(fault):
                words = one_line(str(fault), 160)
                raise OptionError(
                    f"Redis refuses us ({words})",
                    where=self._where,
                    mend="check user, password and ACL: docs/workers.md lists the commands",
                ) from None
            self._failed(fault, "ask")
        else:
            self._succeeded()

    async def maintain(self) -> None:
        """See :meth:`warmgate.workers.affinity.Affinity.maintain`."""
        if self.out:
            turn = self._outage.turn()
            if turn == "skip" or await self._ask(RELEASE, NOBODY, [NOBODY], self._timeout_s, turn) is None:
                return
        while self._to_restore and not self.out:
            await self._restore_some(self._timeout_s)

    async def aclose(self) -> None:
        """See :meth:`warmgate.workers.affinity.Affinity.aclose`."""
        self._slots.pop()
        client = self._client.pop()
        if client is not None:
            await client.aclose()

    def _keys(self, session_key: str, shard: int | str | None = None) -> list[str]:
        if shard is None:
            shard = int(session_key[:4], 16) % self._shards
        return [f"{{{self._prefix}:{shard}}}:{name}" for name in ("bindings", "expiries", "loads")]

    def _bind_arguments(self, key: str, candidates: Sequence[Candidate], ttl: float, own: Entry | None) -> list[str]:
        hint, wins = (pack(own), own.unsynced) if own is not None else ("", False)
        arguments = [key, str(int(ttl * 1000)), str(self._limit), repr(self._bound), hint, "1" if wins else "0"]
        for worker, weight, stance in candidates:
            arguments += (worker, repr(weight), stance)
        return arguments

    def _learn(self, key: str, own: Entry | None, reply: Any, ttl: float) -> Binding:
        fresh, evicted, packed = reply
        self._counts.add("store_evicted", int(evicted), role=self._role)
        entry = unpack(packed, self._clock() + ttl)
        self._compare(own, entry)
        self._own.put(key, entry)
        return entry.binding(fresh=bool(int(fresh)), source="store")

    def _compare(self, own: Entry | None, stored: Entry) -> None:
        """Count a session that this process had elsewhere, unless it was moved since: then the store counts more moves."""
        if own is not None and own.worker != stored.worker and stored.moves <= own.moves:
            self._counts.add("store_disagreement", role=self._role)

    async def _restore_some(self, timeout_s: float) -> None:
        """Write back one batch, if any is left."""
        if not self._to_restore:
            return
        with self._lock:
            keys = [self._to_restore.popleft() for _ in range(min(RESTORE_BATCH, len(self._to_restore)))]
        by_shard: dict[tuple[str, ...], list[tuple[str, Entry]]] = {}
        for key in keys:
            entry = self._own.entry(key)
            if entry is not None:
                by_shard.setdefault(tuple(self._keys(key)), []).append((key, entry))
        for sessions in by_shard.values():
            arguments = [str(self._limit)]
            for key, entry in sessions:
                left = max(1, int((entry.expires - self._clock()) * 1000))
                arguments += (key, pack(entry), str(left), "1" if entry.unsynced else "0")
            reply = await self._ask(RESTORE, sessions[0][0], arguments, timeout_s, "ask")
            if reply is None:
                return  # out again: everything is queued anew when it heals
            for (key, entry), word in zip(sessions, reply, strict=True):
                self._restored(key, entry, word)

    def _restored(self, key: str, entry: Entry, word: str) -> None:
        """Take note of what became of one binding."""
        written = word.startswith("+")
        if written:
            self._counts.add("store_restored", role=self._role)
        elif word:
            stored = unpack(word[1:], entry.expires)
            self._compare(entry, stored)
        if word:
            self._own.put(key, unpack(word[1:], entry.expires), renew=False)
        if written and not entry.unsynced:
            with self._lock:  # Redis had it and lost it, so it may have lost everything
                self._to_restore.extend(self._unsampled)
                self._unsampled = []

    async def _ask(self, script: Script, session_key: str, arguments: list[str], timeout_s: float, turn: Turn) -> Any:
        """Run a script; None when Redis does not answer, which is noted."""
        client = self._client.get()
        began = self._clock()
        try:
            reply = await client.run(script, self._keys(session_key), arguments, timeout_s)
        except TimeoutError as fault:
            stalled = self._clock() - began > timeout_s * 1.5 + 0.05  # this process was not running: no word on Redis
            self._failed(fault, turn, doubtful=stalled or timeout_s < self._timeout_s)
            return None
        except Client.faults() as fault:
            if self._failed(fault, turn) != "nothing":
                await client.reset()  # what else was connected to is no better, and the name may lead elsewhere by now
            return None
        except asyncio.CancelledError:
            self._outage.cut_off(turn)
            raise
        self._succeeded()
        return reply

    def _failed(self, fault: BaseException, turn: Turn, *, doubtful: bool = False) -> Verdict:
        verdict = self._outage.failed(turn, doubtful=doubtful)
        if verdict == "begins":
            self._counts.add("store_outage", role=self._role)
            emit(logging.WARNING, "affinity.out", store=self._where, role=self._role, why=one_line(str(fault) or type(fault).__name__, 160))
        return verdict

    def _succeeded(self) -> None:
        """After an outage, queue what to write back: all that was bound meanwhile, and a few others to see if Redis lost its memory."""
        if not self._outage.succeeded():
            return
        with self._lock:
            entries = self._own.entries()
            entries.reverse()  # what was used last first
            synced = [key for key, entry in entries if not entry.unsynced]
            self._to_restore = deque(key for key, entry in entries if entry.unsynced)
            self._to_restore.extend(synced[:SAMPLE])
            self._unsampled = synced[SAMPLE:]
        self._counts.add("store_healed", role=self._role)
        emit(logging.WARNING, "affinity.healed", store=self._where, role=self._role)


def pack(entry: Entry) -> str:
    """An entry as Redis holds it."""
    return f"{entry.worker}\n{entry.moved_from or ''}\n{entry.reason}\n{entry.moves}"


def unpack(packed: str, expires: float) -> Entry:
    """An entry from what Redis holds."""
    worker, moved_from, reason, moves = packed.split("\n")
    return Entry(worker, moved_from or None, cast("Reason", reason), int(moves), expires)


def redacted(url: str) -> str:
    """A Redis URL without user, password and options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return one_line(f"{parts.scheme}://{host}{parts.path}", 120)

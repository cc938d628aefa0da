"""The workers of one role: who they are, how they are, and in which order a session prefers them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from warmgate.engines.events import emit
from warmgate.engines.loops import PerLoop
from warmgate.errors import OptionError
from warmgate.workers.affinity._base import Candidate, Stance
from warmgate.workers.binding import Outcome, Role
from warmgate.workers.counts import Counts
from warmgate.workers.discovery import WorkerSpec
from warmgate.workers.hashing import Rendezvous
from warmgate.workers.health import Change, Health, Probe, Rule, State

ABSENT_LIMIT = 3
"""Answers in a row without an address after which its worker is gone. Until then it keeps its sessions and gets no new ones: a pod that
is not ready for a moment is missing from a headless service."""

RESTART_SLACK_S = 1.0
"""Start times closer than this are one start: the metric is a float computed from clock ticks."""


class Member:
    """One worker of a fleet. Its fleet's lock guards it."""

    def __init__(self, url: str, weight: float, health: Health) -> None:
        self.url = url
        self.weight = weight
        self.health = health
        self.restarts = 0
        self.started_at: float | None = None
        self.sequence: int | None = None
        self.restart_noticed_at: float | None = None
        """Wall clock of the last restart that KV events gave away."""
        self.look_at_start = 0.0
        """When to read its start time next, in seconds of the clock."""
        self.drained_at: float | None = None
        """When its sessions must leave, in seconds of the clock; None: it is not being drained."""
        self.absent = 0
        """Answers of DNS in a row that did not name it."""
        self.watched = False
        """Whether a probe is under way."""
        self.checks = PerLoop(asyncio.Lock)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as ``doctor`` and ``top`` show it."""

    url: str
    role: Role
    weight: float
    state: State
    draining: bool
    restarts: int
    started_at: float | None


class Fleet:
    """See the module. Safe across threads.

    Args:
        role: Which role it plays.
        specs: What the user listed.
        rule: How health is judged.
        counts: Where losses and restarts are counted.
        clock: Seconds; a test hands in its own.
    """

    def __init__(
        self, role: Role, specs: Sequence[WorkerSpec], *, rule: Rule, counts: Counts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.role: Role = role
        self.rule = rule
        self.names = [spec for spec in specs if spec.dynamic]
        self._counts = counts
        self._clock = clock
        self._lock = threading.RLock()
        self._members: dict[str, Member] = {}
        self._dynamic: set[str] = set()
        self._resolve_at = 0.0
        self._turns = count()
        for spec in specs:
            if not spec.dynamic:
                self._add(spec)
        self._hash = self._rehash()

    def members(self) -> list[Member]:
        """All workers as of now."""
        with self._lock:
            return list(self._members.values())

    def member(self, url: str) -> Member | None:
        """The worker at ``url``; None when it is not of this fleet."""
        return self._members.get(url)

    def status(self) -> list[WorkerStatus]:
        """All workers, for people."""
        with self._lock:
            return [
                WorkerStatus(m.url, self.role, m.weight, m.health.state, m.drained_at is not None, m.restarts, m.started_at)
                for m in self._members.values()
            ]

    def due(self) -> list[Member]:
        """Workers whose probe is due, claimed: the caller probes them and then ends :attr:`Member.watched`."""
        with self._lock:
            now = self._clock()
            due = [m for m in self._members.values() if not m.watched and m.health.next_probe <= now]
            for member in due:
                member.watched = True
                member.health.next_probe = now + self.rule.interval_s  # should the probe say nothing
            return due

    def start_due(self, member: Member) -> bool:
        """Whether to read a worker's start time now; claimed."""
        with self._lock:
            now = self._clock()
            if now < member.look_at_start:
                return False
            member.look_at_start = now + self.rule.restart_interval_s
            return True

    def resolution_due(self, interval_s: float) -> bool:
        """Whether to ask DNS now; claimed."""
        with self._lock:
            now = self._clock()
            if not self.names or now < self._resolve_at:
                return False
            self._resolve_at = now + interval_s
            return True

    def candidates(self, key: str) -> list[Candidate]:
        """All workers in the order of a session, at least one of them open unless there is none at all.

        With every worker lost, all are open: then it is rather our network that is out, and a session that waits keeps its prefix.
        """
        with self._lock:
            stances: dict[str, Stance] = {url: self._stance(member) for url, member in self._members.items()}
            if stances and "open" not in stances.values():
                self._open_some(stances)
            return [Candidate(worker, weight, stances[worker]) for worker, weight in self._hash.ranked(key)]

    def spread(self) -> str | None:
        """An open worker for a call without a session, each in turn."""
        candidates = self.candidates("")
        usable = sorted(c.worker for c in candidates if c.stance == "open")
        return usable[next(self._turns) % len(usable)] if usable else None

    def placed(self, url: str) -> None:
        """A session was placed or moved there."""
        with self._lock:
            if (member := self._members.get(url)) is not None:
                member.health.placed()

    def restarts(self, url: str) -> int:
        """Restarts noticed of a worker."""
        member = self._members.get(url)
        return member.restarts if member is not None else 0

    def reported(self, url: str, outcome: Outcome) -> None:
        """Take in the outcome of a call."""
        with self._lock:
            if (member := self._members.get(url)) is not None:
                self._changed(member, member.health.reported(outcome), outcome)

    def probed(self, member: Member, found: Probe) -> None:
        """Take in the result of a probe."""
        with self._lock:
            change = member.health.probed(found)
            if change == "back":
                member.look_at_start = self._clock()
            self._changed(member, change, found)

    def drain(self, url: str, grace_s: float) -> None:
        """Give a worker no more sessions; those it has leave at their first turn after ``grace_s``.

        Raises:
            OptionError: No such worker.
        """
        with self._lock:
            self._known(url).drained_at = self._clock() + grace_s

    def resume(self, url: str) -> None:
        """End a drain. Sessions that left do not come back.

        Raises:
            OptionError: No such worker.
        """
        with self._lock:
            self._known(url).drained_at = None

    def started(self, member: Member, at: float) -> None:
        """Take in a worker's start time, seconds since 1970."""
        with self._lock:
            before, member.started_at = member.started_at, at
            if before is None or at - before <= RESTART_SLACK_S:
                return
            noticed, member.restart_noticed_at = member.restart_noticed_at, None
            if noticed is None or noticed < at:
                self._restarted(member, "start time")
            member.sequence = None

    def sequence(self, url: str, number: int) -> None:
        """Take in the sequence number of a KV event: one below the last means that the worker counts anew."""
        with self._lock:
            member = self._members.get(url)
            if member is None:
                return
            before, member.sequence = member.sequence, number
            if before is not None and number < before:
                member.restart_noticed_at = time.time()
                member.look_at_start = self._clock()
                self._restarted(member, "kv events")

    def resolved(self, found: Sequence[WorkerSpec]) -> None:
        """Take in what all DNS names of this fleet resolve to."""
        with self._lock:
            named = {spec.url: spec for spec in found}
            changed = False
            for url, spec in named.items():
                if url not in self._members:
                    self._add(spec, dynamic=True)
                    changed = True
            for url, member in list(self._members.items()):
                if url in self._dynamic:
                    member.absent = 0 if url in named else member.absent + 1
                    if member.absent >= ABSENT_LIMIT:
                        del self._members[url]
                        self._dynamic.discard(url)
                        changed = True
            if changed:
                self._hash = self._rehash()

    def _add(self, spec: WorkerSpec, *, dynamic: bool = False) -> None:
        self._members[spec.url] = Member(spec.url, spec.weight, Health(self.rule, clock=self._clock))
        if dynamic:
            self._dynamic.add(spec.url)

    def _rehash(self) -> Rendezvous:
        return Rendezvous({member.url: member.weight for member in self._members.values()})

    def _known(self, url: str) -> Member:
        member = self._members.get(url)
        if member is None:
            raise OptionError("no worker of this pool has that URL", where=url, mend=f"it has {', '.join(sorted(self._members)) or 'none'}")
        return member

    def _stance(self, member: Member) -> Stance:
        if member.health.state == "lost":
            return "worker_lost"
        if member.drained_at is not None:
            return "keep" if self._clock() < member.drained_at else "drained"
        return "open" if member.health.open and not member.absent else "keep"

    def _open_some(self, stances: dict[str, Stance]) -> None:
        """Nobody is open: those that answer at all are; failing them, all."""
        answering = [url for url, stance in stances.items() if stance != "worker_lost"]
        for url in answering or stances:
            stances[url] = "open"
        if not answering:
            self._counts.add("workers_all_out", role=self.role)

    def _changed(self, member: Member, change: Change | None, why: str) -> None:
        if change == "lost":
            self._counts.add("worker_lost", role=self.role, worker=member.url)
            emit(logging.WARNING, "worker.lost", role=self.role, worker=member.url, why=why)
        elif change == "back":
            self._counts.add("worker_back", role=self.role, worker=member.url)
            emit(logging.WARNING, "worker.back", role=self.role, worker=member.url)

    def _restarted(self, member: Member, seen_by: str) -> None:
        member.restarts += 1
        self._counts.add("worker_restart", role=self.role, worker=member.url)
        emit(logging.WARNING, "worker.restarted", role=self.role, worker=member.url, seen_by=seen_by)

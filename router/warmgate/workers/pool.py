"""The pool: which worker a session's calls go to. The one object of this package that a gate, a transport or a user talks to.

Events (without session ids; names and URLs of workers only): ``worker.lost``, ``worker.back``, ``worker.restarted``,
``worker.discovery_failed``, ``affinity.out``, ``affinity.healed``, all warnings.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from warmgate.engines.loops import PerLoop
from warmgate.engines.portal import get_portal
from warmgate.errors import OptionError, Unreachable
from warmgate.workers.affinity import Affinity, MemoryAffinity
from warmgate.workers.binding import ROLES, Binding, Outcome, Role
from warmgate.workers.counts import Counts, Listener
from warmgate.workers.discovery import WorkerSpec, distinct
from warmgate.workers.fleet import Fleet, WorkerStatus
from warmgate.workers.gateway import Gateway, Routed, gateway_of
from warmgate.workers.hashing import BOUND, session_key
from warmgate.workers.health import Rule
from warmgate.workers.probe import Prober
from warmgate.workers.watch import Watch

TTL_S = 3600.0
"""How long an unused session is remembered. By then most prefix caches have forgotten it too."""

DNS_INTERVAL_S = 5.0

AffinityFactory = Callable[[Role, Counts], Affinity]
"""Makes the store of one role."""


@dataclass(slots=True)
class _Opened:
    """An event loop's stake in the pool."""

    users: int = 0
    task: asyncio.Task[None] | None = None


class WorkerPool:
    """Workers of both roles, sticky each for itself. Usable from any event loop and thread; each opens it for itself with ``async with``
    (or ``with``), which probes the workers while it lasts. Unopened it works too, judging workers by the outcomes it is told alone.

    Args:
        workers: Those that serve the agent's model: URLs or :class:`WorkerSpec`.
        gate_workers: Those of a decision model of its own; None when the agent's model answers the questions, on the agent's worker.
        affinity: ``"memory"``, a Redis URL (see :class:`warmgate.workers.affinity.redis.RedisAffinity`), or a function that makes a store.
        namespace: Deployments that share a Redis differ in it. It also enters the hash that places sessions.
        secret: Keys the hash of session ids; the same in all processes that share sessions.
        ttl_s: See :data:`TTL_S`.
        bound: See :data:`warmgate.workers.hashing.BOUND`.
        max_sessions: Most sessions remembered for each role; None takes the store's own limit.
        health: How workers are judged.
        gateway: The gateway that ``workers`` are, by name (``vllm-router``, ``smg``) or as a :class:`Gateway`; None when they are engines.
        gate_gateway: The same for ``gate_workers``.
        probe_headers: Sent with probes.
        dns_interval_s: Seconds between resolutions of ``dns+http://`` names.
        listener: Hears everything that is counted.
        clock: Seconds; a test hands in its own.

    Raises:
        OptionError: Something in the above cannot be used.
    """

    def __init__(
        self,
        workers: Sequence[WorkerSpec | str],
        gate_workers: Sequence[WorkerSpec | str] | None = None,
        *,
        affinity: str | AffinityFactory = "memory",
        namespace: str = "warmgate",
        secret: bytes = b"",
        ttl_s: float = TTL_S,
        bound: float = BOUND,
        max_sessions: int | None = None,
        health: Rule | None = None,
        gateway: Gateway | str | None = None,
        gate_gateway: Gateway | str | None = None,
        probe_headers: Mapping[str, str] | None = None,
        dns_interval_s: float = DNS_INTERVAL_S,
        listener: Listener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("ttl_s", ttl_s), ("dns_interval_s", dns_interval_s)):
            if not 0 < value < math.inf:
                raise OptionError(f"must be a positive number of seconds, not {value!r}", where=name)
        rule = health or Rule()
        self.counts = Counts(listener)
        self._namespace = namespace
        self._secret = secret
        self._ttl_s = ttl_s
        make = _factory(affinity, namespace, bound, max_sessions, clock)
        listed: dict[Role, Sequence[WorkerSpec | str]] = {"workers": workers}
        if gate_workers is not None:
            listed["gate_workers"] = gate_workers
        self._fleets = {
            role: Fleet(role, distinct(specs, role), rule=rule, counts=self.counts, clock=clock) for role, specs in listed.items()
        }
        self._stores = {role: make(role, self.counts) for role in listed}
        self._gateways = {"workers": gateway_of(gateway), "gate_workers": gateway_of(gate_gateway)}
        self._routed = Routed(self.counts)
        self._prober = Prober(probe_headers)
        self._watch = Watch(tuple(self._fleets.values()), tuple(self._stores.values()), self._prober, self.counts, dns_interval_s)
        self._opened = PerLoop(_Opened)

    # -- sessions ------------------------------------------------------------------------------------------------------------------

    async def acquire(self, session: str, role: Role = "workers", *, timeout_s: float | None = None) -> Binding:
        """The session's worker: the one it has, or a new one when it has none or that one is lost, drained or gone.

        Args:
            session: The caller's id of the conversation. Stored as a hash only.
            role: Which pool; with one pool for both, ``gate_workers`` is ``workers``.
            timeout_s: Longest wait for an affinity store elsewhere, where that is less than the store's own short limit.

        Raises:
            OptionError: The session is empty or no text.
            Unreachable: No name of the pool has ever resolved to a worker.
        """
        role = self._role(role)
        fleet = self._fleets[role]
        key = session_key(session, namespace=self._namespace, role=role, secret=self._secret)
        candidates = fleet.candidates(key)
        if not candidates:
            await self._watch.resolve(fleet)
            candidates = fleet.candidates(key)
            if not candidates:
                names = ", ".join(spec.url for spec in fleet.names)
                raise Unreachable("the name resolves to no worker", where=names, mend="check the name, and that workers run behind it")
        binding = await self._stores[role].bind(key, candidates, self._ttl_s, timeout_s=timeout_s)
        if binding.fresh:
            fleet.placed(binding.worker)
            self.counts.add("session_moved" if binding.moves else "session_placed", role=role, reason=binding.reason)
        gateway = self._gateways[role]
        headers = gateway.headers(session) if gateway is not None else binding.headers
        return replace(binding, restarts=fleet.restarts(binding.worker), headers=headers)

    async def rebind(self, session: str, failed: Binding, role: Role = "workers", *, timeout_s: float | None = None) -> Binding | None:
        """Where to make a session's call again that found no connection, or lost it before its reply began.

        For clients other than the transports, which do this by themselves.

        Args:
            session: As in :meth:`acquire`.
            failed: The binding under which the call was made.
            role: As in :meth:`acquire`.
            timeout_s: Longest time to look whether the worker is dead; at most a few seconds without.

        Returns:
            The session's new binding; None where its worker is alive, or was not found dead in time: the fault is the caller's, and the
            session keeps its prefix.
        """
        try:
            async with asyncio.timeout(timeout_s):
                if not await self.found_dead(failed.worker):
                    return None
        except TimeoutError:
            return None
        binding = await self.acquire(session, role, timeout_s=timeout_s)
        if binding.worker == failed.worker:
            return None
        self.counts.add("retried_elsewhere", role=self._role(role))
        return binding

    async def release(self, session: str, role: Role = "workers") -> None:
        """Forget a session that has ended."""
        role = self._role(role)
        await self._stores[role].release(session_key(session, namespace=self._namespace, role=role, secret=self._secret))

    async def base_url(self, session: str, role: Role = "workers") -> str:
        """The session's worker, for clients that take a URL alone. Ask again at every turn: the worker may have been lost."""
        return (await self.acquire(session, role)).worker

    async def anyone(self, role: Role = "workers") -> str:
        """An open worker for a call that belongs to no session, each in turn.

        Raises:
            Unreachable: As :meth:`acquire`.
        """
        fleet = self._fleets[self._role(role)]
        return fleet.spread() or (await self.acquire("-", role)).worker

    # -- workers -------------------------------------------------------------------------------------------------------------------

    def report(self, worker: str, outcome: Outcome) -> None:
        """Say how a call to a worker ended. Cheap; from any thread."""
        for fleet in self._fleets.values():
            fleet.reported(worker, outcome)

    async def found_dead(self, worker: str) -> bool:
        """Look at a worker now. True when it is lost; its sessions then move at their next :meth:`acquire`. At most a few seconds."""
        fleets = [fleet for fleet in self._fleets.values() if fleet.member(worker) is not None]
        return all([await self._watch.check(fleet, worker) for fleet in fleets])

    def drain(self, worker: str, grace_s: float = 0.0) -> None:
        """Give a worker no new sessions. Those it has leave at their first turn after ``grace_s`` seconds, with the reason ``drained``.

        Raises:
            OptionError: No such worker.
        """
        for fleet in self._having(worker):
            fleet.drain(worker, grace_s)

    def resume(self, worker: str) -> None:
        """End a drain. Sessions that left stay where they are.

        Raises:
            OptionError: No such worker.
        """
        for fleet in self._having(worker):
            fleet.resume(worker)

    def kv_sequence(self, worker: str, number: int) -> None:
        """Hand in the sequence number of a KV event: one below the last gives a restart away before the next probe does."""
        for fleet in self._fleets.values():
            fleet.sequence(worker, number)

    def status(self) -> list[WorkerStatus]:
        """All workers of all roles, as of now."""
        return [status for fleet in self._fleets.values() for status in fleet.status()]

    async def ready(self, timeout_s: float, *, least: int = 1) -> bool:
        """Wait until at least ``least`` workers of every role are ready. False when the time is up. The pool must be open."""
        ends = time.monotonic() + timeout_s
        while True:
            enough = all(sum(s.state == "ready" and not s.draining for s in fleet.status()) >= least for fleet in self._fleets.values())
            if enough or time.monotonic() >= ends:
                return enough
            await asyncio.sleep(0.05)

    def saw(self, session: str, headers: Mapping[str, str], role: Role = "workers") -> str | None:
        """Read from a reply which worker a gateway sent the session to. None where it does not say."""
        role = self._role(role)
        gateway = self._gateways[role]
        if gateway is None or gateway.answers_with is None:
            return None
        key = session_key(session, namespace=self._namespace, role=role, secret=self._secret)
        return self._routed.saw(key, headers.get(gateway.answers_with), role)

    # -- life ----------------------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect the store, resolve names, probe every worker once, and keep doing so in this event loop until :meth:`aclose`.

        Raises:
            OptionError: The affinity store refuses us.
        """
        opened = self._opened.get()
        opened.users += 1
        if opened.users == 1:
            try:
                for store in self._stores.values():
                    await store.open()
                await self._watch.first()
            except BaseException:
                await self.aclose()
                raise
            opened.task = asyncio.create_task(self._watch.run(), name="warmgate-workers")
        return self

    async def aclose(self) -> None:
        """End what this event loop runs for the pool and close its connections. Other loops, and the sessions, are not touched."""
        opened = self._opened.get()
        opened.users -= 1
        if opened.users > 0:
            return
        self._opened.pop()
        if opened.task is not None:
            opened.task.cancel()
            await asyncio.wait([opened.task])
        await self._prober.aclose()
        for store in self._stores.values():
            await store.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- the same for code that cannot await (see warmgate.engines.portal) ----------------------------------------------------------

    def acquire_sync(self, session: str, role: Role = "workers") -> Binding:
        """See :meth:`acquire`."""
        return get_portal().run(self.acquire(session, role))

    def release_sync(self, session: str, role: Role = "workers") -> None:
        """See :meth:`release`."""
        get_portal().run(self.release(session, role))

    def base_url_sync(self, session: str, role: Role = "workers") -> str:
        """See :meth:`base_url`."""
        return get_portal().run(self.base_url(session, role))

    def anyone_sync(self, role: Role = "workers") -> str:
        """See :meth:`anyone`."""
        return get_portal().run(self.anyone(role))

    def found_dead_sync(self, worker: str) -> bool:
        """See :meth:`found_dead`."""
        return get_portal().run(self.found_dead(worker))

    def close(self) -> None:
        """See :meth:`aclose`: ends what ``with`` began."""
        get_portal().run(self.aclose())

    def __enter__(self) -> Self:
        get_portal().run(self.open())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _role(self, role: Role) -> Role:
        if role not in ROLES:
            raise OptionError(f"{role!r} is no role", where="role", mend=f"use {' or '.join(ROLES)}")
        return role if role in self._fleets else "workers"

    def _having(self, worker: str) -> list[Fleet]:
        having = [fleet for fleet in self._fleets.values() if fleet.member(worker) is not None]
        return having or [self._fleets["workers"]]  # which says what is wrong


def _factory(
    affinity: str | AffinityFactory, namespace: str, bound: float, max_sessions: int | None, clock: Callable[[], float]
) -> AffinityFactory:
    limit = {} if max_sessions is None else {"max_entries": max_sessions}
    if not isinstance(affinity, str):
        return affinity
    if affinity == "memory":
        return lambda role, counts: MemoryAffinity(bound=bound, counts=counts, role=role, clock=clock, **limit)
    from warmgate.workers.affinity.redis import RedisAffinity

    return lambda role, counts: RedisAffinity(affinity, namespace=namespace, bound=bound, counts=counts, role=role, clock=clock, **limit)

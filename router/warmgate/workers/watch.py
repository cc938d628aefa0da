"""What runs beside the calls while a pool is open: probes, start times, DNS, and the mending of the affinity store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from warmgate.engines.events import emit
from warmgate.errors import one_line
from warmgate.workers.affinity import Affinity
from warmgate.workers.counts import Counts
from warmgate.workers.discovery import resolve
from warmgate.workers.fleet import Fleet, Member
from warmgate.workers.probe import Prober

TICK_S = 0.25

RECHECK_S = 0.1
"""Between the probes of a check."""

_STARTED_TIMEOUT_S = 5.0


class Watch:
    """Looks after fleets. Any number of event loops may run one: what is due is claimed, so each thing is done once.

    Args:
        fleets: What to look after.
        stores: Their affinity stores.
        prober: How to look.
        counts: Where failures of DNS are counted.
        dns_interval_s: Seconds between resolutions of a name.
    """

    def __init__(self, fleets: Sequence[Fleet], stores: Sequence[Affinity], prober: Prober, counts: Counts, dns_interval_s: float) -> None:
        self._fleets = fleets
        self._stores = stores
        self._prober = prober
        self._counts = counts
        self._dns_interval_s = dns_interval_s
        self._mending: set[int] = set()

    async def first(self) -> None:
        """Resolve every name and probe every worker once, so that the first session does not meet a dead one."""
        for fleet in self._fleets:
            await self.resolve(fleet)
        await asyncio.gather(*(self._probe(fleet, member) for fleet in self._fleets for member in fleet.due()))

    async def run(self) -> None:
        """Until cancelled. Nothing is left running then."""
        tasks: set[asyncio.Task[None]] = set()

        def begin(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.create_task(_guarded(work))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        try:
            while True:
                for fleet in self._fleets:
                    if fleet.resolution_due(self._dns_interval_s):
                        begin(self.resolve(fleet))
                    for member in fleet.due():
                        begin(self._probe(fleet, member))
                for store in self._stores:
                    if id(store) not in self._mending:
                        self._mending.add(id(store))
                        begin(self._mend(store))
                await asyncio.sleep(TICK_S)
        finally:
            left = list(tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def resolve(self, fleet: Fleet) -> None:
        """Ask DNS who is in a fleet. Without an answer the last one stays in force."""
        if not fleet.names:
            return
        try:
            answers = [await resolve(name) for name in fleet.names]
        except (OSError, UnicodeError) as fault:
            self._counts.add("discovery_failed", role=fleet.role)
            emit(logging.WARNING, "worker.discovery_failed", role=fleet.role, why=one_line(str(fault), 160))
            return
        fleet.resolved([spec for answer in answers for spec in answer])

    async def check(self, fleet: Fleet, url: str) -> bool:
        """Look at a worker now, as often as it takes to judge it. Calls that come meanwhile wait for the same verdict.

        Returns:
            Whether it is lost.
        """
        member = fleet.member(url)
        if member is None:
            return True
        async with member.checks.get():
            for attempt in range(fleet.rule.fall):
                if member.health.state == "lost":
                    return True
                if attempt:
                    await asyncio.sleep(RECHECK_S)
                found = await self._prober.look(url, fleet.rule.path, fleet.rule.timeout_s)
                if found is None:
                    return False
                fleet.probed(member, found)
                if found == "alive":
                    return False
            return member.health.state == "lost"

    async def _probe(self, fleet: Fleet, member: Member) -> None:
        try:
            found = await self._prober.look(member.url, fleet.rule.path, fleet.rule.timeout_s)
            if found is not None:
                fleet.probed(member, found)
            if found == "alive" and fleet.start_due(member):
                at = await self._prober.started_at(member.url, _STARTED_TIMEOUT_S)
                if at is not None:
                    fleet.started(member, at)
        finally:
            member.watched = False

    async def _mend(self, store: Affinity) -> None:
        try:
            await store.maintain()
        finally:
            self._mending.discard(id(store))


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    """One failed look must not end the watch."""
    try:
        await work
    except Exception as fault:  # noqa: BLE001 -- reported, and the next look follows
        emit(logging.ERROR, "worker.watch_failed", why=one_line(f"{type(fault).__name__}: {fault}", 200))

"""How long things took: the hop alone, and the whole examination."""

from __future__ import annotations

import time

from warmgate.doctor.check import Check, passed, warned
from warmgate.doctor.visit import Visit
from warmgate.errors import EngineError

_TRIPS = 3
FAR_S = 0.05
"""A hop this long is worth a word: a decision waits for it before every call."""


async def clock(visit: Visit) -> Check:
    """The shortest of a few round trips that compute nothing, and what the examination took and sent."""
    name, where = "clock", visit.where("GET", "/health")
    trips: list[float] = []
    for _ in range(_TRIPS):
        begun = time.monotonic()
        try:
            await visit.call("GET", "/health")
        except EngineError:
            break
        trips.append(time.monotonic() - begun)
    facts = visit.facts
    facts.hop_s = round(min(trips), 6) if trips else None
    spent = visit.deadline.seconds - visit.deadline.remaining()
    hop = f"a round trip takes {min(trips) * 1000:.1f} ms, " if trips else ""
    decision = f"a cold decision {facts.decision_s * 1000:.0f} ms, " if facts.decision_s is not None else ""
    cost = f"{visit.tally.requests} requests, {visit.tally.tokens:,} tokens"
    seen = f"{hop}{decision}this examination {spent:.1f} of {visit.deadline.seconds:g} s, {cost}"
    if visit.deadline.passed:
        return warned(name, f"{seen}: the time was up", mend="allow more with --timeout", where=where)
    if facts.hop_s is not None and facts.hop_s > FAR_S:
        return warned(name, seen, mend="put the gate nearer to the worker: every decision waits for this round trip", where=where)
    return passed(name, seen, where=where)

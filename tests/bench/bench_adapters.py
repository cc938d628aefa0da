"""What a gate adds to a turn of a LangGraph agent with 100 tools, while 64 sessions talk at once; and whether any of them hears another.

A turn is one call of the agent's model and what it proposes. The same agent without a gate runs in the same process, round by round; stand-ins
run in processes of their own. Time is CPU time of this process, since 64 sessions at once wait for each other by the clock, less that of the
decision's own request. ``WARMGATE_BENCH_SESSIONS`` and ``WARMGATE_BENCH_TURNS`` make it smaller.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench.adapter_load import TOOLS, Meter, Talk, Weighed, gated, plain, script, settings, standins, tools
from tests.bench.timing import Line, Lines
from warmgate import Gate
from warmgate.alignment.template import ChatTemplate

SESSIONS = int(os.environ.get("WARMGATE_BENCH_SESSIONS", "64"))
CALLS = 2
"""Turns of a round: the user says something, the model calls a tool; the tool has run, the model answers."""
ROUNDS = int(os.environ.get("WARMGATE_BENCH_TURNS", "50")) // CALLS
EARLY = min(10 // CALLS, ROUNDS - 2)
BOUND_MS = 5.0
KEPT = 16_384
"""Bytes that a gate may keep of a turn: of this conversation's, ids and hashes of some 300 new tokens."""


@dataclass
class Measured:
    """One agent's rounds.

    Attributes:
        talk: Its sessions.
        hop: What its decisions' own requests took.
        ms: CPU of a turn without those, round by round.
        hops: CPU of those in a turn, round by round.
        grown: Bytes that the process grew by in rounds after the early ones.
        ran: What its tools ran.
    """

    talk: Talk
    hop: Meter
    ran: list[str]
    ms: list[float] = field(default_factory=list[float])
    hops: list[float] = field(default_factory=list[float])
    grown: int = 0

    async def round(self, number: int) -> None:
        """Two turns of every session, all at once."""
        turns = len(self.talk.sessions) * CALLS
        held, began, hopped = _resident(), time.process_time(), self.hop.cpu
        await self.talk.turn(number)
        hop = self.hop.cpu - hopped
        self.ms.append((time.process_time() - began - hop) / turns * 1e3)
        self.hops.append(hop / turns * 1e3)
        await self.talk.drop_older()
        if number >= EARLY:
            self.grown += _resident() - held


def run() -> Lines:
    names = [f"session{number}" for number in range(SESSIONS)]
    with tempfile.TemporaryDirectory() as folder, standins(2, script(names, ROUNDS), Path(folder)) as urls:
        yield from asyncio.run(_measured(urls, names))


async def _measured(urls: list[str], names: list[str]) -> list[Line]:
    async with AsyncExitStack() as stack:
        ran: list[str] = []
        other = await stack.enter_async_context(Gate(settings(urls, follow="off")))
        without = Measured(Talk(plain(other, tools(ran)), names), Meter(), ran)
        found = {"a template given": ChatTemplate.default(), "a stock server's renderings": None}
        withs: dict[str, Measured] = {}
        for what, template in found.items():
            hop, ran = Meter(), []
            policies = Gate.from_settings(settings(urls))
            gate = Gate(
                settings(urls),
                mounts=policies.mounts,
                calls=policies.calls,
                template=template,
                chain=lambda worker, hop=hop: Weighed(worker, hop),  # type: ignore[misc]
            )
            await stack.enter_async_context(gate)
            withs[what] = Measured(Talk(gated(gate, tools(ran)), names), hop, ran)
        early = 0
        for number in range(ROUNDS):
            for one in (without, *withs.values()):
                await one.round(number)
            if number == EARLY:
                early = _resident()
        late = _resident()
    return _lines(without, withs, early, late)


def _lines(without: Measured, withs: dict[str, Measured], early: int, late: int) -> list[Line]:
    lines: list[Line] = []
    turns = SESSIONS * ROUNDS * CALLS
    for what, one in withs.items():
        wrong = one.talk.wrong
        lines.append((f"{SESSIONS} sessions at once, {ROUNDS * CALLS} turns each, {TOOLS} tools, {what}: {len(wrong)} of {turns:,} turns heard another session "
                      f"{wrong[:2] if wrong else ''}".rstrip(), not wrong and sorted(one.ran) == sorted(without.ran)))  # fmt: skip
        added = [a - b for a, b in zip(one.ms, without.ms, strict=True)]
        median = statistics.median(added)
        lines.append((f"  CPU of a turn: {statistics.median(without.ms):.1f} ms without a gate; the gate adds {median:.1f} ms in the median (bound {BOUND_MS:g} with a template), "
                      f"{statistics.median(added[1:6]):.1f} early, {statistics.median(added[-5:]):.1f} at the end; the decision's own requests {statistics.median(one.hops):.1f} ms besides",
                      median <= BOUND_MS if what == "a template given" else None))  # fmt: skip
        kept = (one.grown - without.grown) / SESSIONS / CALLS / max(1, ROUNDS - EARLY)
        lines.append((f"  memory: the process grew by {kept / 1e3:.1f} kB a turn and session more than without a gate, from turn {EARLY * CALLS} on (bound {KEPT / 1e3:.1f})",
                      kept <= KEPT))  # fmt: skip
    lines.append(
        (
            f"the whole process: {early / 1e6:.0f} MB after turn {(EARLY + 1) * CALLS}, {late / 1e6:.0f} MB at the end, checkpoints of all agents included",
            None,
        )
    )
    return lines


def _resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss

"""One of two workers is killed while agents work, and comes back. What is lost, who moves, what the others keep."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

from tests.bench.engine.lab import BOOTS, Call, Held, Lab, call_of
from tests.bench.engine.run import settle
from tests.bench.engine.talk import Talk, prose, talk, tools
from tests.bench.timing import Line
from tests.engine.rig.server import VllmServer
from warmgate.gate import Gate
from warmgate.turn import Turn
from warmgate.workers import AsyncStickyTransport

SESSIONS, BEFORE, AFTER, AGAIN = 8, 3, 3, 2
"""Sessions; turns of each that are over, on average, when the worker dies; turns after that; turns after it is back."""
SALT = "kill"


@dataclass
class Seen:
    """What happened, over all sessions."""

    decisions: int = 0
    unanswered: list[str] = field(default_factory=list)
    calls: int = 0
    lost: list[str] = field(default_factory=list)
    """Agent calls that failed before their stream began."""
    cut: int = 0
    """Streams that broke off: their first bytes were seen, so nobody may repeat them but the agent."""
    where: dict[str, list[str]] = field(default_factory=dict)
    """Session → worker of each turn."""
    reusable: Counter[str] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)


class Agents:
    """Sessions at work, all at once.

    Args:
        lab: The workers.
        gate: Decides, and whose pool the agents' transport asks.
        talks: The sessions.
    """

    def __init__(self, lab: Lab, gate: Gate, talks: list[Talk]) -> None:
        self.lab = lab
        self.gate = gate
        self.talks = talks
        self.halfway = asyncio.Event()
        self.seen = Seen(where={one.name: [] for one in talks})
        self.held = {one.name: Held(lab.block) for one in talks}
        self.client = httpx.AsyncClient(transport=AsyncStickyTransport(gate.pool), timeout=120)

    async def work(self, turns: range) -> None:
        """Every session takes these turns, each at its own pace."""

        async def one(each: Talk) -> None:
            for turn in turns:
                await self._turn(each, turn)

        await asyncio.gather(*(one(each) for each in self.talks))

    async def _turn(self, each: Talk, turn: int) -> None:
        seen, messages = self.seen, each.at(turn)
        decision = await self.gate.decide(Turn(each.name, messages, each.tools, cache_salt=SALT, user_turn=turn))
        seen.decisions += 1
        if not any(read.outcome == "answered" for read in decision.reads if read.questions):
            seen.unanswered.append(f"{each.name}, turn {turn}: {'; '.join(read.reason for read in decision.reads)}")
        call = await self._call(each, messages, decision.headers)
        seen.calls += 1
        if seen.calls == SESSIONS * BEFORE:
            self.halfway.set()
        binding = await self.gate.pool.acquire(each.name)
        seen.where[each.name].append(binding.worker)
        if call is None:
            return
        prompt = await self.ids(each, turn)
        key = f"{binding.moves} moves"
        if turn:
            seen.reusable[key] += self.held[each.name].reusable(prompt)
            seen.cached[key] += min(call.cached, self.held[each.name].reusable(prompt))
        self.held[each.name].add(prompt)

    async def ids(self, each: Talk, turn: int) -> tuple[int, ...]:
        """By the worker that is not killed."""
        body = {"model": self.lab.model, "messages": each.at(turn), "tools": each.tools}
        reply = await self.lab.client.post(f"{self.lab.urls[1]}/tokenize", json=body)
        return tuple(reply.json()["tokens"])

    async def _call(self, each: Talk, messages: list[dict[str, object]], headers: dict[str, str]) -> Call | None:
        body = {
            "model": self.lab.model,
            "messages": messages,
            "tools": each.tools,
            "max_tokens": 12,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": SALT,
        }
        begun, usage = False, None
        try:
            async with self.client.stream("POST", "http://session.invalid/v1/chat/completions", json=body, headers=headers) as reply:
                reply.raise_for_status()
                begun = True
                async for line in reply.aiter_lines():
                    if line.startswith("data: {"):
                        usage = json.loads(line.removeprefix("data: ")).get("usage") or usage
        except httpx.HTTPError as fault:
            if begun:
                self.seen.cut += 1
            else:
                self.seen.lost.append(f"{each.name}: {fault!r}")
        return call_of(usage) if usage else None


def kill(server: VllmServer) -> None:
    """As the out-of-memory killer does, to every process of it at once."""
    process = server._process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    server.stop()  # reaps


async def lines(lab: Lab) -> AsyncIterator[Line]:
    draw = random.Random("kill")
    system, catalogue = prose(draw, 600), tools(draw)
    turns = BEFORE + AFTER + AGAIN
    talks = [talk(f"kill {n}", system=system, catalogue=catalogue, turns=turns, first=150, each=260) for n in range(SESSIONS)]
    victim, other = lab.servers
    async with lab.gate() as gate:
        await settle(gate, lab.urls)
        agents = Agents(lab, gate, talks)
        seen = agents.seen
        first = {one.name: (await gate.pool.acquire(one.name)).worker for one in talks}
        theirs = [name for name, worker in first.items() if worker == victim.url]

        async def killer() -> None:
            await agents.halfway.wait()
            await asyncio.to_thread(kill, victim)

        await asyncio.gather(agents.work(range(BEFORE + AFTER)), killer())
        yield f"{SESSIONS} sessions at once, {len(theirs)} of them on the worker that dies after {SESSIONS * BEFORE} calls", bool(theirs)
        for fault in [*seen.unanswered[:3], *seen.lost[:3]]:
            yield fault, None
        yield f"decisions without an answer {len(seen.unanswered)} of {seen.decisions} (bound 0)", not seen.unanswered
        yield (
            f"agent calls lost before their stream began {len(seen.lost)} of {seen.calls} (bound 0); "
            f"made again elsewhere {gate.pool.counts.total('retried_elsewhere')}; streams cut {seen.cut}",
            not seen.lost,
        )
        moves = {one.name: (await gate.pool.acquire(one.name)).moves for one in talks}
        yield (
            f"moves: {sum(moves[name] for name in theirs)} by the dead worker's {len(theirs)} sessions, "
            f"{sum(moves[name] for name in moves if name not in theirs)} by the others",
            all(moves[name] == (name in theirs) for name in moves),
        )
        stayed, moved = "0 moves", "1 moves"
        yield (
            f"of what a session's own earlier calls left: {seen.cached[stayed]:,} of {seen.reusable[stayed]:,} tokens found by sessions "
            f"that stayed (bound all), {seen.cached[moved]:,} of {seen.reusable[moved]:,} by those that moved",
            seen.cached[stayed] == seen.reusable[stayed],
        )
        await asyncio.get_running_loop().run_in_executor(BOOTS, victim.start)
        back = await gate.pool.ready(30, least=2)
        await agents.work(range(BEFORE + AFTER, turns))
        later = {one.name: await gate.pool.acquire(one.name) for one in talks}
        yield (
            f"back again: {sum(binding.moves - moves[name] for name, binding in later.items())} moves in {SESSIONS * AGAIN} more turns, "
            f"all on {len({binding.worker for binding in later.values()})} worker; restarts noticed {gate.pool.counts.total('worker_restart')}",
            back and all(binding.moves == moves[name] and binding.worker == other.url for name, binding in later.items()),
        )
        yield f"over the whole run: {len(seen.unanswered)} decisions and {len(seen.lost)} calls lost", not seen.unanswered and not seen.lost
        await agents.client.aclose()

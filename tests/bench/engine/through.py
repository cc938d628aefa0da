"""Agents behind a gate as users run it, every prediction held against the engine's own account.

``Gate.decide``, then the agent's call over the gate's transport, then ``Gate.observe`` with the reply; nothing is fed to a tracker by hand.
Of a call the engine reports the cached tokens; of a decision's reads it only counts, so these are compared by its counters.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from tests.bench.engine.talk import documents
from tests.engine.rig.server import VllmServer
from warmgate.answers import Answer
from warmgate.decision import Mounts
from warmgate.gate import Gate
from warmgate.prefix.counters import Snapshot
from warmgate.questions import Choice, Noul, Question, Score
from warmgate.settings import Settings
from warmgate.telemetry.protocol import CallSeen, ReadSeen, Silent
from warmgate.turn import Turn
from warmgate.workers.transports import AsyncStickyTransport

Message = dict[str, Any]

QUESTIONS: dict[str, Question] = {
    "set": Choice(instructions="Which toolset does the next step need?", criteria={"files": "read and write", "shell": "run"}),
    "shell": Noul(instructions="Does the next step need a shell?"),
    "risk": Score(instructions="How much can the next step break?", criteria=("nothing", "little", "much")),
}
TOOLS: list[Message] = [
    {
        "type": "function",
        "function": {"name": name, "description": f"to {name} a file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
    }
    for name in ("read", "write", "run")
]  # fmt: skip


class Asks:
    """A mount policy that asks one to three of the questions, at most turns, and mounts whatever there is."""

    name, version = "asks", "1"

    def __init__(self, seed: object) -> None:
        self._dice = random.Random(f"asks {seed}")

    def questions(self, turn: Turn, mounted: object) -> Mapping[str, Question]:
        del turn, mounted
        return dict(self._dice.sample(sorted(QUESTIONS.items()), self._dice.randrange(1, 4)))

    def settle(self, turn: Turn, mounted: object, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        del mounted, answers, widen
        return Mounts(tools=tuple(tool["function"]["name"] for tool in turn.tools), strategy="freeze", changed=False, reason="frozen")

    def wants_again(self, turn: Turn, mounted: object) -> bool:
        del turn, mounted
        return self._dice.random() < 0.6


@dataclass
class Account:
    """What was predicted and what the engine says, in tokens. ``wrong`` holds what disagrees, ``missing`` what was not predicted at all."""

    calls: int = 0
    reads: int = 0
    decisions: int = 0
    call_predicted: int = 0
    call_cached: int = 0
    call_off: int = 0
    read_predicted: int = 0
    read_hits: int = 0
    wrong: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])

    @property
    def exact(self) -> bool:
        """Whether everything was predicted, and to the token."""
        return not self.wrong and not self.missing and self.call_predicted == self.call_cached and self.read_predicted == self.read_hits

    def __str__(self) -> str:
        said = f"{self.calls} calls: {self.call_predicted:,} cached tokens predicted, {self.call_cached:,} reported; "
        said += f"{self.reads} reads: {self.read_predicted:,} hits predicted, {self.read_hits:,} counted"
        for what, listed in (("wrong", self.wrong), ("not predicted", self.missing)):
            said += f"; {len(listed)} {what}: {'; '.join(listed[:3])}" if listed else ""
        return said


class _Seen(Silent):
    """What the gate tells its listeners, by session; told at once."""

    inline = True

    def __init__(self) -> None:
        self.reads: dict[str, list[ReadSeen]] = {}
        self.calls: dict[str, CallSeen] = {}

    def read(self, fact: ReadSeen) -> None:
        self.reads.setdefault(fact.session, []).append(fact)

    def agent_call(self, fact: CallSeen) -> None:
        self.calls[fact.session] = fact


@dataclass
class _Session:
    key: str
    salt: str | None
    messages: list[Message]
    tools: Sequence[Message] = field(default_factory=lambda: TOOLS)


class Through:
    """A gate on one worker, its agents and the account of both. Use it with ``async with``.

    Args:
        server: The worker.
        alone: Whether requests come one after another, so that each decision's reads can be told by the worker's counters.
        seed: Of everything drawn.
        more: Settings of the gate, beside the worker's.
    """

    def __init__(self, server: VllmServer, *, alone: bool = True, seed: object = None, **more: Any) -> None:
        self._server = server
        self._alone = alone
        self.seed = seed if seed is not None else random.randrange(1 << 30)
        given = {"deadline_ms": 60_000, "label_mass_floor": 0, "engines": ("systemone",), "policies": (), **more}
        self._seen = _Seen()
        self.gate = Gate(Settings(workers=[server.url], model=server.model, **given), mounts=Asks(self.seed), telemetry=[self._seen])
        self.account = Account()
        self._dice = random.Random(f"through {self.seed}")
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.gate)
        agents = httpx.AsyncClient(transport=AsyncStickyTransport(self.gate.pool), base_url="http://session.invalid", timeout=120)
        self._agents = await self._stack.enter_async_context(agents)
        self._direct = await self._stack.enter_async_context(httpx.AsyncClient(base_url=self._server.url, trust_env=False, timeout=120))
        await self._ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _ready(self) -> None:
        """Until the gate knows the worker: what it finds out once is no agent's traffic."""
        watch, url = self.gate.means.watch, self._server.url
        for _ in range(1200):
            turn = Turn("ready", [{"role": "user", "content": "Settle."}], TOOLS[:1], cache_salt=f"ready {self.seed}")
            following = watch.following
            status = following.status(url) if following is not None else None
            known = self.gate.settings.alignment != "auto" or any(worker == url for worker, _ in self.gate.means.findings.all())
            if known and watch.follows(url) and (status is None or status.state == "fresh"):
                self._before = await self._hits()
                return
            if not known:
                await self.gate.decide(turn)
            elif not watch.follows(url):
                watch._tried.clear()  # a busy machine may have answered too late for the first look
                await watch._add(url)
            await asyncio.sleep(0.05)
        raise AssertionError(f"the gate does not come to know its worker: {watch.reasons}, {self.gate.means.findings.all()}")

    async def _hits(self) -> int:
        """The worker's count of tokens found in its cache, once it stands still: it follows a reply."""
        before = -1
        while True:
            page = Snapshot.of((await self._direct.get("/metrics")).text)
            if page.hits == before and not page.busy:
                return before
            before = page.hits
            await asyncio.sleep(0.01)

    async def _heard(self) -> None:
        """Until no event is under way: on a busy machine the worker's publisher and our reader may both be later than its reply."""
        following = self.gate.means.watch.following
        reader = following.readers.get(self._server.url) if following is not None else None
        before = -1
        while reader is not None and reader.intake.batches != before:
            before = reader.intake.batches
            await asyncio.sleep(0.05)

    async def talk(self, *, sessions: int, rounds: int, words: int = 60) -> None:
        """Sessions taking turns: salted and not, system prompts shared, tools changed now and then, tool turns, histories cut."""
        made = [self._session(number, words) for number in range(sessions)]
        for number in range(rounds):
            for one in made:
                await self._round(one, number, words)

    async def crowd(self, clients: int, *, rounds: int, words: int = 60) -> None:
        """The same with many clients at once, two sessions each; reads are compared as one sum."""
        before = await self._hits()

        async def client(number: int) -> None:
            own = [self._session(2 * number + second, words) for second in range(2)]
            for turn in range(rounds):
                for one in own:
                    await self._round(one, turn, words)

        cached = self.account.call_cached
        await asyncio.gather(*(client(number) for number in range(clients)))
        self.account.read_hits += await self._hits() - before - (self.account.call_cached - cached)

    def _session(self, number: int, words: int) -> _Session:
        salt = f"tenant {self.seed} {number}" if number % 3 == 2 else None
        system = {"role": "system", "content": f"You are agent {number % 2}. {self._text(words, f'{self.seed} {number % 2}')}"}
        return _Session(f"{self.seed} {number} {self._dice.random()}", salt, [system])

    async def _round(self, one: _Session, number: int, words: int) -> None:
        dice = self._dice
        if len(one.messages) > 12:
            del one.messages[1:]
        if dice.random() < 0.2:
            one.tools = dice.choice((TOOLS, TOOLS[:1], TOOLS[:2]))
        one.messages.append({"role": "user", "content": self._text(dice.randrange(4, words))})
        answer = await self._turn(one)
        if dice.random() < 0.5:
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{number}.txt"}}'}}
            one.messages.append({"role": "assistant", "content": answer, "tool_calls": [call]})
            one.messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": self._text(words // 2)})
            answer = await self._turn(one)
        one.messages.append({"role": "assistant", "content": answer})

    async def _turn(self, one: _Session) -> str:
        """One turn of an agent; its answer's text."""
        account, seen, messages = self.account, self._seen, list(one.messages)
        turn = Turn(one.key, messages, one.tools, cache_salt=one.salt)
        before = await self._hits() if self._alone else 0
        if self._alone:
            await self._heard()
        decision = await self.gate.decide(turn)
        account.decisions += 1
        predicted = reads = 0
        for fact in seen.reads.pop(one.key, []):
            reads += fact.questions
            if fact.outcome != "answered" or not fact.survival:
                account.missing.append(f"read of {fact.request} ({fact.outcome}; {'; '.join(decision.reasons)})")
            tracker = self.gate.means.watch.tracker
            assert tracker is not None
            predicted += tracker.predicted_hits([outcome.expected for outcome in fact.survival])
        account.reads += reads
        account.read_predicted += predicted
        if self._alone:
            hits = await self._hits() - before
            account.read_hits += hits
            if hits != predicted:
                account.wrong.append(f"{reads} reads of {decision.id}: {predicted} predicted, {hits} counted")
        body = {
            "model": self._server.model,
            "messages": messages,
            "tools": one.tools,
            "max_tokens": self._dice.randrange(1, 25),
            "return_token_ids": True,
        }
        if one.salt is not None:
            body["cache_salt"] = one.salt
        reply = (await self._agents.post("/v1/chat/completions", json=body, headers=decision.headers)).raise_for_status().json()
        observed = await self.gate.observe(turn, reply)
        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"] or 0
        fact = seen.calls.pop(one.key)
        account.calls += 1
        account.call_cached += cached
        if fact.survival is None:
            account.missing.append(f"call after {decision.id} ({'; '.join(observed.notes)})")
            account.call_off += cached
        else:
            told = fact.survival.expected.captured
            account.call_predicted += told
            account.call_off += abs(told - cached)
            if told != cached:
                account.wrong.append(f"call after {decision.id}: {told} predicted, {cached} reported")
        return reply["choices"][0]["message"]["content"] or ""

    def _text(self, words: int, seed: str | None = None) -> str:
        dice = random.Random(seed) if seed is not None else self._dice
        drawn: list[str] = []
        while len(drawn) < words:
            drawn += dice.choice(documents()).split()
        return " ".join(drawn[:words])

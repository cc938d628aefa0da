"""Workers, gates, policies and tools that are all told what to do, and remember what was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from warmgate.answers import Answer, Usage
from warmgate.decision import Decision, Mounts, Observation
from warmgate.errors import Unreachable
from warmgate.gate import Gate
from warmgate.policy import Judgement
from warmgate.questions import Noul, Question
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate.turn import ProposedCall, Turn
from warmgate_adapters.conformance.driver import Agent, Conversation, Driver

Reply = Mapping[str, Any]


def calls(*proposed: tuple[str, Mapping[str, Any]]) -> Reply:
    """A scripted reply that proposes calls."""
    return {"tool_calls": [{"name": name, "arguments": dict(arguments)} for name, arguments in proposed]}


def says(text: str) -> Reply:
    """A scripted reply in words."""
    return {"content": text}


class Words:
    """Judges a call by its words: ``rm`` is denied, ``make`` is put to a person, the rest may run."""

    name = "words"

    def __init__(self, version: str = "1", *, lenient: bool = False) -> None:
        self.version = version
        self.lenient = lenient
        self.judged: list[str] = []

    def judge(self, call: ProposedCall, turn: Turn) -> Judgement:
        """By words."""
        del turn
        said = str(call.arguments)
        self.judged.append(said)
        if self.lenient:
            return Judgement("allow", "everything goes")
        if "rm" in said:
            return Judgement("deny", "it removes files", "removes")
        return Judgement("ask", "it runs foreign code", "builds") if "make" in said else Judgement("allow", "it only looks")

    def settle(self, call: ProposedCall, judgement: Judgement, answer: Answer) -> Judgement:
        """No case is grey."""
        del call, answer
        return judgement


class Sets:
    """Mounts what it is told for each user turn, and asks one question in each, so that there is a read to route.

    Args:
        turns: User turn (from 1) → tools mounted from then on.
        announce: User turn → tools announced in it.
    """

    name, version = "sets", "1"

    def __init__(self, turns: Mapping[int, Sequence[str]], announce: Mapping[int, Sequence[str]] | None = None) -> None:
        self.turns = turns
        self.announce = announce or {}
        self.restored: list[dict[str, Any]] = []

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        """One."""
        del turn, mounted
        return {"more": Noul(instructions="Are more tools needed?")}

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        """As told."""
        del answers, widen
        latest = max((number for number in self.turns if number <= turn.user_turns), default=1)
        tools = tuple(self.turns[latest])
        new = tuple(self.announce.get(turn.user_turns, ()))
        announced = {name for number, names in self.announce.items() if number <= turn.user_turns for name in names}
        offered = tuple(name for name in tools if name not in announced)
        return Mounts(tools=tools, strategy="append", changed=tools != mounted, reason="as told", offered=offered, announce=new)

    def restore(self, session: str, *, offered: Sequence[str], announced: Sequence[str], mounted: Sequence[str]) -> None:
        """Remembers what it was told of a session that goes on."""
        self.restored.append({"session": session, "offered": (*offered,), "announced": (*announced,), "mounted": (*mounted,)})


class Watched(Gate):
    """A gate that remembers its decisions, observations and people's words, and can be taken down or held up."""

    down = False
    held: asyncio.Event | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.decisions: list[tuple[Turn, Decision]] = []
        self.observations: list[tuple[str, Observation]] = []
        self.words: list[tuple[str, str, str, bool, str]] = []

    async def decide(self, turn: Turn) -> Decision:
        """See :class:`Gate`."""
        if self.held is not None:
            await self.held.wait()
        if self.down:
            raise Unreachable("nobody answers", where="the gate")
        decision = await super().decide(turn)
        self.decisions.append((turn, decision))
        return decision

    async def observe(self, turn: Turn, usage: Mapping[str, Any] | Usage | None) -> Observation:
        """See :class:`Gate`."""
        observation = await super().observe(turn, usage)
        self.observations.append((turn.session, observation))
        return observation

    def approval(self, decision: str, call: str, binding: str, *, approved: bool, tool: str = "") -> None:
        """See :class:`Gate`."""
        super().approval(decision, call, binding, approved=approved, tool=tool)
        self.words.append((decision, call, binding, approved, tool))

    def judgings(self) -> int:
        """Decisions about calls."""
        return sum(bool(turn.proposed_calls) for turn, _ in self.decisions)


@dataclass
class Rig:
    """One test's world.

    Attributes:
        driver: Of the adapter.
        workers: Stand-ins.
        gate: The gate of now.
        store: See :class:`Agent`.
        ran: Tools that ran, with what they were given.
    """

    driver: Driver
    workers: Sequence[StandIn]
    gate: Watched
    store: Path
    settings: Settings
    mounts: Sets | None
    ran: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _open: list[Conversation] = field(default_factory=list[Conversation])

    @property
    def tools(self) -> list[Callable[..., str]]:
        """Three of them."""
        ran = self.ran

        def read(path: str) -> str:
            """Read a file."""
            ran.append(("read", path))
            return f"contents of {path}"

        def shell(command: str) -> str:
            """Run a command."""
            ran.append(("shell", command))
            return f"output of {command}"

        def web(query: str) -> str:
            """Search the web."""
            ran.append(("web", query))
            return f"pages about {query}"

        return [read, shell, web]

    async def open(self, session: str = "s", **agent: Any) -> Conversation:
        """An agent on the gate of now."""
        conversation = await self.driver.open(Agent(self.gate, self.tools, session, self.store, **agent))
        self._open.append(conversation)
        return conversation

    async def restart(self, policy: Words) -> None:
        """Another process: a gate that remembers nothing, with this policy."""
        await self.close()
        self.gate = Watched(self.settings, mounts=self.mounts, calls=policy)

    async def close(self) -> None:
        """Close agents and gate, in the loop of now and in that of blocking code."""
        for conversation in self._open:
            await conversation.close()
        self._open.clear()
        await self.gate.aclose()
        await asyncio.to_thread(self.gate.close)

    def chats(self, session: str = "s") -> list[dict[str, Any]]:
        """Bodies of the agent's calls of a session, as they reached the workers."""
        return [cast("dict[str, Any]", seen.json()) for _, seen in self.seen(session) if seen.path == "/v1/chat/completions"]

    def seen(self, session: str) -> list[tuple[str, Any]]:
        """Worker and request, for every request that names a session."""
        header = self.settings.session_header.lower()
        requests = [(worker.url, request) for worker in self.workers for request in list(worker.requests)]
        return [(url, one) for url, one in requests if {k.lower(): v for k, v in one.headers.items()}.get(header) == session]


@asynccontextmanager
async def rig(
    driver: Driver,
    store: Path,
    chat: Sequence[Reply],
    *,
    sessions: Mapping[str, Sequence[Reply]] | None = None,
    mounts: Sets | None = None,
    policy: Words | None = None,
    workers: int = 1,
    **settings: Any,
) -> AsyncGenerator[Rig]:
    """A world in which the model says ``chat``, turn by turn."""
    script = {"chat": list(chat), "sessions": {name: list(replies) for name, replies in (sessions or {}).items()}}
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(StandIn(script=script)) for _ in range(workers)]
        told = Settings(workers=[worker.url for worker in started], model="standin", deadline_ms=30_000, **settings)
        made = Rig(driver, started, Watched(told, mounts=mounts, calls=policy or Words()), store, told, mounts)
        try:
            yield made
        finally:
            await made.close()

"""The agents: a gate over the workers, a LangGraph agent over the gate, and the conversations one after another, as the script has them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from warmgate.errors import OptionError, Unreachable
from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.settings import Settings
from warmgate.telemetry.protocol import CallSeen, ReadSeen, Silent, Telemetry
from warmgate.telemetry.record import Records
from warmgate.telemetry.watching import Watch
from warmgate_adapters.demo import script
from warmgate_adapters.demo.model import Scripted
from warmgate_adapters.demo.policies import Again, Noted, ToolCalls
from warmgate_adapters.demo.project import Project, told
from warmgate_adapters.demo.rows import Moved, Row, Verdict
from warmgate_adapters.demo.workers import Workers
from warmgate_adapters.langgraph import GatedToolNode, GateMessagesState, GateNode, ModelNode, chat_model, gate_edge

Kind = Literal["none", "separate", "json", "aligned"]
KINDS: tuple[Kind, ...] = ("none", "separate", "json", "aligned")

DEADLINE_MS = 60_000
"""For one decision: figures must not depend on how busy the machine is."""

READY_S = 10.0
"""Longest wait for a first worker to be found well."""

TOLD_S = 2.0
"""Longest wait for KV events."""

ABOUT = 200
"""Characters kept of a call."""

Hears = Callable[[Row], None]


class _Own(Settings):
    """Settings that neither the environment nor a ``warmgate.toml`` of the user has a say in: the demo is the same everywhere."""

    model_config = SettingsConfigDict(toml_file=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given in code."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


class Ear(Silent):
    """Hears what the gate's questions and the agent's calls found."""

    inline = True

    def __init__(self) -> None:
        self.questions = 0
        self._asked = 0
        self._found: int | None = None
        self._call: CallSeen | None = None
        self._held: dict[str, set[int]] = {}

    def read(self, fact: ReadSeen) -> None:
        """A read of the gate: its first question finds what was there before."""
        if not self._asked and fact.survival:
            self._found = fact.survival[0].entry.survived
        self._asked += fact.questions
        self.questions += fact.questions

    def agent_call(self, fact: CallSeen) -> None:
        """The agent's call."""
        self._call = fact

    def fill(self, row: Row, computed: int, block: int | None) -> None:
        """Enter what was heard since the last row.

        Args:
            row: Of the call that was just made.
            computed: Tokens that the workers computed since the last row.
            block: Tokens in a block, where the workers are followed.
        """
        row.reads, row.computed = self._asked, computed
        reach = None
        if self._call is not None and self._call.survival is not None:
            survival = self._call.survival
            row.reusable, row.cause = survival.expected.reusable, survival.cause
            reach = self._reach(self._call.worker, survival.expected.prompt.names, block)
        # what the call would have found without a gate: nothing else where nothing was asked, what the first question found where that
        # was asked on the call's own list of tools, and else what the agent's earlier calls left on this worker
        found = row.cached if not row.reads else self._found if row.user_turn > 1 else reach
        if row.prompt is not None and found is not None:
            row.tax = computed - (row.prompt - found)
        self._asked, self._found, self._call = 0, None, None

    def _reach(self, worker: str, names: Sequence[int], block: int | None) -> int | None:
        held = self._held.setdefault(worker, set())
        blocks = next((number for number, name in enumerate(names) if name not in held), len(names))
        held.update(names)
        return None if block is None else blocks * block


class Recorded(Records):
    """The record of the traffic, written as it happens; its sessions have the same names in every run."""

    inline = True

    def __init__(self, folder: Path) -> None:
        self.watch: Watch | None = None
        super().__init__(folder, blocks=lambda: self.watch.blocks if self.watch is not None else None, salt=b"warmgate demo")


@dataclass(slots=True)
class Run:
    """One run of all conversations.

    Attributes:
        workers: Of this run.
        project: What the agents work on.
        gate: Decides.
        ear: Hears what it costs.
        noted: What was asked and mounted; ``None`` where that was given.
        rows: One a call.
        first: Session → the worker it was placed on.
        computed: Tokens that the workers computed in it.
        seen: Their counters as they were last looked at.
    """

    workers: Workers
    project: Project
    gate: Gate
    ear: Ear
    noted: Noted | None
    rows: list[Row] = field(default_factory=list[Row])
    first: dict[str, str] = field(default_factory=dict[str, str])
    computed: int = 0
    seen: int = 0

    async def since(self) -> int:
        """Tokens that the workers computed since this was last asked."""
        before, self.seen = self.seen, await self.workers.computed()
        return self.seen - before

    async def told(self) -> None:
        """Wait a little until the gate has heard, by KV events, what the stand-ins hold: no prediction may depend on who is faster."""
        tracker = self.gate.means.watch.tracker
        for number, standin in enumerate(self.workers.standins[: len(self.workers.urls)]):
            index = tracker.index(self.workers.urls[number]) if tracker is not None else None
            ends = time.monotonic() + TOLD_S
            while index is not None and index.source == "events" and number not in self.workers.killed and time.monotonic() < ends:
                if len(index) == standin.cached_blocks:
                    break
                await asyncio.sleep(0.005)

    @property
    def block(self) -> int | None:
        """Tokens in a block of the workers' caches, once they are followed."""
        blocks = self.gate.means.watch.blocks
        return None if blocks is None else blocks[0]

    async def moved(self) -> list[Moved]:
        """Where the sessions are."""
        found: list[Moved] = []
        for talk in script.TALKS:
            binding = await self.gate.pool.acquire(talk.name)
            found.append(Moved(talk.name, self.first[talk.name], self.workers.label(binding.worker), binding.moves))
        return found


def settings(kind: Kind, workers: Workers) -> Settings:
    """The gate's, for one kind of gate."""
    router: Mapping[str, Any] = {"gate_workers": (workers.router,), "gate_model": workers.model} if kind == "separate" else {}
    return _Own(
        workers=tuple(workers.urls),
        model=workers.model,
        deadline_ms=DEADLINE_MS,
        alignment="auto" if kind == "aligned" else "off",
        label_mass_floor=0.0,  # a model that was never trained would be asked twice
        api_key_env=workers.api_key_env,
        cache_salt=workers.salt,
        measure_reads=kind == "aligned",
        metrics="off",
        mount_options={
            "strategy": "append",
            "groups": dict(script.GROUPS),
            "descriptions": dict(script.DESCRIPTIONS),
            "always": list(script.ALWAYS),
            "smallest": 0,
        },
        **router,
    )


@asynccontextmanager
async def opened(
    kind: Kind, workers: Workers, project: Project, *, noted: Noted | None = None, record: Path | None = None
) -> AsyncGenerator[Run]:
    """A gate of one kind over some workers, its sessions placed, and all that it finds out only once found out.

    Args:
        kind: How it asks.
        workers: Whom.
        project: What its agents work on.
        noted: What to ask and mount; without it the policy of the settings decides, and is noted.
        record: Folder for the traffic.

    Raises:
        OptionError: No mount policy is installed.
        EngineError: A worker cannot be reached.
    """
    ear = Ear()
    made = settings(kind, workers)
    loaded = Gate.from_settings(made)
    if loaded.mounts is None:
        raise OptionError("no mount policy is installed", where="warmgate demo", mend="install the whole of warmgate")
    keeps = Noted(loaded.mounts) if noted is None else None
    mounts = keeps or Again(cast("Noted", noted), asks=kind != "none")
    async with AsyncExitStack() as stack:
        listeners: list[Telemetry] = [ear]
        recorded = Recorded(record) if record is not None else None
        if recorded is not None:
            listeners.append(recorded)
            stack.callback(recorded.close)
        gate = Gate(made, mounts=mounts, calls=ToolCalls(project, loaded.calls), telemetry=listeners)
        if recorded is not None:
            recorded.watch = gate.means.watch
        await stack.enter_async_context(gate)
        if not await gate.pool.ready(READY_S):
            raise Unreachable("does not answer", where=", ".join(workers.urls), mend="start them first")
        run = Run(workers, project, gate, ear, keeps)
        for talk in script.TALKS:
            run.first[talk.name] = workers.label(await place(gate, talk.name, workers.urls[talk.worker % len(workers.urls)]))
        if kind == "aligned":
            for url in workers.urls:  # what a prefix is worth there, asked once; no turn's cost
                binding = await gate.pool.acquire(next(name for name, first in run.first.items() if first == workers.label(url)))
                await gate.means.finding(binding, workers.model, wait_s=DEADLINE_MS / 1000)
        before = run.seen = await workers.computed()
        yield run
        run.computed = await workers.computed() - before


async def place(gate: Gate, session: str, worker: str) -> str:
    """Place a session on a worker: by its hash it could be on any, since the ports are others in every run. Returns the worker."""
    others = [status.url for status in gate.pool.status() if status.role == "workers" and status.url != worker]
    for other in others:
        gate.pool.drain(other, grace_s=3600.0)
    try:
        return (await gate.pool.acquire(session)).worker
    finally:
        for other in others:
            gate.pool.resume(other)


async def converse(run: Run, hears: Hears = lambda _: None, killed: Callable[[str], None] = lambda _: None) -> None:
    """All conversations, in turns: each user says one thing, and the agent works until it has answered.

    Args:
        run: The run.
        hears: Told of each row when it is complete.
        killed: Told which worker was killed, when it was.
    """
    async with AsyncExitStack() as stack:
        client = chat_model(run.gate)
        lines: tuple[Any, Any] = (client.http_client, client.http_async_client)
        stack.callback(lines[0].close)
        stack.push_async_callback(lines[1].aclose)
        header = run.gate.settings.session_header
        model = Scripted(inner=client, header=header, limit=None if run.workers.standins else 1)
        graph = build(run.gate, run.project, model)
        for number in range(max(len(talk.users) for talk in script.TALKS)):
            for talk in script.TALKS:
                if number < len(talk.users):
                    await _Conversation(run, graph, talk, hears, killed).said(number)


def build(gate: Gate, project: Project, model: BaseChatModel) -> Any:
    """The graph: gate, model, tools, and back to the gate."""
    tools = project.tools()
    keeper = {"prompt": script.PROMPT}
    builder: Any = StateGraph(GateMessagesState)
    builder.add_node("gate", GateNode(gate, tools, keeper=keeper))
    builder.add_node("model", ModelNode(model, tools, gate, keeper=keeper))
    builder.add_node("tools", GatedToolNode(tools, gate, keeper=keeper))
    builder.add_edge(START, "gate")
    builder.add_edge("gate", "model")
    builder.add_conditional_edges("model", gate_edge)
    builder.add_edge("tools", "gate")
    return builder.compile(checkpointer=InMemorySaver())


class _Conversation:
    """One turn of one user, streamed: what the gate does becomes rows."""

    def __init__(self, run: Run, graph: Any, talk: script.Talk, hears: Hears, killed: Callable[[str], None]) -> None:
        self._run = run
        self._graph = graph
        self._talk = talk
        self._hears = hears
        self._killed = killed
        self._row: Row | None = None
        self._proposed: dict[str, Mapping[str, Any]] = {}
        self._user_turn = 0

    async def said(self, number: int) -> None:
        """The user says something, and perhaps a person is asked on the way."""
        self._user_turn = number + 1
        config = {"configurable": {"thread_id": self._talk.name}, "recursion_limit": 60}
        given: Any = {"messages": [HumanMessage(self._talk.users[number])]}
        while given is not None:
            async for mode, event in self._graph.astream(given, config, stream_mode=["custom", "updates"]):
                if mode == "custom":
                    await self._heard(event)
                elif "model" in event:
                    await self._spoke(event["model"]["messages"][-1])
            asked = [action for one in (await self._graph.aget_state(config)).interrupts for action in one.value["action_requests"]]
            given = Command(resume={"decisions": [self._answered(action) for action in asked]}) if asked else None
        self._close()

    async def _heard(self, event: Mapping[str, Any]) -> None:
        if event["warmgate"] == "mounts":
            self._close()
            calls = sum(row.session == self._talk.name for row in self._run.rows)
            self._row = Row(
                self._talk.name, self._user_turn, calls + 1, event["mounts"] or [], bool(event["announced"]), str(event["reason"])
            )
        elif event["warmgate"] == "survival" and self._row is not None:
            self._row.prompt, self._row.cached = event["prompt_tokens"], event["cached_tokens"]
            binding = await self._run.gate.pool.acquire(self._talk.name)
            self._row.worker, self._row.moves = self._run.workers.label(binding.worker), binding.moves
            if event["cause"] == "worker_change":  # served elsewhere than foreseen: the session's own call before tells what is lost
                self._row.reusable, self._row.cause = event["reusable"], event["cause"]
            self._run.ear.fill(self._row, await self._run.since(), self._run.block)
            await self._run.told()
        elif event["warmgate"] == "verdict" and self._row is not None:
            call = self._proposed.get(str(event["call"]), {})
            line = told(event["tool"], mapping(call.get("args")))
            why = {"run": "ran", "asked": "rejected", "rejected": "not mounted" if event["why"] in ("unmounted", "unknown") else "denied"}
            done = cast("Any", why[event["outcome"]])
            reason = event["reason"] or ("not in the session's tools; this counts as asking for it" if done == "not mounted" else "")
            self._row.verdicts.append(Verdict(line[:ABOUT], event["verdict"], done, reason))

    async def _spoke(self, message: AIMessage) -> None:
        """The model's call came back. This is where the script has a worker die."""
        self._proposed = {str(call["id"]): cast("Mapping[str, Any]", call) for call in message.tool_calls}
        session, call = script.DIES_AFTER
        if self._row is not None and (self._row.session, self._row.call) == (session, call):
            worker = self._talk.worker
            if await self._run.workers.kill(worker):
                self._killed(f"worker {worker + 1}")

    def _answered(self, action: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = script.person(action)
        if self._row is not None and answer["type"] == "approve":
            for verdict in self._row.verdicts:
                if verdict.call == told(action["name"], mapping(action["args"]))[:ABOUT]:
                    verdict.outcome = "approved"
        return answer

    def _close(self) -> None:
        if self._row is not None:
            self._run.rows.append(self._row)
            self._hears(self._row)
            self._row = None

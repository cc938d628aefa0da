"""A LangGraph agent of 100 tools that many sessions talk to at once, with a gate and without: what the bench weighs and a small test checks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from warmgate.engines import AskRequest, Chain, ChainResult, Deadline, SystemOne
from warmgate.settings import Settings
from warmgate_adapters.langgraph import GatedToolNode, GateMessagesState, GateNode, ModelNode, chat_model, gate_edge

TOOLS = 100
SETS = ("files", "web", "tickets", "database")


def words(session: str, turn: int) -> str:
    """What a session says and hears in a turn, and nobody else ever does."""
    return f"{session}-turn{turn:03}"


def script(sessions: Sequence[str], turns: int) -> dict[str, Any]:
    """In each turn a model calls one tool and then answers; asked about toolsets, it wants all of them."""
    said: dict[str, list[dict[str, Any]]] = {}
    for session in sessions:
        said[session] = []
        for turn in range(turns):
            call = {"name": "shell", "arguments": {"command": f"cat {words(session, turn)}.txt"}}
            said[session] += [{"tool_calls": [call]}, {"content": f"The file of {words(session, turn)} is read."}]
    return {"decisions": [{"id": "*", "probabilities": {"yes": 0.9}}], "sessions": said}


def tools(ran: list[str]) -> list[StructuredTool]:
    """A shell that remembers what it ran, and 99 tools in four sets."""

    def shell(command: str) -> str:
        """Run a shell command in the workspace and give what it prints."""
        ran.append(command)
        return f"contents of {command.removeprefix('cat ')}\n" + "a line of the file\n" * 10

    def other(name: str, query: str) -> str:
        """Does nothing."""
        return f"{name} {query}"

    made = [StructuredTool.from_function(shell)]
    for number in range(TOOLS - 1):
        kind = SETS[number % len(SETS)]
        about = f"Work on the {kind} of the project, in the way of number {number}: finds, reads and changes what is asked for."
        made.append(StructuredTool.from_function(other, name=f"{kind}_{number:02}", description=about))
    return made


@contextmanager
def standins(number: int, given: dict[str, Any], folder: Path) -> Generator[list[str]]:
    """Stand-ins in processes of their own, so that their CPU time is nobody else's; their URLs."""
    path = folder / "script.json"
    path.write_text(json.dumps(given))
    command = [sys.executable, "-m", "warmgate", "standin", "--port", "0", "--script", str(path)]
    with ExitStack() as stack:
        running = []
        for _ in range(number):
            one = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            stack.callback(one.terminate)
            running.append(one)
        urls = [one.stdout.readline().strip() for one in running if one.stdout is not None]
        if not all(urls):
            raise RuntimeError("a stand-in did not start")
        yield urls


def settings(urls: Sequence[str], **more: Any) -> Settings:
    """The policies that are installed; all four toolsets are asked about in every user turn."""
    groups = {kind: [f"{kind}_*"] for kind in SETS}
    return Settings(
        workers=tuple(urls),
        model="standin",
        deadline_ms=60_000,
        mount_options={"strategy": "remount", "groups": groups, "always": ["shell"]},
        **more,
    )


def gated(gate: Any, offered: list[StructuredTool]) -> Any:
    """As the documentation has it."""
    builder = StateGraph(GateMessagesState)
    builder.add_node("gate", GateNode(gate, offered))
    builder.add_node("model", ModelNode(chat_model(gate), offered, gate))
    builder.add_node("tools", GatedToolNode(offered, gate))
    builder.add_edge(START, "gate")
    builder.add_edge("gate", "model")
    builder.add_conditional_edges("model", gate_edge)
    builder.add_edge("tools", "gate")
    return builder.compile(checkpointer=InMemorySaver())


def plain(gate: Any, offered: list[StructuredTool]) -> Any:
    """The same agent with LangGraph's own nodes. Its calls stick to workers as well, so that both send them the same way."""
    model = chat_model(gate).bind_tools(offered)
    header = gate.settings.session_header

    async def call(state: Any, config: RunnableConfig) -> dict[str, Any]:
        bound = model.bind(extra_headers={header: (config.get("configurable") or {})["thread_id"]})
        return {"messages": [await bound.ainvoke(state["messages"], config)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call)
    builder.add_node("tools", ToolNode(offered))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


@dataclass
class Meter:
    """CPU of the event loop's thread that an awaitable took, without what ran while it waited.

    Attributes:
        cpu: Seconds.
        waited: Seconds by the clock.
        times: How often.
    """

    cpu: float = 0.0
    waited: float = 0.0
    times: int = 0

    async def of(self, work: Any) -> Any:
        """Await and weigh it."""
        began = time.perf_counter()
        try:
            return await _Steps(work, self)
        finally:
            self.waited += time.perf_counter() - began
            self.times += 1


class _Steps:
    def __init__(self, work: Any, meter: Meter) -> None:
        self.work, self.meter = work, meter

    def __await__(self) -> Iterator[Any]:
        steps, thrown, given = self.work.__await__(), None, None
        while True:
            began = time.thread_time()
            try:
                wanted = steps.throw(thrown) if thrown is not None else steps.send(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                self.meter.cpu += time.thread_time() - began
            thrown = given = None
            try:
                given = yield wanted
            except BaseException as fault:  # noqa: BLE001 -- handed on to the work
                thrown = fault


class Weighed(Chain):
    """The engine of a worker, its requests weighed: the decision hop itself."""

    def __init__(self, worker: str, meter: Meter) -> None:
        super().__init__([SystemOne(worker, model="standin")])
        self.meter = meter

    async def ask(self, request: AskRequest, *, deadline: Deadline) -> ChainResult:
        """See :class:`Chain`."""
        found: ChainResult = await self.meter.of(super().ask(request, deadline=deadline))
        return found


@dataclass
class Talk:
    """Sessions that talk to a graph, turn by turn.

    Attributes:
        graph: The agent.
        sessions: Their names.
        wrong: What any of them heard that was not its own.
    """

    graph: Any
    sessions: Sequence[str]
    wrong: list[str] = field(default_factory=list[str])

    async def turn(self, number: int) -> None:
        """One turn of every session, all at once."""
        await asyncio.gather(*(self._one(session, number) for session in self.sessions))

    async def drop_older(self) -> None:
        """Keep the latest checkpoint of each session alone: what LangGraph keeps of a thread's past is not what is weighed."""
        saver = self.graph.checkpointer
        for session in self.sessions:
            config: Any = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
            latest = await saver.aget_tuple(config)
            await saver.adelete_thread(session)
            await saver.aput(config, latest.checkpoint, latest.metadata, latest.checkpoint["channel_versions"])

    async def _one(self, session: str, number: int) -> None:
        mine = words(session, number)
        given = {
            "messages": [("user", f"Find out what is written in the file of {mine} and tell me what follows from it for the project.")]
        }
        state = await self.graph.ainvoke(given, {"configurable": {"thread_id": session}})
        messages = state["messages"]
        heard = [message.text for message in messages if isinstance(message, ToolMessage)][-1]
        if messages[-1].text != f"The file of {mine} is read." or mine not in heard or len(messages) != 4 * (number + 1):
            self.wrong.append(f"{session}, turn {number}: {messages[-1].text!r:.80}, {heard!r:.80}")
        others = {other for message in messages for other in _names(message.text)} - {session}
        if others:
            self.wrong.append(f"{session}, turn {number}: heard of {sorted(others)}")


def _names(text: str) -> set[str]:
    return {word.partition("-turn")[0] for word in text.replace(".", " ").split() if "-turn" in word}

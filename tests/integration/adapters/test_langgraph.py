"""LangGraph's own ways through the gate: subgraphs, branches, Send, the functional API, streams, checkpointers, other state shapes."""

from __future__ import annotations

import asyncio
import json
import operator
import threading
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId
from langchain_core.tools import tool as as_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, Send
from pydantic import BaseModel

from tests.integration.adapters.test_langgraph_conformance import graph_of
from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate_adapters.conformance.rig import Sets, Watched, Words, calls, says
from warmgate_adapters.core import GateState, merge
from warmgate_adapters.langgraph import (
    GateChannel,
    GatedToolNode,
    GateMessagesState,
    GateNode,
    ModelNode,
    chat_model,
    gate_edge,
    session_of,
)
from warmgate_policies import mounts

LS, RM, MAKE = (("shell", {"command": command}) for command in ("ls", "rm -r x", "make"))


class Modelled(BaseModel):
    messages: Annotated[list[Any], add_messages]
    gate: GateChannel = {}


class World:
    def __init__(self, gate, worker):
        self.gate, self.worker, self.ran, self.models = gate, worker, [], []
        ran = self.ran

        @as_tool
        def shell(command: str) -> str:
            """Run a command."""
            ran.append(command)
            return f"output of {command}"

        @as_tool
        def read(path: str) -> str:
            """Read a file."""
            ran.append(path)
            return f"contents of {path}"

        self.shell, self.read, self.tools = shell, read, [shell, read]

    def model(self):
        self.models.append(chat_model(self.gate))
        return self.models[-1]

    def graph(self, saver=None, **node):
        return graph_of(self.gate, self.tools, self.model(), **node).compile(checkpointer=saver)

    async def close(self):
        for model in self.models:
            model.http_client.close()
            await model.http_async_client.aclose()
        await self.gate.aclose()
        await asyncio.to_thread(self.gate.close)


@asynccontextmanager
async def world(*chat, mounts=None, policy=None, sessions=None, **settings):
    async with StandIn(script={"chat": list(chat), "sessions": sessions or {}}) as worker:
        told = Settings(workers=[worker.url], model="standin", deadline_ms=30_000, **settings)
        made = World(Watched(told, mounts=mounts, calls=policy or Words()), worker)
        try:
            yield made
        finally:
            await made.close()


def thread(name="t"):
    return {"configurable": {"thread_id": name}}


def said(text):
    return {"messages": [HumanMessage(text)]}


def results(state):
    return [m.content for m in state["messages"] if isinstance(m, ToolMessage)]


def approve(*types):
    return Command(resume={"decisions": [{"type": one} for one in types or ("approve",)]})


async def test_the_channel_is_json_and_says_what_was_decided():
    async with world(calls(LS), says("done"), mounts=Sets({1: ("shell",)})) as w:
        state = await w.graph(InMemorySaver()).ainvoke(said("look"), thread())
        kept = json.loads(json.dumps(state["gate"]))
        assert kept == state["gate"]
        assert kept["session"] == "t"
        assert kept["mounts"] == ["shell"]
        assert kept["worker"] == w.worker.url
        assert kept["decision"] == w.gate.decisions[-1][1].id
        assert [one["verdict"] for one in kept["verdicts"].values()] == ["allow"]


async def test_custom_events_tell_what_the_gate_did():
    async with world(calls(LS, RM), says("done"), mounts=Sets({1: ("shell",)})) as w:
        events = [e async for e in w.graph(InMemorySaver()).astream(said("look"), thread(), stream_mode="custom")]
        assert [e["warmgate"] for e in events] == ["mounts", "survival", "verdict", "verdict", "mounts", "survival"]
        assert [(e["outcome"], e["verdict"]) for e in events if e["warmgate"] == "verdict"] == [("run", "allow"), ("rejected", "deny")]
        assert json.loads(json.dumps(events)) == events


async def test_an_interrupt_has_the_shape_of_langchains_own():
    """Screens made for its human-in-the-loop show ours."""
    async with world(calls(LS, MAKE, MAKE), says("done")) as w:
        graph = w.graph(InMemorySaver())
        state = await graph.ainvoke(said("build"), thread())
        (asked,) = state["__interrupt__"]
        assert [one["name"] for one in asked.value["action_requests"]] == ["shell", "shell"]
        assert asked.value["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject"]
        assert asked.value["action_requests"][0]["description"] == "it runs foreign code"
        assert json.loads(json.dumps(asked.value)) == asked.value
        state = await graph.ainvoke(approve("reject", "approve"), thread())
        assert results(state)[0] == "output of ls"
        assert "a person refused" in results(state)[1]
        assert results(state)[2] == "output of make"


async def test_an_answer_that_is_none_runs_nothing_and_can_be_given_again():
    async with world(calls(MAKE), says("done")) as w:
        graph = w.graph(InMemorySaver())
        await graph.ainvoke(said("build"), thread())
        for wrong in ({"decisions": []}, {"decisions": [{"type": "perhaps"}]}, "sure", approve("approve", "approve").resume, {"x": 1}):
            state = await graph.ainvoke(Command(resume=wrong), thread())
            (asked,) = state["__interrupt__"]
            assert "resume with" in asked.value["problem"]
            assert asked.value["action_requests"]
            assert w.ran == []
        await graph.ainvoke(Command(resume=True), thread())
        assert w.ran == ["make"]


async def test_an_approval_of_another_call_approves_nothing():
    """The state was changed after the question, and the run resumed as if it had not been."""
    async with world(calls(MAKE), says("done")) as w:
        graph = w.graph(InMemorySaver())
        state = await graph.ainvoke(said("build"), thread())
        last = state["messages"][-1]
        worse = AIMessage("", id=last.id, tool_calls=[{**last.tool_calls[0], "args": {"command": "make destroy"}}])
        await graph.aupdate_state(thread(), {"messages": [worse]}, as_node="model")
        state = await graph.ainvoke(approve(), thread())
        assert w.ran == []
        assert "make destroy" in str(state.get("__interrupt__")) or "not the one that was judged" in results(state)[0]


async def test_a_refused_call_may_be_put_to_a_person_again_in_a_later_user_turn():
    """A person can change their mind; the policy alone cannot."""
    policy = Words()
    async with world(calls(MAKE), says("no?"), calls(MAKE), says("built"), policy=policy) as w:
        graph = w.graph(InMemorySaver())
        await graph.ainvoke(said("build"), thread())
        await graph.ainvoke(approve("reject"), thread())
        policy.lenient = True
        state = await graph.ainvoke(said("now do build it"), thread())
        assert "refused this very call earlier" in state["__interrupt__"][0].value["action_requests"][0]["description"]
        assert w.ran == []
        await graph.ainvoke(approve(), thread())
        assert w.ran == ["make"]


async def test_without_a_checkpointer_nobody_can_answer_and_nothing_runs():
    async with world(calls(MAKE), says("done")) as w:
        state = await w.graph().ainvoke(said("build"))
        assert w.ran == []
        assert "nobody is there" in results(state)[0]
        assert state["messages"][-1].content == "done"


async def test_a_state_without_the_channel_is_told_so():
    """Nothing would be remembered: neither mounts nor a person's no."""
    async with world(says("done")) as w:
        builder = StateGraph(MessagesState)
        builder.add_node("gate", GateNode(w.gate, w.tools))
        builder.add_edge(START, "gate")
        with pytest.raises(OptionError, match="GateMessagesState"):
            await builder.compile().ainvoke(said("x"))


async def test_a_restart_keeps_the_list_of_tools_though_some_were_announced():
    """A changed list computes the whole conversation again."""

    class Forgetful(Sets):
        """As a policy that only knows what the gate says is mounted."""

        def settle(self, turn, mounted, answers, *, widen):
            made = super().settle(turn, mounted, answers, widen=widen)
            from warmgate.decision import Mounts

            return Mounts(tools=made.tools, strategy="freeze", changed=False, reason="held", offered=made.tools)

    saver = InMemorySaver()
    sets = Sets({1: ("shell",), 2: ("shell", "read")}, announce={2: ("read",)})
    async with world(says("a"), says("b"), says("c"), mounts=sets) as w:
        graph = w.graph(saver)
        await graph.ainvoke(said("1"), thread())
        await graph.ainvoke(said("2"), thread())
        w.gate = Watched(w.gate.settings, mounts=Forgetful({1: ("shell", "read")}), calls=Words())
        state = await w.graph(saver).ainvoke(said("3"), thread())
        assert state["gate"]["mounts"] == ["shell", "read"]
        assert state["gate"]["offered"] == ["shell"]
        sent = [json.loads(e.body) for e in w.worker.requests if e.path == "/v1/chat/completions"]
        assert [[t["function"]["name"] for t in body["tools"]] for body in sent] == [["shell"]] * 3
        assert sum("Read a file" in str(m["content"]) for m in sent[-1]["messages"]) == 1


async def test_an_agent_as_a_subgraph_keeps_its_session_and_asks_through_its_parent():
    async with world(calls(MAKE), says("built"), says("again")) as w:
        inner = graph_of(w.gate, w.tools, w.model()).compile()
        outer = StateGraph(GateMessagesState)
        outer.add_node("agent", inner)
        outer.add_edge(START, "agent")
        graph = outer.compile(checkpointer=InMemorySaver())
        state = await graph.ainvoke(said("build"), thread())
        assert state["__interrupt__"]
        state = await graph.ainvoke(approve(), thread())
        assert w.ran == ["make"]
        first = state["gate"]["session"]
        assert first.startswith("t/agent:")
        state = await graph.ainvoke(said("more"), thread())
        assert state["gate"]["session"] == first
        sessions = {e.headers.get("x-session-id") for e in w.worker.requests if e.path == "/v1/chat/completions"}
        assert sessions == {first}
        assert w.gate.judgings() == 1


async def test_parallel_branches_are_sessions_of_their_own():
    """Two agents in one graph, each with its own conversation, tools and refusals, on one channel."""

    class Both(GateMessagesState):
        left: Annotated[list[Any], operator.add]
        right: Annotated[list[Any], operator.add]

    sessions = {"t/left": [calls(MAKE), says("L")], "t/right": [calls(MAKE), says("R")]}
    async with world(sessions=sessions) as w:
        builder = StateGraph(Both)
        for side in ("left", "right"):
            own = {"agent": side, "messages_key": side}
            builder.add_node(f"gate_{side}", GateNode(w.gate, w.tools, **own))
            builder.add_node(f"model_{side}", ModelNode(w.model(), w.tools, w.gate, **own))
            builder.add_node(f"tools_{side}", GatedToolNode(w.tools, w.gate, **own))
            builder.add_edge(START, f"gate_{side}")
            builder.add_edge(f"gate_{side}", f"model_{side}")
            builder.add_edge(f"model_{side}", f"tools_{side}")
        graph = builder.compile(checkpointer=InMemorySaver())
        state = await graph.ainvoke({"left": [HumanMessage("l")], "right": [HumanMessage("r")], "messages": []}, thread())
        asked = {one.id: one.value for one in state["__interrupt__"]}
        assert len(asked) == 2
        snapshot = await graph.aget_state(thread())
        words = {}
        for one in snapshot.tasks:
            for interrupt in one.interrupts:
                words[interrupt.id] = {"decisions": [{"type": "approve" if one.name == "tools_left" else "reject"}]}
        state = await graph.ainvoke(Command(resume=words), thread())
        assert w.ran == ["make"]
        assert state["left"][-1].content == "output of make"
        assert "a person refused" in state["right"][-1].content
        assert GateState.read(state["gate"], "t/left").refused == {}
        assert len(GateState.read(state["gate"], "t/right").refused) == 1


async def test_send_fans_calls_out_and_each_is_gated():
    async with world(calls(LS, RM, MAKE), says("done")) as w:
        builder = StateGraph(GateMessagesState)
        builder.add_node("gate", GateNode(w.gate, w.tools))
        builder.add_node("model", ModelNode(w.model(), w.tools, w.gate))
        builder.add_node("tools", GatedToolNode(w.tools, w.gate))

        def fan(state):
            return [Send("tools", [{**call, "type": "tool_call"}]) for call in state["messages"][-1].tool_calls] or "__end__"

        builder.add_edge(START, "gate")
        builder.add_edge("gate", "model")
        builder.add_conditional_edges("model", fan, ["tools", "__end__"])
        builder.add_edge("tools", "gate")
        graph = builder.compile(checkpointer=InMemorySaver())
        state = await graph.ainvoke(said("all"), thread())
        assert w.ran == ["ls"]
        assert len(state["__interrupt__"]) == 1
        state = await graph.ainvoke(approve(), thread())
        assert w.ran == ["ls", "make"]
        assert sum("it removes files" in one for one in results(state)) == 1
        assert len(state["gate"]["verdicts"]) == 3
        assert w.gate.judgings() == 3


async def test_a_prebuilt_agent_takes_the_node_as_its_tools():
    """create_react_agent sends each call with its context."""
    from langgraph.prebuilt import create_react_agent

    async with world(calls(LS, RM), says("done")) as w:
        node = GatedToolNode(w.tools, w.gate)

        class State(GateMessagesState):
            remaining_steps: int

        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = create_react_agent(w.model(), node, state_schema=State, checkpointer=InMemorySaver())
        state = await graph.ainvoke(said("look"), thread())
        assert w.ran == ["ls"]
        assert "it removes files" in results(state)[1]


async def test_the_functional_api_hands_the_channel_on_by_itself():
    async with world(calls(MAKE), says("done")) as w:
        gate_node, tool_node, model_node = GateNode(w.gate, w.tools), GatedToolNode(w.tools, w.gate), ModelNode(w.model(), w.tools, w.gate)

        @entrypoint(checkpointer=InMemorySaver())
        async def agent(messages, *, previous=None):
            state = {"messages": list(messages), "gate": (previous or {}).get("gate", {})}
            for _ in range(4):
                for node in (gate_node, model_node, tool_node):
                    update = await node.ainvoke(state)
                    state["messages"] += update.get("messages", [])
                    state["gate"] = merge(state["gate"], update.get("gate"))
                    if node is model_node and gate_edge(state) != "tools":
                        return entrypoint.final(value=state, save=state)
            return state

        asked = await agent.ainvoke([HumanMessage("build")], thread())
        assert asked["__interrupt__"]
        assert w.ran == []
        await agent.ainvoke(approve(), thread())
        assert w.ran == ["make"]
        assert w.gate.judgings() <= 2  # without a task around it, the model's own call is the user's to keep


async def test_tools_get_state_runtime_and_commands_as_ever():
    class State(GateMessagesState):
        note: str

    async with world(calls(("noted", {"word": "ls"})), says("done")) as w:

        @as_tool
        def noted(word: str, state: Annotated[dict, InjectedState], call: Annotated[str, InjectedToolCallId]) -> Command:
            """Note a word."""
            w.ran.append((word, state["note"], len(state["messages"])))
            return Command(update={"note": word, "messages": [ToolMessage("noted", tool_call_id=call)]})

        w.tools.append(noted)
        builder = StateGraph(State)
        for name, node in (
            ("gate", GateNode(w.gate, w.tools)),
            ("model", ModelNode(w.model(), w.tools, w.gate)),
            ("tools", GatedToolNode(w.tools, w.gate)),
        ):
            builder.add_node(name, node)
        builder.add_edge(START, "gate")
        builder.add_edge("gate", "model")
        builder.add_conditional_edges("model", gate_edge)
        builder.add_edge("tools", "gate")
        state = await builder.compile(checkpointer=InMemorySaver()).ainvoke({**said("x"), "note": "before"}, thread())
        assert w.ran == [("ls", "before", 2)]
        assert state["note"] == "ls"
        assert len(state["gate"]["verdicts"]) == 1


async def test_a_pydantic_state_serves_as_well():
    async with world(calls(LS, RM), says("done")) as w:
        builder = StateGraph(Modelled)
        builder.add_node("gate", GateNode(w.gate, w.tools))
        builder.add_node("model", ModelNode(w.model(), w.tools, w.gate))
        builder.add_node("tools", GatedToolNode(w.tools, w.gate))
        builder.add_edge(START, "gate")
        builder.add_edge("gate", "model")
        builder.add_conditional_edges("model", gate_edge)
        builder.add_edge("tools", "gate")
        state = await builder.compile(checkpointer=InMemorySaver()).ainvoke(said("x"), thread())
        assert w.ran == ["ls"]
        assert "it removes files" in results(state)[1]


async def test_a_blocking_wrapper_stands_outside_the_gate_in_async_graphs_too():
    seen = []

    def wrapper(request, execute):
        seen.append(threading.current_thread() is threading.main_thread())
        call = {**request.tool_call, "args": {"command": request.tool_call["args"]["command"].replace("ls", "rm")}}
        return execute(request.override(tool_call=call))

    async with world(calls(LS), says("done")) as w:
        state = await w.graph(InMemorySaver(), wrap_tool_call=wrapper).ainvoke(said("x"), thread())
        assert seen == [False]
        assert w.ran == []
        assert "it removes files" in results(state)[0]
        state = await asyncio.to_thread(w.graph(InMemorySaver(), wrap_tool_call=wrapper).invoke, said("x"), thread("u"))
        assert w.ran == []
        assert "it removes files" in results(state)[0]


async def test_a_tool_put_in_anothers_place_does_not_run():
    """The verdict is about the tool that was named."""
    async with world(calls(("read", {"path": "a"})), says("done")) as w:

        def swaps(request, execute):
            return execute(request.override(tool=w.shell))

        state = await w.graph(InMemorySaver(), wrap_tool_call=swaps).ainvoke(said("x"), thread())
        assert w.ran == []
        assert "not the one that was judged" in results(state)[0]


async def test_two_calls_under_one_id_are_told_apart():
    """Some models number calls badly; one verdict must not serve for two."""
    async with world(says("done")) as w:
        proposing = AIMessage("", tool_calls=[{"id": "0", "name": "shell", "args": {"command": c}} for c in ("ls", "rm x", "ls")])
        builder = StateGraph(GateMessagesState)
        builder.add_node("tools", GatedToolNode(w.tools, w.gate))
        builder.add_edge(START, "tools")
        state = await builder.compile(checkpointer=InMemorySaver()).ainvoke({"messages": [HumanMessage("x"), proposing]}, thread())
        assert sorted(w.ran) == ["ls", "ls"]
        assert ["it removes files" in one for one in results(state)] == [False, True, False]


async def test_a_tool_that_does_not_exist_is_no_error_of_the_run():
    async with world(calls(("fly", {})), says("done")) as w:
        state = await w.graph(InMemorySaver()).ainvoke(said("x"), thread())
        assert "no tool fly" in results(state)[0]
        assert state["messages"][-1].content == "done"


async def test_a_node_of_ones_own_binds_what_is_offered():
    async with world(says("done"), mounts=Sets({1: ("read",)})) as w:
        node = ModelNode(w.model(), w.tools, w.gate)

        async def mine(state: GateMessagesState, config: RunnableConfig):
            return {"messages": [await node.bound(state, config).ainvoke(state["messages"], config)]}

        builder = StateGraph(GateMessagesState)
        builder.add_node("gate", GateNode(w.gate, w.tools))
        builder.add_node("model", mine)
        builder.add_edge(START, "gate")
        builder.add_edge("gate", "model")
        await builder.compile(checkpointer=InMemorySaver()).ainvoke(said("x"), thread())
        (sent,) = [e for e in w.worker.requests if e.path == "/v1/chat/completions"]
        assert [t["function"]["name"] for t in sent.json()["tools"]] == ["read"]
        assert sent.headers["x-session-id"] == "t"


async def test_an_announcement_as_a_user_message_is_no_turn_of_the_user():
    sets = Sets({1: ("shell",), 2: ("shell", "read")}, announce={2: ("read",)})
    async with world(says("a"), says("b"), says("c"), mounts=sets) as w:
        builder = StateGraph(GateMessagesState)
        builder.add_node("gate", GateNode(w.gate, w.tools, announce_as="user"))
        builder.add_node("model", ModelNode(w.model(), w.tools, w.gate))
        builder.add_edge(START, "gate")
        builder.add_edge("gate", "model")
        graph = builder.compile(checkpointer=InMemorySaver())
        for text in ("1", "2", "3"):
            state = await graph.ainvoke(said(text), thread())
        assert [turn.user_turns for turn, _ in w.gate.decisions] == [1, 2, 3]
        assert not any(isinstance(m, SystemMessage) for m in state["messages"])


def test_a_session_is_the_thread_and_in_a_subgraph_the_path():
    def config(ns="", **more):
        return {"configurable": {"thread_id": "t", "checkpoint_ns": ns, **more}}

    assert session_of(config("gate:11")) == "t"
    assert session_of(config("gate:11"), naming="planner") == "t/planner"
    assert session_of(config("gate:11"), naming=lambda c: "mine") == "mine"
    one, two = session_of(config("sub:1111-2|gate:3")), session_of(config("sub:4444-5|gate:6"))
    assert one.startswith("t/sub:")
    assert one != two
    kept = GateState(session=one).to_json()
    assert session_of(config("sub:9999-9|gate:3"), kept) == one
    nobody = session_of({"configurable": {}})
    assert nobody.startswith("run-")
    assert session_of({"configurable": {}}, GateState(session=nobody).to_json()) == nobody


async def test_a_gate_that_cannot_be_reached_at_all_lets_the_graph_go_on():
    """No worker answers the gate: everything is mounted, calls are put to a person."""
    async with world(calls(LS), says("done")) as w:
        alive = w.graph(InMemorySaver())
        nowhere = Gate(Settings(workers=["http://127.0.0.1:9"], model="standin", deadline_ms=500), calls=Words())
        builder = StateGraph(GateMessagesState)
        builder.add_node("gate", GateNode(nowhere, w.tools))
        builder.add_node("tools", GatedToolNode(w.tools, nowhere, on_ask="deny"))
        builder.add_edge(START, "gate")
        builder.add_conditional_edges("gate", gate_edge)
        proposing = AIMessage("", tool_calls=[{"id": "0", "name": "shell", "args": {"command": "make"}}])
        state = await builder.compile().ainvoke({"messages": [HumanMessage("x"), proposing]})
        assert w.ran == []
        assert len(results(state)) == 1
        await nowhere.aclose()
        del alive


async def test_prompt_salt_and_template_arguments_reach_gate_and_model_alike():
    """What only one of them knows makes two prompts of one."""
    told = {"prompt": "You mend code. " * 30, "cache_salt": "tenant", "template_kwargs": {"enable_thinking": False}}
    async with world(calls(LS), says("done"), mounts=Sets({1: ("shell",)})) as w:
        builder = StateGraph(GateMessagesState)
        builder.add_node("gate", GateNode(w.gate, w.tools, keeper=told))
        builder.add_node("model", ModelNode(w.model(), w.tools, w.gate, keeper=told))
        builder.add_node("tools", GatedToolNode(w.tools, w.gate, keeper=told))
        builder.add_edge(START, "gate")
        builder.add_edge("gate", "model")
        builder.add_conditional_edges("model", gate_edge)
        builder.add_edge("tools", "gate")
        state = await builder.compile(checkpointer=InMemorySaver()).ainvoke(said("x"), thread())
        assert [type(m) for m in state["messages"]] == [HumanMessage, AIMessage, ToolMessage, AIMessage]
        sent = [e.json() for e in w.worker.requests if e.path == "/v1/chat/completions"]
        assert [(b["messages"][0]["role"], b["cache_salt"], b["chat_template_kwargs"]["enable_thinking"]) for b in sent] == [
            ("system", "tenant", False)
        ] * 2
        assert [o.predicted_tokens for _, o in w.gate.observations] == [o.reported_tokens for _, o in w.gate.observations]
        assert all(o.cached_tokens for _, o in w.gate.observations[1:])


async def test_going_back_to_an_older_checkpoint_goes_back_to_its_tools():
    """A fork of the conversation has never heard of what was announced later."""
    sets = Sets({1: ("shell",), 2: ("shell", "read")}, announce={2: ("read",)})
    async with world(says("a"), calls(("read", {"path": "x"})), says("b"), mounts=sets) as w:
        graph = w.graph(InMemorySaver())
        await graph.ainvoke(said("1"), thread())
        older = (await graph.aget_state(thread())).config
        await graph.ainvoke(said("2"), thread())
        assert w.ran == ["x"]
        w.gate.down = True  # nothing can be mounted anew
        state = await graph.ainvoke(said("other"), older)
        assert state["gate"]["mounts"] == ["shell"]
        assert w.ran == ["x"]
        assert "not mounted" in results(state)[0]


async def test_parallel_runs_of_one_subgraph_are_sessions_of_their_own():
    """Two workers of a map step share neither tools nor a person's answers."""

    class Outer(GateMessagesState):
        jobs: list[str]
        done: Annotated[list[str], operator.add]

    async with world(calls(MAKE), says("built"), mounts=Sets({1: ("shell",)})) as w:
        inner = graph_of(w.gate, w.tools, w.model()).compile()

        async def work(given):
            state = await inner.ainvoke({"messages": [HumanMessage(given["job"])], "gate": {}})
            return {"done": [results(state)[0]]}

        outer = StateGraph(Outer)
        outer.add_node("work", work)
        outer.add_conditional_edges(START, lambda state: [Send("work", {"job": job}) for job in state["jobs"]], ["work"])
        graph = outer.compile(checkpointer=InMemorySaver())
        await graph.ainvoke({"jobs": ["one", "two"], "messages": []}, thread())
        snapshot = await graph.aget_state(thread())
        asked = [one.interrupts[0] for one in snapshot.tasks]
        assert len({one.id for one in asked}) == 2
        words = {one.id: {"decisions": [{"type": word}]} for one, word in zip(asked, ("approve", "reject"), strict=True)}
        state = await graph.ainvoke(Command(resume=words), thread())
        assert w.ran == ["make"]
        assert min(state["done"]).startswith("Not run: a person refused")
        assert max(state["done"]) == "output of make"
        sessions = {e.headers.get("x-session-id") for e in w.worker.requests if e.path == "/v1/chat/completions"}
        assert len(sessions) == 2
        assert w.gate.judgings() == 2


async def test_what_is_announced_while_calls_are_judged_reaches_the_model_once():
    """Such a tool would be mounted and never heard of."""
    sets = Sets({1: ("shell", "read")}, announce={1: ("read",)})
    async with world(says("a"), mounts=sets) as w:
        builder = StateGraph(GateMessagesState)
        builder.add_node("tools", GatedToolNode(w.tools, w.gate))
        builder.add_node("gate", GateNode(w.gate, w.tools))
        builder.add_node("again", GateNode(w.gate, w.tools))
        builder.add_edge(START, "tools")
        builder.add_edge("tools", "gate")
        builder.add_edge("gate", "again")
        proposing = AIMessage("", tool_calls=[{"id": "0", "name": "shell", "args": {"command": "ls"}}])
        state = await builder.compile(checkpointer=InMemorySaver()).ainvoke({"messages": [HumanMessage("x"), proposing]}, thread())
        assert [isinstance(m, SystemMessage) and "Read a file" in m.content for m in state["messages"]] == [False, False, False, True]
        assert (state["gate"]["announced"], state["gate"]["announce"]) == (["read"], [])


def test_one_graph_serves_every_event_loop_of_a_program_and_blocking_code():
    """A module's graph, run by asyncio.run for each request, would fail from the second on: its connections were the first loop's."""
    turns = [calls(LS), says("one"), says("two"), says("three"), says("four")]
    with StandIn(script={"chat": turns}) as worker:
        gate = Gate(Settings(workers=[worker.url], model="standin"), calls=Words())
        made = World(gate, worker)
        graph = made.graph(InMemorySaver())
        told = [asyncio.run(graph.ainvoke(said("go on"), thread()))["messages"][-1].content for _ in range(3)]
        told.append(graph.invoke(said("go on"), thread())["messages"][-1].content)
        assert told == ["one", "two", "three", "four"]
        made.models[-1].http_client.close()
        gate.close()


@as_tool
def look_up(name: str) -> str:
    """Look something up."""
    return f"about {name}"


async def test_another_agent_under_the_same_thread_has_its_own_tools():
    """A second graph at the same gate, with the same thread's id, would be left without any tool, and nobody would be told why."""
    async with world(says("one"), says("two"), mounts=mounts.from_settings(Settings(workers=["http://127.0.0.1:1"], model="m"))) as w:
        graphs = [w.graph(InMemorySaver()), graph_of(w.gate, [look_up], w.model()).compile(checkpointer=InMemorySaver())]
        had = [(await graph.ainvoke(said("x"), thread()))["gate"]["offered"] for graph in (*graphs, *graphs)]
        assert had == [["shell", "read"], ["look_up"]] * 2


async def test_a_graph_whose_tools_were_all_renamed_offers_the_new_ones():
    """A thread from before the new version would have no tools for good."""
    async with world(says("one"), says("two"), mounts=mounts.from_settings(Settings(workers=["http://127.0.0.1:1"], model="m"))) as w:
        saver = InMemorySaver()
        await w.graph(saver).ainvoke(said("x"), thread())
        w.tools = [look_up]
        state = await w.graph(saver).ainvoke(said("y"), thread())
        assert (state["gate"]["offered"], state["gate"]["announced"]) == (["look_up"], [])

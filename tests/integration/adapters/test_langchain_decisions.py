"""LangChain's own middlewares decide on stand-in workers. If these fail, they decide nothing, elsewhere, or at the price of a second prefill."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import asynccontextmanager

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AutoModeMiddleware, ModelChoice, ModelRouterMiddleware
from langchain_core.decisions import Choice, Noul, Score
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool as as_tool
from langgraph.checkpoint.memory import InMemorySaver

from warmgate.errors import EngineError, WarmgateError
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate_adapters.conformance.rig import Sets, Watched, Words
from warmgate_adapters.langchain import GateMiddleware, SystemOneDecisionModel, chat_model

LS = ("shell", {"command": "ls"})
SCRIPT = {
    "decisions": [
        {"id": "is_risky", "state": '"name": "web", "args"', "probabilities": {"yes": 0.93}},
        {"id": "is_risky", "probabilities": {"yes": 0.04}},
        {"id": "model_route", "state": "prove", "probabilities": {"powerful": 0.8}},
        {"id": "model_route", "probabilities": {"fast": 0.9}},
    ],
}
QUESTIONS = {
    "n": Noul(instructions="Is it late?"),
    "c": Choice(instructions="Which?", criteria={"a": "first", "b": None}),
    "s": Score(instructions="How?", criteria=["low", "high"]),
}


async def test_all_three_kinds_async_and_blocking():
    with StandIn() as worker:
        model = SystemOneDecisionModel(model="standin", base_url=f"{worker.url}/v1", deadline_ms=30_000)
        ways = [await model.ainvoke({"state": "It is late.", "questions": QUESTIONS})]
        ways.append(await asyncio.to_thread(model.invoke, {"state": "It is late.", "questions": QUESTIONS}))
        for answered in ways:
            assert answered.nouls["n"].noul > 0.5
            assert answered.choices["c"].choice in ("a", "b")
            assert abs(sum(answered.scores["s"].probabilities.values()) - 1) < 1e-6
            assert answered.usage["input_tokens"] > 0
            assert answered.request_id
        assert ways[0].answers == ways[1].answers
        await model.aclose()
        await asyncio.to_thread(model.close)


async def test_many_at_once_share_connections():
    """A connection a call runs a busy agent out of ports."""
    async with StandIn() as worker:
        model = SystemOneDecisionModel(model="standin", base_url=worker.url, deadline_ms=30_000)
        states = [{"state": f"state {n}", "questions": QUESTIONS} for n in range(24)]
        for _ in range(3):
            await model.abatch(states)
        ports = {one.headers.get("host") for one in worker.requests}
        assert len(worker.requests) == 72
        assert len(worker._connections) <= 24
        assert len(ports) == 1
        await model.aclose()


async def test_a_server_that_fails_is_an_error():
    """A number made up for an outage would be acted on."""
    async with StandIn() as worker:
        model = SystemOneDecisionModel(model="standin", base_url=worker.url, deadline_ms=3000)
        for fault in ("nan", "missing_answer", "501", "out_of_range"):
            worker.fault(fault)
            with pytest.raises(EngineError):
                await model.ainvoke({"state": "x", "questions": QUESTIONS})
            worker.heal()
        await model.aclose()


class Made:
    """A gate whose worker answers decisions by SCRIPT and chats as told, and tools that remember."""

    def __init__(self, gate, worker):
        self.gate, self.worker = gate, worker
        self.ran = []
        ran = self.ran

        def read(path: str) -> str:
            """Read a file."""
            ran.append(("read", path))
            return "contents"

        def shell(command: str) -> str:
            """Run a command."""
            ran.append(("shell", command))
            return "output"

        def web(query: str) -> str:
            """Search the web."""
            ran.append(("web", query))
            return "pages"

        self.tools = [as_tool(one) for one in (read, shell, web)]

    def asked(self, path="/v1/systemone"):
        return [one.json() for one in self.worker.requests if one.path == path]


@asynccontextmanager
async def shared(*chat, mounts=None, **more):
    async with StandIn(script={**SCRIPT, "chat": list(chat)}) as worker:
        settings = Settings(workers=[worker.url], model="standin", deadline_ms=30_000, **more)
        async with Watched(settings, mounts=mounts, calls=Words(lenient=True)) as gate:
            model = chat_model(gate)
            try:
                yield Made(gate, worker), model
            finally:
                model.http_client.close()
                await model.http_async_client.aclose()


def calls(*proposed):
    return {"tool_calls": [{"name": name, "arguments": dict(arguments)} for name, arguments in proposed]}


async def test_auto_mode_decides_on_the_agents_own_prefix():
    """LangChain sends the conversation as JSON text: asked so, a decision costs a second prefill of it."""
    async with shared(calls(LS, ("web", {"query": "x"})), {"content": "done"}, mounts=Sets({1: ("read", "shell", "web")})) as (
        made,
        model,
    ):
        decides = SystemOneDecisionModel(gate=made.gate)
        auto = AutoModeMiddleware(tools=["shell", "web"], classifier=decides)
        agent = create_agent(
            model,
            made.tools,
            system_prompt="You build software. " * 60,
            middleware=[auto, GateMiddleware(made.gate)],
            checkpointer=InMemorySaver(),
        )
        state = await agent.ainvoke({"messages": [HumanMessage("look around")]}, {"configurable": {"thread_id": "s"}})
        assert made.ran == [("shell", "ls")]
        assert ["blocked" in m.text for m in state["messages"] if isinstance(m, ToolMessage)] == [False, True]
        asked = [one.json() for one in made.worker.requests if one.path == "/v1/systemone" and b"is_risky" in one.body]
        assert len(asked) == 2
        assert all(body["instructions"].startswith("You build software.") for body in asked)
        assert all("<|im_start|>" in body["state"] for body in asked)
        assert [(o.predicted_tokens, o.drift) for _, o in made.gate.observations] == [
            (o.reported_tokens, None) for _, o in made.gate.observations
        ]


async def test_an_aligned_decision_computes_its_question_alone():
    """Counted by the worker: what is not found in its cache is computed."""
    computed = {}
    for align in (True, False):
        async with shared(calls(LS), {"content": "done"}, alignment="always") as (made, model):
            auto = AutoModeMiddleware(tools=["shell"], classifier=SystemOneDecisionModel(gate=made.gate, align=align))
            agent = create_agent(
                model,
                made.tools,
                system_prompt="You build software, and you say what you did. " * 60,
                middleware=[auto, GateMiddleware(made.gate)],
            )
            await agent.ainvoke({"messages": [HumanMessage("look around, please. " * 100)]}, {"configurable": {"thread_id": "s"}})
            assert made.ran == [("shell", "ls")]
            chats = sum(o.reported_tokens - o.cached_tokens for _, o in made.gate.observations)
            computed[align] = made.worker.counters["computed_tokens"] - chats
    print(f"\ntokens computed for one decision: aligned {computed[True]}, JSON {computed[False]}")
    assert computed[True] < computed[False] / 2


async def test_a_conversation_cut_at_its_front_is_asked_about_as_json():
    """Auto mode sends the latest thirty messages: a prompt that begins with them is not the agent's."""
    async with shared(calls(LS), {"content": "done"}) as (made, model):
        agent = create_agent(model, made.tools, middleware=[GateMiddleware(made.gate)], checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "s"}}
        state = await agent.ainvoke({"messages": [HumanMessage("look")]}, config)
        decides = SystemOneDecisionModel(gate=made.gate)
        for messages, kind in ((state["messages"], str), (state["messages"][1:], list)):
            await decides.ainvoke({"state": messages, "questions": {"is_risky": Noul(instructions="Risky?")}}, config)
            body = next(one for one in reversed(made.worker.requests) if one.path == "/v1/systemone").json()
            assert isinstance(body["state"], kind)


async def test_the_model_router_routes_by_a_worker():
    async with shared() as (made, _):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            router = ModelRouterMiddleware(
                choices={
                    "fast": ModelChoice(FakeListChatModel(responses=["quickly"]), "Simple tasks."),
                    "powerful": ModelChoice(FakeListChatModel(responses=["deeply"]), "Hard tasks."),
                },
                instructions="Choose the least costly model suited to the task.",
                classifier=SystemOneDecisionModel(gate=made.gate),
            )
        agent = create_agent(FakeListChatModel(responses=["never"]), middleware=[router])
        for text, said in (("add two numbers", "quickly"), ("prove it", "deeply")):
            state = await agent.ainvoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": text}})
            assert state["messages"][-1].text == said
            assert state["model_route"].confidence > 0.5


async def test_an_unanswered_decision_runs_nothing():
    """Auto mode without an answer must not run the call."""
    async with shared(calls(LS), {"content": "done"}, engines=("systemone",)) as (made, model):
        auto = AutoModeMiddleware(tools=["shell"], classifier=SystemOneDecisionModel(gate=made.gate))
        agent = create_agent(model, made.tools, middleware=[auto, GateMiddleware(made.gate)])
        made.worker.fault("501", path="/v1/systemone")
        with pytest.raises(WarmgateError, match="is_risky"):
            await agent.ainvoke({"messages": [HumanMessage("look")]}, {"configurable": {"thread_id": "s"}})
        assert made.ran == []

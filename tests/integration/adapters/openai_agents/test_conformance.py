"""The OpenAI Agents SDK passes the suite of all adapters, on stand-in workers over real sockets, with its state in RunState's JSON."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import ClassVar

from agents import Agent, ModelSettings, Runner, RunState, SQLiteSession, function_tool

from warmgate_adapters.conformance import AdapterConformance, Conversation, Driver, Told
from warmgate_adapters.openai_agents import GateHooks, gated_tools, run_config, sticky_model


class Talk(Conversation):
    """State and context live in a file between runs, as an application's would."""

    def __init__(self, agent, model, tools, told):
        limits = ModelSettings(max_tokens=told.reply_tokens)
        self.agent = Agent(name="coder", instructions="You mend code.", model=model, model_settings=limits, tools=tools)
        self.model, self.told, self.gate = model, told, told.gate
        self.session = SQLiteSession(told.session, str(told.store / "session.sqlite"))
        self.context = told.store / f"{told.session}.context.json"
        self.stopped = told.store / f"{told.session}.state.json"

    async def say(self, text, *, stream=False):
        context = json.loads(self.context.read_text()) if self.context.exists() else {}
        return await self._run(text, context, stream)

    async def answer(self, answers):
        state = await RunState.from_json(self.agent, json.loads(self.stopped.read_text()))
        for item, answer in zip(state.get_interruptions(), answers, strict=True):
            state.approve(item) if answer.type == "approve" else state.reject(item)
        return await self._run(state, None, stream=False)

    async def _run(self, given, context, stream):
        more = {
            "hooks": GateHooks(self.gate),
            "run_config": run_config(self.gate, self.session),
            "session": self.session,
            "context": context,
        }
        pieces = []
        if self.told.sync:
            result = await asyncio.to_thread(blocking, self.agent, self.model, given, more)
        elif stream:
            result = Runner.run_streamed(self.agent, given, **more)
            raw = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
            pieces = [data.delta for data in raw if data.type == "response.output_text.delta"]
        else:
            result = await Runner.run(self.agent, given, **more)
        self.context.write_text(json.dumps(result.context_wrapper.context))
        if result.interruptions:
            self.stopped.write_text(json.dumps(result.to_state().to_json()))
        items = await self.session.get_items()
        outputs = {one["call_id"]: one["output"] for one in items if one.get("type") == "function_call_output"}
        proposed = [one["call_id"] for one in items if one.get("type") == "function_call"]
        asked = [(one.tool_name, json.loads(one.arguments)) for one in result.interruptions]
        return Told([outputs[one] for one in proposed if one in outputs], asked, None if asked else result.final_output, pieces)

    async def close(self):
        if not self.told.sync:
            await self.model.close()
        self.session.close()


def blocking(agent, model, given, more):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return Runner.run_sync(agent, given, **more)
    finally:
        loop.run_until_complete(model.close())
        loop.run_until_complete(more["hooks"].gate.aclose())
        loop.close()


class AgentsDriver(Driver):
    capabilities = frozenset(("ask", "restart", "sync", "stream", "tamper", "announce", "cancel"))
    whyever: ClassVar = {"edit": "the SDK's approvals know yes and no; who wants another call rejects this one and says so"}

    async def open(self, agent):
        tools = gated_tools([function_tool(one) for one in agent.tools], agent.gate, on_ask=agent.on_ask)
        if agent.tamper is not None:
            tools = [tampered(tool, agent.tamper) for tool in tools]
        model = sticky_model(agent.gate)
        return Talk(agent, model, tools, agent)


def tampered(tool, tamper):
    changed, run = copy.copy(tool), tool.on_invoke_tool

    async def invoke(context, arguments):
        return await run(context, json.dumps(tamper(json.loads(arguments))))

    changed.on_invoke_tool = invoke
    return changed


class TestOpenAIAgents(AdapterConformance):
    driver = AgentsDriver()

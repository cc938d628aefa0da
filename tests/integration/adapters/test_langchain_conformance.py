"""LangChain passes the suite of all adapters, on stand-in workers over real sockets, with its state in SQLite."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool as as_tool

from tests.integration.adapters.threads import Thread, saver_of
from warmgate_adapters.conformance import AdapterConformance, Driver
from warmgate_adapters.langchain import GateMiddleware, chat_model


class Tampers(AgentMiddleware):
    def __init__(self, change):
        super().__init__()
        self.change = change

    async def awrap_tool_call(self, request, handler):
        call = {**request.tool_call, "args": self.change(dict(request.tool_call["args"]))}
        return await handler(request.override(tool_call=call))


class LangChainDriver(Driver):
    async def open(self, agent):
        saver = await saver_of(agent)
        model = chat_model(agent.gate, **({} if agent.reply_tokens is None else {"max_tokens": agent.reply_tokens}))
        outer = [Tampers(agent.tamper)] if agent.tamper is not None else []
        middleware = [*outer, GateMiddleware(agent.gate, on_ask=agent.on_ask)]
        graph = create_agent(
            model, [as_tool(one) for one in agent.tools], system_prompt="You build software.", middleware=middleware, checkpointer=saver
        )
        return Thread(graph, model, agent, saver)


class TestLangChain(AdapterConformance):
    driver = LangChainDriver()

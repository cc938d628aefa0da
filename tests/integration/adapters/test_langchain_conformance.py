"""LangChain passes the suite of all adapters, on stand-in workers over real sockets, with its state in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3

import aiosqlite
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_core.tools import tool as as_tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from warmgate_adapters.conformance import AdapterConformance, Conversation, Driver, Told
from warmgate_adapters.langchain import GateMiddleware, chat_model


class Tampers(AgentMiddleware):
    def __init__(self, change):
        super().__init__()
        self.change = change

    async def awrap_tool_call(self, request, handler):
        call = {**request.tool_call, "args": self.change(dict(request.tool_call["args"]))}
        return await handler(request.override(tool_call=call))


class LangChainAgent(Conversation):
    def __init__(self, graph, model, agent, saver):
        self.graph, self.model, self.agent, self.saver = graph, model, agent, saver
        self.config = {"configurable": {"thread_id": agent.session}}

    async def say(self, text, *, stream=False):
        given = {"messages": [("user", text)]}
        pieces = []
        if stream:
            async for chunk, _ in self.graph.astream(given, self.config, stream_mode="messages"):
                if isinstance(chunk, AIMessageChunk):
                    pieces.append(chunk.content)
        else:
            await self._run(given)
        return await self._told(pieces)

    async def answer(self, answers):
        decisions = []
        for answer in answers:
            edited = {"edited_action": {"name": "shell", "args": dict(answer.args)}} if answer.type == "edit" else {}
            decisions.append({"type": answer.type, **edited})
        await self._run(Command(resume={"decisions": decisions}))
        return await self._told([])

    async def _run(self, given):
        if self.agent.sync:
            await asyncio.to_thread(self.graph.invoke, given, self.config)
        else:
            await self.graph.ainvoke(given, self.config)

    async def _told(self, pieces):
        state = await asyncio.to_thread(self.graph.get_state, self.config) if self.agent.sync else await self.graph.aget_state(self.config)
        messages = state.values["messages"]
        asked = [(call["name"], call["args"]) for one in state.interrupts for call in one.value["action_requests"]]
        results = [message.content for message in messages if isinstance(message, ToolMessage)]
        return Told(results, asked, None if asked else messages[-1].content, pieces)

    async def close(self):
        self.model.http_client.close()
        await self.model.http_async_client.aclose()
        if self.agent.sync:
            self.saver.conn.close()
        else:
            await self.saver.conn.close()


class LangChainDriver(Driver):
    async def open(self, agent):
        path = str(agent.store / "checkpoints.sqlite")
        saver = (
            SqliteSaver(sqlite3.connect(path, check_same_thread=False)) if agent.sync else AsyncSqliteSaver(await aiosqlite.connect(path))
        )
        model = chat_model(agent.gate)
        outer = [Tampers(agent.tamper)] if agent.tamper is not None else []
        middleware = [*outer, GateMiddleware(agent.gate, on_ask=agent.on_ask)]
        graph = create_agent(
            model, [as_tool(one) for one in agent.tools], system_prompt="You build software.", middleware=middleware, checkpointer=saver
        )
        return LangChainAgent(graph, model, agent, saver)


class TestLangChain(AdapterConformance):
    driver = LangChainDriver()

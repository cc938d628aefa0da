"""One conversation with a graph of LangGraph's, however it was made: what the suite of all adapters says and is told."""

from __future__ import annotations

import asyncio
import sqlite3

import aiosqlite
from langchain_core.messages import AIMessageChunk, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from warmgate_adapters.conformance import Conversation, Told


class Thread(Conversation):
    """A thread of a compiled graph, its checkpoints in SQLite."""

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


async def saver_of(agent):
    """Where an agent's checkpoints are kept."""
    path = str(agent.store / "checkpoints.sqlite")
    saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
    saver.setup()  # before sessions run side by side: a file that two of them turn to WAL at once is locked, however patient they are
    if agent.sync:
        return saver
    saver.conn.close()
    return AsyncSqliteSaver(await aiosqlite.connect(path))

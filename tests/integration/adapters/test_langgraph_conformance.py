"""LangGraph passes the suite of all adapters, on stand-in workers over real sockets, with its state in SQLite."""

from __future__ import annotations

from langchain_core.tools import tool as as_tool
from langgraph.graph import START, StateGraph

from tests.integration.adapters.threads import Thread, saver_of
from warmgate_adapters.conformance import AdapterConformance, Driver
from warmgate_adapters.langgraph import GatedToolNode, GateMessagesState, GateNode, ModelNode, chat_model, gate_edge


def graph_of(gate, tools, model, **node):
    builder = StateGraph(GateMessagesState)
    builder.add_node("gate", GateNode(gate, tools))
    builder.add_node("model", ModelNode(model, tools, gate))
    builder.add_node("tools", GatedToolNode(tools, gate, **node))
    builder.add_edge(START, "gate")
    builder.add_edge("gate", "model")
    builder.add_conditional_edges("model", gate_edge)
    builder.add_edge("tools", "gate")
    return builder


class LangGraphDriver(Driver):
    async def open(self, agent):
        saver = await saver_of(agent)
        node = {"on_ask": agent.on_ask}
        if agent.tamper is not None:

            async def tampers(request, execute):
                call = {**request.tool_call, "args": agent.tamper(dict(request.tool_call["args"]))}
                return await execute(request.override(tool_call=call))

            node["awrap_tool_call"] = tampers
        model = chat_model(agent.gate, **({} if agent.reply_tokens is None else {"max_tokens": agent.reply_tokens}))
        graph = graph_of(agent.gate, [as_tool(one) for one in agent.tools], model, **node)
        return Thread(graph.compile(checkpointer=saver), model, agent, saver)


class TestLangGraph(AdapterConformance):
    driver = LangGraphDriver()

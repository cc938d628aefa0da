"""Tools of MCP servers that this process talks to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import Agent, RunContextWrapper, Tool
from agents.mcp import MCPServer, MCPUtil

from warmgate.gate import Gate
from warmgate_adapters.openai_agents.tools import OnAsk, gated_tools


async def gated_mcp_tools(servers: Sequence[MCPServer], gate: Gate, *, on_ask: OnAsk = "ask", strict: bool = False) -> list[Tool]:
    """The servers' tools, gated, for ``Agent(tools=…)`` in place of ``Agent(mcp_servers=…)``, whose tools the SDK makes where no gate is.

    They are listed once: a list that changes in the middle of a conversation would break its prefix.

    Args:
        servers: Connected servers.
        gate: The gate.
        on_ask: ``deny`` where nobody is there to approve.
        strict: Make their schemas strict where possible.
    """
    listing: Agent[Any] = Agent(name="warmgate-listing")
    tools = await MCPUtil.get_all_function_tools(list(servers), strict, RunContextWrapper(None), listing)
    return gated_tools(tools, gate, on_ask=on_ask)

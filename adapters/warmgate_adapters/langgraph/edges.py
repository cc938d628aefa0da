"""Where a graph goes after its model spoke."""

from __future__ import annotations

from typing import Any, Literal, cast

from warmgate_adapters.langgraph.channel import MISSING, field
from warmgate_adapters.langgraph.messages import as_messages, before_last_call


def gate_edge(state: Any) -> Literal["tools", "__end__"]:
    """To ``tools`` where the model's last message proposes calls, else to the end.

    Every proposed call goes there, mounted or not: it is the gated tool node that tells the model why one was not run. For
    ``add_conditional_edges``; other node names go into its path map: ``{"tools": "my_tools", "__end__": "my_end"}``.
    """
    messages = cast("Any", state) if isinstance(state, list) else field(state, "messages")
    if messages is MISSING:
        return "__end__"
    listed = as_messages(messages)
    _, last = before_last_call(listed)
    return "tools" if last is not None and last is listed[-1] and last.tool_calls else "__end__"

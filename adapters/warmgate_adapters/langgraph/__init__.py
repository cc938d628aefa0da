"""The gate in a LangGraph graph.

::

    builder.add_node("gate", GateNode(gate, tools))            # before the model: which tools it gets
    builder.add_node("model", ModelNode(chat_model(gate), tools, gate))
    builder.add_node("tools", GatedToolNode(tools, gate))      # in place of ToolNode: no call runs that was not judged
    builder.add_edge(START, "gate")
    builder.add_edge("gate", "model")
    builder.add_conditional_edges("model", gate_edge)          # to "tools", or to the end
    builder.add_edge("tools", "gate")

The state has a ``gate`` channel: derive it from :class:`GateMessagesState`, or declare ``gate: GateChannel``. See docs/langgraph.md.
"""

try:
    from warmgate_adapters.langgraph.channel import GateChannel, GateMessagesState
    from warmgate_adapters.langgraph.edges import gate_edge
    from warmgate_adapters.langgraph.gate_node import GateNode
    from warmgate_adapters.langgraph.model import ModelNode, chat_model
    from warmgate_adapters.langgraph.session import session_of
    from warmgate_adapters.langgraph.tool_node import GatedToolNode
except ImportError as fault:
    said = f"warmgate_adapters.langgraph needs LangGraph 1.2 or later ({fault}); pip install 'warmgate[langgraph]'"
    raise ImportError(said, name=fault.name) from fault

__all__ = [
    "GateChannel",
    "GateMessagesState",
    "GateNode",
    "GatedToolNode",
    "ModelNode",
    "chat_model",
    "gate_edge",
    "session_of",
]

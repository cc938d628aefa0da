"""The gate in an agent of the OpenAI Agents SDK.

::

    agent = Agent(name="coder", tools=gated_tools(tools, gate), model=sticky_model(gate))
    await Runner.run(agent, "look around", hooks=GateHooks(gate), run_config=run_config(gate, "thread-7"), context={})

``gated_tools`` enforces, ``sticky_model`` mounts tools and keeps the session on its worker, ``GateHooks`` judges all calls of a message at
once and tells the gate how the model's call went. See docs/openai-agents.md.
"""

try:
    from warmgate_adapters.openai_agents.hooks import GateHooks
    from warmgate_adapters.openai_agents.mcp import gated_mcp_tools
    from warmgate_adapters.openai_agents.model import GatedModel, sticky_client, sticky_model
    from warmgate_adapters.openai_agents.naming import gate_session, run_config
    from warmgate_adapters.openai_agents.tools import gated_tools
    from warmgate_adapters.openai_agents.tracing import TraceRecorder
except ImportError as fault:
    said = f"warmgate_adapters.openai_agents needs openai-agents 0.24 ({fault}); pip install 'warmgate[openai-agents]'"
    raise ImportError(said, name=fault.name) from fault

__all__ = [
    "GateHooks",
    "GatedModel",
    "TraceRecorder",
    "gate_session",
    "gated_mcp_tools",
    "gated_tools",
    "run_config",
    "sticky_client",
    "sticky_model",
]

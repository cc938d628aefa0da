"""The gate in a LangChain agent, and vLLM's decision endpoint as a decision model of LangChain's.

::

    agent = create_agent(chat_model(gate), tools, middleware=[GateMiddleware(gate)], checkpointer=InMemorySaver())

``GateMiddleware`` stands last in the list: then it sees the request as it is sent and each call as it runs. See docs/langchain.md.
"""

try:
    from warmgate_adapters.langchain.decision_model import SystemOneDecisionModel
    from warmgate_adapters.langchain.middleware import GateMiddleware
    from warmgate_adapters.langgraph.model import chat_model
except ImportError as fault:
    said = f"warmgate_adapters.langchain needs LangChain 1.5 or later ({fault}); pip install 'warmgate[langchain]'"
    raise ImportError(said, name=fault.name) from fault

__all__ = ["GateMiddleware", "SystemOneDecisionModel", "chat_model"]

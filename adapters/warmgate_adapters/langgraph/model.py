"""The agent's model: it is given the tools its session offers, and its calls go to the session's worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config

from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate_adapters.core import GateState, Keeper
from warmgate_adapters.langgraph import events
from warmgate_adapters.langgraph.channel import field, kept
from warmgate_adapters.langgraph.messages import Tool, as_messages, openai_messages, schemas, usage_of
from warmgate_adapters.langgraph.session import Naming, session_of

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

PLACEHOLDER = "http://session.invalid/v1"
"""Scheme, host and port are replaced by those of the session's worker."""


class ModelNode(Runnable[Any, dict[str, Any]]):
    """Calls the agent's model with the tools its session offers, and tells the gate how the call went.

    Args:
        model: A chat model whose calls reach the session's worker: :func:`chat_model`, or one behind a gateway.
        tools: As :class:`GateNode`'s.
        gate: The gate.
        agent: As :class:`GateNode`'s.
        messages_key: The channel of the conversation.
        name: Name of the node.
        keeper: As :class:`GateNode`'s.
    """

    def __init__(
        self,
        model: BaseChatModel,
        tools: Sequence[Tool],
        gate: Gate,
        *,
        agent: Naming = None,
        messages_key: str = "messages",
        name: str = "model",
        keeper: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.keeper = Keeper(gate, schemas(tools), **(keeper or {}))
        self.agent = agent
        self.messages_key = messages_key
        self.name = name

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:  # noqa: A002 -- Runnable's name
        """The model's message."""
        config = ensure_config(config)
        state, messages = self._read(input, config)
        reply = _bind(self.model, self.keeper, state).invoke(self._prompted(messages), config)
        events.survived(state.session, self.keeper.observe_sync(state, openai_messages(messages), usage_of(reply)))
        return {self.messages_key: [reply]}

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:  # noqa: A002 -- as above
        """See :meth:`invoke`."""
        config = ensure_config(config)
        state, messages = self._read(input, config)
        reply = await _bind(self.model, self.keeper, state).ainvoke(self._prompted(messages), config)
        events.survived(state.session, await self.keeper.observe(state, openai_messages(messages), usage_of(reply)))
        return {self.messages_key: [reply]}

    def _read(self, state: Any, config: RunnableConfig) -> tuple[GateState, list[Any]]:
        channel = kept(state, "ModelNode")
        session = session_of(config, channel, self.agent)
        return GateState.read(channel, session), list(as_messages(field(state, self.messages_key)))

    def _prompted(self, messages: list[Any]) -> list[Any]:
        return messages if self.keeper.prompt is None else [SystemMessage(self.keeper.prompt), *messages]

    def bound(self, state: Any, config: RunnableConfig) -> Runnable[Any, AIMessage]:
        """For a node of one's own: the model with the tools that the session offers and what keeps it on its worker and its prefix."""
        return _bind(self.model, self.keeper, self._read(state, config)[0])


def chat_model(gate: Gate, **arguments: Any) -> ChatOpenAI:
    """A ``ChatOpenAI`` whose calls go to their session's worker, and, where that is lost before it replied, to the next.

    Args:
        gate: The gate; its pool is not closed with the model.
        arguments: Of ChatOpenAI. ``model`` is the settings' one, ``api_key`` the workers'.

    Raises:
        OptionError: langchain-openai is not installed.
    """
    try:
        from langchain_openai import ChatOpenAI
    except ImportError as fault:
        raise OptionError("needs langchain-openai", where="chat_model", mend="pip install langchain-openai") from fault
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

    from warmgate.workers import AsyncStickyTransport2, StickyTransport2

    settings = gate.settings
    header = settings.session_header
    given: dict[str, Any] = {
        "model": settings.model,
        "api_key": settings.api_key or "none",
        "base_url": PLACEHOLDER,
        "stream_usage": True,
        "http_client": DefaultHttpxClient(transport=StickyTransport2(gate.pool, session_header=header)),
        "http_async_client": DefaultAsyncHttpxClient(transport=AsyncStickyTransport2(gate.pool, session_header=header)),
    }
    return ChatOpenAI(**{**given, **arguments})


def _bind(model: BaseChatModel, keeper: Keeper, state: GateState) -> Runnable[Any, AIMessage]:
    offered = [dict(tool) for tool in keeper.offered(state)]
    bound: Runnable[Any, Any] = model.bind_tools(cast("Any", offered)) if offered else model
    headers: Mapping[str, str] = state.headers or {keeper.gate.settings.session_header: state.session}
    body = keeper.body
    more: dict[str, Any] = {"extra_body": body} if body else {}
    return cast("Runnable[Any, AIMessage]", bound.bind(extra_headers=dict(headers), **more))

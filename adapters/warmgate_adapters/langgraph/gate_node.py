"""The node before the model: which tools it gets, on which worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config

from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate_adapters.core import GateState, Keeper, Mounted
from warmgate_adapters.langgraph import events
from warmgate_adapters.langgraph.channel import MISSING, field, kept
from warmgate_adapters.langgraph.messages import ANNOUNCES, Tool, as_messages, openai_messages, schemas, user_turns
from warmgate_adapters.langgraph.session import Naming, session_of


class GateNode(Runnable[Any, dict[str, Any]]):
    """Decides before each call of the agent's model and writes the ``gate`` channel.

    Tools that a policy announces come as one message at the end of the conversation, which stays there.

    Args:
        gate: The gate.
        tools: Every tool the agent could be given, in its canonical order; the same as :class:`GatedToolNode` and :class:`ModelNode` get.
        agent: Name of the agent where a graph has several, or what makes the session key of a config; see :func:`session_of`.
        messages_key: The channel of the conversation.
        announce_as: Role of the announcing message. Some chat templates take a system message at the start alone.
        name: Name of the node.
        keeper: Arguments of :class:`~warmgate_adapters.core.Keeper`: ``prompt``, ``model``, ``cache_salt``, ``template_kwargs``.
    """

    def __init__(
        self,
        gate: Gate,
        tools: Sequence[Tool],
        *,
        agent: Naming = None,
        messages_key: str = "messages",
        announce_as: Literal["system", "user"] = "system",
        name: str = "gate",
        keeper: Mapping[str, Any] | None = None,
    ) -> None:
        self.keeper = Keeper(gate, schemas(tools), **(keeper or {}))
        self.agent = agent
        self.messages_key = messages_key
        self.announce_as = announce_as
        self.name = name

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:  # noqa: A002 -- Runnable's name
        """The update of the state.

        Raises:
            OptionError: The state has no ``gate`` or no messages channel, or holds what this version cannot read.
        """
        state, messages = self._read(input, ensure_config(config))
        listed = openai_messages(messages)
        return self._update(self.keeper.mount_sync(state, listed, user_turn=user_turns(messages)))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:  # noqa: A002 -- as above
        """See :meth:`invoke`."""
        state, messages = self._read(input, ensure_config(config))
        listed = openai_messages(messages)
        return self._update(await self.keeper.mount(state, listed, user_turn=user_turns(messages)))

    def _read(self, state: Any, config: RunnableConfig) -> tuple[GateState, list[Any]]:
        channel = kept(state, "GateNode")
        messages = field(state, self.messages_key)
        if messages is MISSING:
            raise OptionError(f"the graph's state has no `{self.messages_key}` channel", where="GateNode", mend="name it in messages_key")
        return GateState.read(channel, session_of(config, channel, self.agent)), list(as_messages(messages))

    def _update(self, found: Mounted) -> dict[str, Any]:
        events.mounted(found)
        update: dict[str, Any] = {"gate": found.state.to_json()}
        if found.announcement is not None:
            make = SystemMessage if self.announce_as == "system" else HumanMessage
            update[self.messages_key] = [make(found.announcement, additional_kwargs={ANNOUNCES: True})]
        return update

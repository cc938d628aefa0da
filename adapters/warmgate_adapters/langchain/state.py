"""What an agent's state keeps of the gate. None of it comes in with an input or goes out with a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.messages import AnyMessage, HumanMessage

from warmgate_adapters.core import merge
from warmgate_adapters.langgraph.messages import ANNOUNCES, user_turns

SUMMARY = "summarization"
"""``lc_source`` of a message in which LangChain's SummarizationMiddleware put what was said before: nobody's turn."""


class UserTurn(TypedDict):
    """Which of the user's turns this is.

    Attributes:
        id: Id of the message that began it.
        number: From 1, and never less than before: a conversation that was summarised does not begin anew.
    """

    id: str | None
    number: int


class Edited(TypedDict):
    """A call as a person changed it."""

    name: str
    args: dict[str, Any]


class GateAgentState(AgentState[Any]):
    """Of an agent with a :class:`~warmgate_adapters.langchain.GateMiddleware`.

    Attributes:
        gate: See :class:`warmgate_adapters.core.GateState`.
        gate_turn: See :class:`UserTurn`.
        gate_edits: A call (its binding without policy and model, and its id) → what runs in its place.
    """

    gate: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, merge]]
    gate_turn: NotRequired[Annotated[UserTurn, PrivateStateAttr]]
    gate_edits: NotRequired[Annotated[dict[str, Edited], PrivateStateAttr]]


def user_turn(messages: Sequence[AnyMessage], kept: UserTurn | None) -> UserTurn:
    """The turn that the conversation is in.

    Args:
        messages: The conversation.
        kept: The turn as it was last.
    """
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and _said(message.additional_kwargs):
            if kept is None:
                return UserTurn(id=message.id, number=user_turns(messages))
            return kept if message.id == kept["id"] else UserTurn(id=message.id, number=kept["number"] + 1)
    return kept or UserTurn(id=None, number=0)


def _said(more: Mapping[str, Any]) -> bool:
    return ANNOUNCES not in more and more.get("lc_source") != SUMMARY

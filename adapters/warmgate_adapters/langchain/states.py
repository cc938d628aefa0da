"""A decision's state, as LangChain hands it over: JSON in which messages may stand anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.messages import AnyMessage, BaseMessage

from warmgate.alignment.plan import MEDIA
from warmgate.errors import QuestionError
from warmgate.foreign import mapping, mappings
from warmgate_adapters.langgraph.messages import openai_messages


@dataclass(frozen=True, slots=True)
class Conversation:
    """A state that is a conversation, or holds one under ``messages``.

    Attributes:
        messages: Its messages.
        rest: What the state holds beside them.
    """

    messages: Sequence[AnyMessage]
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])


def conversation(state: Any) -> Conversation | None:
    """The conversation of a state; ``None`` where it is no such thing."""
    if isinstance(state, BaseMessage):
        return Conversation([cast("AnyMessage", state)])
    if isinstance(state, Mapping):
        found = mapping(cast("Any", state))
        inner = conversation(found.get("messages")) if not isinstance(found.get("messages"), Mapping) else None
        return inner and Conversation(inner.messages, {key: value for key, value in found.items() if key != "messages"})
    if isinstance(state, (list, tuple)):
        listed = cast("Sequence[Any]", state)
        if listed and all(isinstance(one, BaseMessage) for one in listed):
            return Conversation(listed)
    return None


def plain(state: Any) -> Any:
    """A state as JSON, messages in OpenAI's shape.

    Raises:
        QuestionError: A message holds an image, audio or video.
    """
    if isinstance(state, BaseMessage):
        message = openai_messages([state])[0]
        held = next((part.get("type") for part in mappings(message.get("content")) if part.get("type") in MEDIA), None)
        if held is not None:
            raise QuestionError(f"a message holds {held}: media are not sent with decisions", field="state", mend="describe it in text")
        return {key: value for key, value in message.items() if value is not None}
    if isinstance(state, Mapping):
        return {str(key): plain(value) for key, value in mapping(cast("Any", state)).items()}
    if isinstance(state, (list, tuple)):
        return [plain(value) for value in cast("Sequence[Any]", state)]
    return state

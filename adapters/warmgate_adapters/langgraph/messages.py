"""LangChain's messages, tools and calls in the gate's shapes: what is judged must be what is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.messages.utils import convert_to_messages
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from warmgate.foreign import mapping
from warmgate.turn import ProposedCall
from warmgate_adapters.core import one_of_each

ANNOUNCES = "warmgate_announces"
"""Key in ``additional_kwargs`` of a message of ours; it is not sent to models."""

Tool: TypeAlias = BaseTool | Callable[..., Any] | dict[str, Any]


def openai_messages(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Messages as a chat completions request carries them.

    Where the two differ, after ChatOpenAI's own rendering: parts stay parts, a message that only calls tools has no content, and a result
    no name.
    """
    made = [dict(message) for message in convert_to_openai_messages(list(messages))]  # all at once: half the time
    for index, message in enumerate(messages):
        if isinstance(getattr(message, "content", None), list):
            made[index] = dict(mapping(convert_to_openai_messages(message, text_format="block")))
    for message in made:
        if message.get("role") == "assistant" and message.get("tool_calls") and not message.get("content"):
            message["content"] = None
        elif message.get("role") == "tool":
            message.pop("name", None)
    return made


def schemas(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as a request carries them, in their order."""
    return [one_of_each(convert_to_openai_tool(tool)) for tool in tools]


def as_messages(messages: Any) -> list[AnyMessage]:
    """Messages however a state holds them."""
    if isinstance(messages, BaseMessage):
        return [cast("AnyMessage", messages)]
    return cast("list[AnyMessage]", convert_to_messages(cast("Sequence[Any]", messages or [])))


def before_last_call(messages: Sequence[AnyMessage]) -> tuple[list[AnyMessage], AIMessage | None]:
    """The conversation up to the last message of the model, and that message."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AIMessage):
            return list(messages[:index]), message
    return list(messages), None


def user_turns(messages: Sequence[BaseMessage]) -> int:
    """The user's messages; an announcement is none, whatever role it has."""
    return sum(isinstance(message, HumanMessage) and ANNOUNCES not in message.additional_kwargs for message in messages)


def proposed(call: Mapping[str, Any]) -> ProposedCall:
    """A tool call of LangChain's."""
    return ProposedCall(str(call.get("id") or ""), str(call.get("name")), dict(call.get("args") or {}))


def usage_of(message: BaseMessage) -> dict[str, Any] | None:
    """``usage`` of a reply in OpenAI's shape; ``None`` where it has none."""
    usage = mapping(getattr(message, "usage_metadata", None))
    if not usage:
        return None
    told: dict[str, Any] = {"prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens")}
    cached = mapping(usage.get("input_token_details")).get("cache_read")
    return told if cached is None else {**told, "prompt_tokens_details": {"cached_tokens": cached}}

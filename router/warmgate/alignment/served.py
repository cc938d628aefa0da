"""What a server makes of a request before its chat template sees it.

vLLM hands a template other values than a client sent (0.32, ``vllm/renderers/chat_utils.py``): contents in parts become one text, a missing
content an empty one, a call's arguments an object, a tool its known fields in a fixed order. A template rendered here must see the same, or
``1.0`` and ``1.00`` would part the prompts. What no server would take is passed on as it is: the template, or the server, will say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from warmgate.alignment.seen import Seen
from warmgate.alignment.template import flat_content
from warmgate.foreign import items, mapping, mappings, sendable, text

TOOL_FIELDS = ("name", "description", "parameters")


def served_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as the template sees it."""
    shown: dict[str, Any] = {"role": message.get("role"), "content": flat_content(message.get("content"))}
    if shown["role"] == "assistant":
        if calls := mappings(message.get("tool_calls")):
            shown["tool_calls"] = [_call(call) for call in calls]
        reasoning = text(message.get("reasoning")) or text(message.get("reasoning_content"))
        if reasoning is not None:
            shown["reasoning"] = shown["reasoning_content"] = reasoning
    if shown["role"] == "tool" and "tool_call_id" in message:
        shown["tool_call_id"] = message["tool_call_id"]
    if text(message.get("name")) is not None:
        shown["name"] = message["name"]
    return sendable(shown)


def served_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool schema as the template sees it: known fields, absent ones as null, ``strict`` only where it is set."""
    function = mapping(tool.get("function"))
    if not function:
        return sendable(dict(tool))
    shown: dict[str, Any] = {name: function.get(name) for name in TOOL_FIELDS}
    if function.get("strict") is not None:
        shown["strict"] = function["strict"]
    return sendable({"type": tool.get("type", "function"), "function": shown})


class Served:
    """The messages of one conversation as its template sees them; those known from the turn before keep their identity."""

    __slots__ = ("_raw_tools", "_seen", "_shown", "_tools")

    def __init__(self) -> None:
        self._seen = Seen()
        self._shown: list[Mapping[str, Any]] = []
        self._raw_tools: list[Mapping[str, Any]] = []
        self._tools: list[Mapping[str, Any]] = []

    def known(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """How many leading messages are those shown last: all of these, or 0."""
        return self._seen.known(messages)

    def messages(self, messages: Sequence[Mapping[str, Any]], known: int | None = None) -> list[Mapping[str, Any]]:
        """Each message once, however often the conversation is shown.

        Args:
            messages: The conversation.
            known: What :meth:`known` just said of it, where it was asked.
        """
        known = self.known(messages) if known is None else known
        self._shown = self._shown[:known] + list(map(served_message, messages[known:]))  # a new list: the last one was handed out
        self._seen.keep(messages)
        return self._shown

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The tools, the same objects while they do not change."""
        if len(tools) != len(self._raw_tools) or not all(map(_alike, tools, self._raw_tools)):
            self._raw_tools, self._tools = list(tools), [served_tool(tool) for tool in tools]
        return self._tools


def _alike(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a is b or (a == b and repr(a) == repr(b))


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(call)
    function = dict(mapping(shown.get("function")))
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            arguments = function["arguments"]
    function["arguments"] = {} if arguments is None else arguments
    shown["function"] = function
    return shown


def has_floats(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a tool call has a fractional number in its arguments: the value that most often comes back spelled otherwise."""

    def within(value: Any) -> bool:
        if isinstance(value, Mapping):
            return any(map(within, mapping(value).values()))
        if isinstance(value, (list, tuple)):
            return any(map(within, items(value)))
        return isinstance(value, float)

    calls = (call for message in messages for call in mappings(message.get("tool_calls")))
    try:
        return any(within(mapping(_call(call)["function"]).get("arguments")) for call in calls)
    except RecursionError:  # no server takes them either
        return False

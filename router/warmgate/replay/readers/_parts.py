"""What stands inside one chat message, whoever wrote it: text, media, reasoning, tool calls and tool results.

Read here: content blocks of Anthropic, parts of OpenAI chat and Responses, of the OTel GenAI conventions, of Gemini and Bedrock,
of the Vercel AI SDK, of LangChain, and OpenInference's ``message_content``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from warmgate.replay.readers._fields import compact, first_text, items, mapping, mappings, parsed, text

MAX_DEPTH = 8
"""How deep parts may hold parts (a tool result holds text parts; nothing real goes deeper than three)."""

_TEXT = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"})
_REASONING = frozenset({"thinking", "reasoning", "redacted_thinking", "reasoningContent"})
_CALL = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call", "function_call", "functionCall", "toolUse"})
_RESULT = frozenset(
    {
        "tool_result",
        "tool_call_response",
        "tool-result",
        "function_call_output",
        "function_response",
        "functionResponse",
        "toolResult",
    }
)
_UNTYPED = ("functionCall", "function_call", "functionResponse", "function_response", "toolUse", "toolResult", "reasoningContent")
"""Gemini and Bedrock name a part by its one key instead of a ``type``."""


@dataclass(slots=True)
class Pieces:
    """A message's parts, sorted.

    Attributes:
        content: Text and, as they were, media parts, in order.
        reasoning: Texts of thinking.
        calls: Tool calls in OpenAI's shape.
        results: Tool results, each a ``tool`` message in OpenAI's shape.
    """

    content: list[str | dict[str, Any]] = field(default_factory=list[str | dict[str, Any]])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def joined(self) -> str | list[dict[str, Any]]:
        """The content as one text, or as a list of parts where media stand between."""
        if all(isinstance(one, str) for one in self.content):
            return "".join(one for one in self.content if isinstance(one, str))
        return [{"type": "text", "text": one} if isinstance(one, str) else one for one in self.content]

    def call(self, one: dict[str, Any]) -> None:
        """Add a tool call, unless it is there already (LangChain writes each twice, as a part and in ``tool_calls``)."""
        ident = one.get("id")
        if any(known is one or (known.get("id") == ident if ident else known == one) for known in self.calls):
            return
        self.calls.append(one)


def pieces(content: Any) -> Pieces:
    """Sort a message's ``content`` or ``parts``."""
    found = Pieces()
    _sort(content, found, MAX_DEPTH)
    return found


def tool_call(name: Any, arguments: Any, ident: Any = None) -> dict[str, Any] | None:
    """A tool call in OpenAI's shape. ``None`` without a name. Arguments that are no text are printed as JSON."""
    if (named := text(name)) is None:
        return None
    given = text(arguments) or ("{}" if arguments in (None, "") else compact(arguments))
    function = {"name": named, "arguments": given}
    known = text(ident)
    return {"id": known, "type": "function", "function": function} if known else {"type": "function", "function": function}


def tool_calls(value: Any) -> list[dict[str, Any]]:
    """A ``tool_calls`` list in OpenAI's, LangChain's, OpenInference's or the AI SDK's shape."""
    found: list[dict[str, Any]] = []
    for entry in mappings(parsed(value)):
        one = mapping(entry.get("tool_call")) or entry
        function = mapping(one.get("function")) or one
        arguments = next((function[k] for k in ("arguments", "args", "input") if function.get(k) is not None), None)
        name = first_text(function.get("name"), function.get("toolName"), function.get("tool_name"))
        ident = first_text(one.get("id"), one.get("call_id"), one.get("toolCallId"), one.get("tool_call_id"))
        if (call := tool_call(name, arguments, ident)) is not None:
            found.append(call)
    return found


def tool_message(content: Any, ident: Any = None, name: Any = None) -> dict[str, Any]:
    """A ``tool`` message in OpenAI's shape. Content that is neither text nor parts is printed as JSON."""
    message: dict[str, Any] = {"role": "tool", "content": result_content(content)}
    if known := text(ident):
        message["tool_call_id"] = known
    if named := text(name):
        message["name"] = named
    return message


def result_content(value: Any, depth: int = MAX_DEPTH) -> str | list[dict[str, Any]]:
    """What a tool gave back, as message content."""
    if value is None:
        return ""
    if isinstance(value, str):
        return text(value) or ""
    wrapped = mapping(value)
    if set(wrapped) == {"type", "value"}:  # the AI SDK says whether the output is text or JSON
        return result_content(wrapped["value"], depth - 1) if depth else ""
    parts = items(value)
    if parts and all(_is_part(one) for one in parts):
        inner = Pieces()
        _sort(parts, inner, depth - 1)
        return inner.joined()
    return compact(value)


def _is_part(value: Any) -> bool:
    return isinstance(value, str) or text(mapping(value).get("type")) is not None or set(mapping(value)) == {"text"}


def _sort(content: Any, into: Pieces, depth: int) -> None:
    if content is None or depth <= 0:
        return
    if isinstance(content, str):
        if found := text(content):
            into.content.append(found)
    elif isinstance(content, list):
        for part in items(content):
            _part(part, into, depth)
    elif isinstance(content, dict):
        _part(content, into, depth)
    else:
        into.content.append(compact(content))


def _part(part: Any, into: Pieces, depth: int) -> None:
    if not isinstance(part, dict):
        _sort(part, into, depth - 1)
        return
    one = mapping(part)
    if len(one) == 1 and isinstance(one.get("message_content"), dict):  # OpenInference
        one = mapping(one["message_content"])
    kind = text(one.get("type"))
    body = one
    if kind is None and (named := next((k for k in _UNTYPED if isinstance(one.get(k), dict)), None)):
        kind, body = named, mapping(one[named])
    if kind in _TEXT or (kind is None and isinstance(one.get("text"), str)):
        said = first_text(one.get("text"), one.get("content"), one.get("refusal"))
        if said:
            (into.reasoning if one.get("thought") is True else into.content).append(said)
    elif kind in _REASONING:
        into.reasoning.extend(thoughts(body, depth - 1))
    elif kind in _CALL:
        arguments = next((body[k] for k in ("arguments", "args", "input") if body.get(k) is not None), None)
        ident = first_text(body.get("call_id"), body.get("toolCallId"), body.get("toolUseId"), body.get("id"))
        if (call := tool_call(body.get("name") or body.get("toolName"), arguments, ident)) is not None:
            into.call(call)
    elif kind in _RESULT or (kind or "").endswith("_tool_result"):
        names = ("content", "response", "result", "output")
        given = next((body[k] for k in names if body.get(k) is not None), None)
        idents = ("tool_use_id", "call_id", "toolCallId", "toolUseId", "id")
        ident = first_text(*(body.get(k) for k in idents))
        into.results.append(tool_message(given, ident, body.get("name") or body.get("toolName")))
    else:
        into.content.append(one)


def thoughts(value: Any, depth: int = MAX_DEPTH) -> Iterable[str]:
    """Texts of one block of reasoning: a string, a block, or a list of summaries. Encrypted ones have none."""
    if depth <= 0:
        return
    if isinstance(value, str):
        if found := text(value):
            yield found
        return
    for one in mappings(value) or [mapping(value)]:
        for name in ("thinking", "text", "reasoning", "content", "reasoning_content", "reasoningText", "summary"):
            inner = one.get(name)
            if inner:
                yield from thoughts(inner, depth - 1)
                break

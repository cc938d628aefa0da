"""Prompts and answers of any provider or framework, turned into OpenAI chat messages.

Read here: OpenAI chat and Responses, Anthropic, Gemini, LangChain (``lc`` constructors, ``message_to_dict``, plain objects), the
OTel GenAI conventions' ``parts``, OpenInference, Vercel's AI SDK, and the wrappers that exports put around them. What an engine
would print differently stays different; what is the same message in two dresses comes out the same, key order included, since
two prompts of a session are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from warmgate.replay.readers._fields import dig, first_text, items, mapping, mappings, parsed, text
from warmgate.replay.readers._parts import Pieces, pieces, thoughts, tool_call, tool_calls, tool_message
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.trace import Message

MAX_DEPTH = 6
"""How many wrappers stand around a conversation at most (batch, request body, keyword arguments, JSON in a string)."""

Chat: TypeAlias = dict[str, Any]
"""A message in OpenAI's shape, keys in the order role, content, reasoning_content, tool_calls, tool_call_id, name."""

_ROLES = {
    "human": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "systemmessage": "system",
    "systemmessagechunk": "system",
    "toolmessage": "tool",
    "toolmessagechunk": "tool",
    "function": "tool",
    "functionmessage": "tool",
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class Prompt(NamedTuple):
    """What was sent: messages and tool schemas, both in OpenAI's shape."""

    messages: list[Message]
    tools: list[dict[str, Any]]


def prompt(value: Any, depth: int = MAX_DEPTH) -> Prompt | None:
    """The prompt in a recorded input, or ``None`` where it holds none.

    Args:
        value: A list of messages, a request body, one message, a text, or JSON of these in a string.
        depth: How many wrappers to look through.
    """
    if isinstance(value, str):
        inner = parsed(value)
        if isinstance(inner, (list, dict)) and (found := prompt(inner, depth)):
            return found
        said = text(inner) or text(value)
        return Prompt([{"role": "user", "content": said}], []) if said else None
    if depth <= 0:
        return None
    if isinstance(value, list):
        return _listed(items(value), depth)
    body = mapping(value)
    if role_of(body) is not None:
        return _listed([body], depth)
    if not (found := _sent(body, depth)):
        return None
    tools = tool_schemas(_first(body, ("tools",), ("functions",), ("config", "tools"))) or found.tools
    system = _first(body, ("system",), ("instructions",), ("system_instruction",), ("config", "system_instruction"))
    return Prompt(with_system(found.messages, system), tools)


def _first(body: dict[str, Any], *paths: tuple[str, ...]) -> Any:
    return next((found for path in paths if (found := dig(body, *path))), None)


def _sent(body: dict[str, Any], depth: int) -> Prompt | None:
    """The conversation in a request body, under whichever name its API gives it."""
    for name in ("messages", "contents", "input", "prompt", "prompts"):
        inner = parsed(body.get(name))
        if isinstance(inner, dict) and role_of(mapping(inner)) is None:
            inner = mapping(inner).get("messages")  # LangSmith's prompts: {"prompt": {"messages": […]}}
        if isinstance(inner, (str, list, dict)) and inner and (found := prompt(inner, depth - 1)):
            return found
    inner = mapping(body.get("kwargs"))  # a decorated function's arguments
    return _sent(inner, depth - 1) if inner and depth else None


def _listed(entries: list[Any], depth: int) -> Prompt | None:
    if len(entries) == 1 and isinstance(entries[0], (list, str)):  # LangChain sends batches of conversations, of one each
        return prompt(entries[0], depth - 1)
    messages: list[Chat] = []
    tools: list[dict[str, Any]] = []
    for entry in entries:
        if (schema := _disguised_tool(entry)) is not None:
            tools.append(schema)
        else:
            add(messages, entry)
    return Prompt(list(messages), tools) if messages else None


def _disguised_tool(entry: Any) -> dict[str, Any] | None:
    """A tool schema that Langfuse's LangChain handler wrote behind the messages as if it were one of them."""
    content = mapping(mapping(entry).get("content"))
    if mapping(entry).get("role") != "tool" or content.get("type") != "function" or "function" not in content:
        return None
    return next(iter(tool_schemas([content])), None)


def with_system(messages: Sequence[Message], system: Any) -> list[Message]:
    """``messages`` behind a system message of ``system`` (text or text parts), unless they begin with one already."""
    content = pieces(mapping(system).get("parts") or system).joined()
    if not content or (messages and messages[0].get("role") in ("system", "developer")):
        return list(messages)
    return [{"role": "system", "content": content}, *messages]


def role_of(entry: dict[str, Any]) -> str | None:
    """The role of what may be a message, or ``None`` when it is none."""
    if entry.get("lc") == 1:
        path = items(entry.get("id"))
        kind = text(dig(entry, "kwargs", "type")) or (text(path[-1]) if path else None)
        return _ROLES.get((text(dig(entry, "kwargs", "role")) or kind or "").lower())
    role = text(entry.get("role"))
    if role is not None:
        body = entry.keys() & {"content", "contents", "parts", "tool_calls", "function_call", "tool_call_id", "refusal"}
        return _ROLES.get(role.lower(), role.lower()) if body else None
    kind = text(entry.get("type"))
    if kind is None or not (entry.keys() & {"content", "data"}):
        return None
    if kind == "chat" or kind == "ChatMessage":
        return _ROLES.get((text(dig(entry, "data", "role")) or "user").lower(), "user")
    return None if kind in ("function", "user", "assistant", "model") and "content" not in entry else _ROLES.get(kind.lower())


def add(messages: list[Chat], entry: Any) -> None:
    """Append what ``entry`` says to a conversation. Anything that is no message adds nothing.

    The items of a Responses conversation that make up one assistant turn (reasoning, text, function calls) become one message.
    """
    body = mapping(entry)
    if set(body) <= {"message", "index", "finish_reason", "logprobs"} and isinstance(body.get("message"), dict):
        body = mapping(body["message"])
    role = role_of(body)
    if role is None:
        _add_item(messages, body)
        return
    new = _messages(body, role)
    last = messages[-1] if messages else None
    if last is not None and new and new[0]["role"] == "assistant" and _only_thought(last):
        thought = {"reasoning_content": last["reasoning_content"]}
        messages[-1] = {"role": "assistant", "content": new[0]["content"], **thought, **_rest(new[0])}
        new = new[1:]
    messages.extend(new)


def _only_thought(message: Chat) -> bool:
    return set(message) == {"role", "content", "reasoning_content"} and not message["content"]


def _rest(message: Chat) -> Chat:
    return {k: v for k, v in message.items() if k not in ("role", "content")}


def _add_item(messages: list[Chat], item: dict[str, Any]) -> None:
    """One item of a Responses conversation that is not a message."""
    kind = text(item.get("type")) or ""
    if kind.endswith("_call_output"):
        messages.append(tool_message(item.get("output"), item.get("call_id")))
        return
    if kind == "reasoning":
        said = "\n".join(thoughts(item.get("content") or item.get("summary")))
        if said:
            messages.append({"role": "assistant", "content": "", "reasoning_content": said})
        return
    if not kind.endswith("_call") or (kind.endswith("tool_call") and "name" not in item):
        return
    given = next((item[k] for k in ("arguments", "input", "action") if item.get(k) is not None), None)
    call = tool_call(text(item.get("name")) or kind.removesuffix("_call"), given, item.get("call_id") or item.get("id"))
    if call is None:
        return
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    old = messages[-1]
    messages[-1] = {**old, "tool_calls": [*old.get("tool_calls", ()), call]}


def _messages(entry: dict[str, Any], role: str) -> list[Chat]:
    if entry.get("lc") == 1:
        entry = mapping(entry.get("kwargs"))
    elif isinstance(entry.get("data"), dict) and "content" not in entry:
        entry = mapping(entry["data"])
    more = mapping(entry.get("additional_kwargs"))
    found = pieces(next((entry[k] for k in ("content", "parts", "contents") if entry.get(k)), None))
    if role == "tool" and not found.results:
        ident = first_text(entry.get("tool_call_id"), entry.get("toolCallId"), *items(entry.get("tool_call_ids"))[:1])
        content = entry.get("content") if isinstance(entry.get("content"), dict) else found.joined()
        return [tool_message(content, ident, entry.get("name"))]
    if role == "assistant":
        for listed in (entry.get("tool_calls"), more.get("tool_calls"), entry.get("invalid_tool_calls")):
            for call in tool_calls(listed):
                found.call(call)
        legacy = mapping(entry.get("function_call") or more.get("function_call"))
        if (called := tool_call(legacy.get("name"), legacy.get("arguments"))) is not None:
            found.call(called)
        for source in (entry, more):
            said = next((source[k] for k in ("reasoning_content", "reasoning", "thinking_blocks") if source.get(k)), None)
            if said and not found.reasoning:
                found.reasoning.extend(thoughts(said))
    return _assembled(role, found, text(entry.get("name")))


def _assembled(role: str, found: Pieces, name: str | None) -> list[Chat]:
    message: Chat = {"role": role, "content": found.joined()}
    if found.reasoning:
        message["reasoning_content"] = "\n".join(found.reasoning)
    if found.calls:
        message["tool_calls"] = found.calls
    if name is not None:
        message["name"] = name
    if not found.results:
        return [message]
    if role == "assistant":
        return [message, *found.results]
    said = found.content or found.reasoning or found.calls
    return [*found.results, message] if said else found.results


def answer(value: Any, depth: int = MAX_DEPTH) -> Chat | None:
    """The assistant message in a recorded output, or ``None`` where it holds none."""
    if isinstance(value, str):
        inner = parsed(value)
        if isinstance(inner, (list, dict)) and (found := answer(inner, depth)):
            return found
        said = text(inner) or text(value)
        return {"role": "assistant", "content": said} if said else None
    if depth <= 0:
        return None
    if isinstance(value, list):
        return _merged(items(value))
    body = mapping(value)
    if role_of(body) is not None:
        return _merged([body])
    for path in (("choices",), ("candidates",), ("generations",)):
        first = next(iter(items(dig(body, *path))), None)
        while isinstance(first, list):  # LangChain: one list a prompt, one entry a candidate
            first = next(iter(items(first)), None)
        one = mapping(first)
        if found := answer(one.get("message") or one.get("content") or one.get("text"), depth - 1):
            return found
    for name in ("message", "messages", "output", "content", "text", "completion"):
        inner = body.get(name)
        if name == "content" and isinstance(inner, list):
            return _merged([{"role": "assistant", "content": inner}])
        if name == "text" and (calls := tool_calls(body.get("toolCalls"))):
            return {"role": "assistant", "content": text(inner) or "", "tool_calls": calls}
        if inner and (found := answer(inner, depth - 1)):
            return found
    return None


def _merged(entries: list[Any]) -> Chat | None:
    """One assistant message of all that an answer was written as."""
    messages: list[Chat] = []
    for entry in entries:
        add(messages, entry)
    said = [m for m in messages if m["role"] == "assistant"]
    if not said:
        calls = tool_calls(entries) if all("toolName" in mapping(e) for e in entries) else []
        return {"role": "assistant", "content": "", "tool_calls": calls} if calls else None
    if len(said) == 1:
        return said[0]
    found = Pieces()
    for message in said:
        found.content.extend(items(message["content"]) or ([message["content"]] if message["content"] else []))
        found.calls.extend(items(message.get("tool_calls")))
        found.reasoning.extend(thoughts(message.get("reasoning_content")))
    return _assembled("assistant", found, None)[0]


def has_messages(entries: Any) -> bool:
    """Whether a list holds at least one message."""
    return any(role_of(one) is not None for one in mappings(entries))

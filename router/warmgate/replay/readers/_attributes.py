"""What the attributes of one span say about an LLM call.

Conventions read here: OTel GenAI, current (``gen_ai.input.messages``) and deprecated (``gen_ai.prompt``, and OpenLLMetry's
``gen_ai.prompt.0.content``); OpenInference (``llm.input_messages.0.message.content``); the Vercel AI SDK (``ai.prompt.messages``);
Pydantic AI (``model_request_parameters``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from warmgate.replay.readers._fields import dig, first_text, items, mapping, mappings, parsed, text
from warmgate.replay.readers._messages import Chat, Prompt, answer, has_messages, prompt, with_system
from warmgate.replay.readers._parts import tool_calls
from warmgate.replay.readers._tools import tool_schemas

NAMESPACES = ("gen_ai.", "llm.", "openinference.", "ai.", "traceloop.")
"""How the names of these conventions begin."""

_NESTED = ("gen_ai", "llm", "openinference", "input", "output", "session", "ai", "agent", "graph", "traceloop")
"""Namespaces that some exports (Phoenix) write as nested objects instead of dotted names."""

CALLS = frozenset({"chat", "text_completion", "generate_content", "completion", "responses", "message"})
"""Values of ``gen_ai.operation.name`` that mean one request to a model."""

TOOLS = frozenset({"execute_tool", "mcp.tool.call"})
AGENTS = frozenset({"invoke_agent", "create_agent", "invoke_workflow", "agent"})

_USAGE = ("gen_ai.usage.", "llm.token_count.", "llm.usage.", "ai.usage.")
MAX_PATH = 12
"""Steps of a dotted name behind its index (``message.contents.0.message_content.text`` has five)."""

_INDEX = re.compile(r"[0-9]{1,6}")


def flat(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with dotted names, whether nested or not. Values of a name's own (a list of messages, say) stay whole."""
    if not any(isinstance(attributes.get(name), dict) for name in _NESTED):
        return attributes
    found: dict[str, Any] = {}
    stack: list[tuple[str, Any, int]] = [(name, value, 0) for name, value in reversed(attributes.items())]
    while stack:
        name, value, depth = stack.pop()
        if isinstance(value, dict) and depth < 8 and name.split(".")[0] in _NESTED and not name.endswith((".value", ".arguments")):
            stack.extend((f"{name}.{inner}", one, depth + 1) for inner, one in reversed(mapping(value).items()))
        else:
            found.setdefault(name, value)
    return found


def operation(attributes: dict[str, Any]) -> str:
    """What a span does: ``call``, ``tool``, ``agent``, ``embedding`` …, or ``""`` where no convention says."""
    named = (text(attributes.get("gen_ai.operation.name")) or "").lower()
    kind = (first_text(attributes.get("openinference.span.kind"), attributes.get("traceloop.span.kind")) or "").lower()
    if named in TOOLS or kind == "tool" or text(attributes.get("ai.operationId")) == "ai.toolCall":
        return "tool"
    if named in AGENTS or kind in ("agent", "workflow"):
        return "agent"
    if named in CALLS or kind == "llm" or text(attributes.get("llm.request.type")) in ("chat", "completion"):
        return "call"
    if not named and not kind and "gen_ai.agent.name" in attributes and "gen_ai.request.model" not in attributes:
        return "agent"  # Pydantic AI before it named its operations
    return named or kind


def has_counts(attributes: dict[str, Any]) -> bool:
    """Whether a span holds token counts."""
    return any(name.startswith(_USAGE) for name in attributes)


def sent(attributes: dict[str, Any], events: Sequence[dict[str, Any]] = ()) -> Prompt | None:
    """The prompt, with its system message in front, or ``None`` where the span holds none.

    Args:
        attributes: Dotted names.
        events: The span's events as ``{"name", "attributes"}``.
    """
    found = _conversation(attributes, events)
    if found is None:
        return None
    parameters = mapping(parsed(attributes.get("llm.invocation_parameters")))
    system = parsed(attributes.get("gen_ai.system_instructions")) or parameters.get("instructions")
    return Prompt(with_system(found.messages, system), schemas(attributes) or found.tools)


def _conversation(attributes: dict[str, Any], events: Sequence[dict[str, Any]]) -> Prompt | None:
    a = attributes
    for name in ("gen_ai.input.messages", "ai.prompt.messages"):
        if a.get(name) is not None and (found := prompt(a[name])):
            return found
    if found := prompt(_indexed(a, "llm.input_messages")):
        return found
    for value in (a.get("gen_ai.prompt"), _indexed(a, "gen_ai.prompt"), _from_events([*events, *_written(a)]), a.get("ai.prompt")):
        if value and (found := prompt(value)):
            return found
    request = parsed(a.get("gcp.vertex.agent.llm_request"))  # Google's ADK
    if isinstance(request, dict) and (found := prompt(request)):
        return found
    for name in ("input.value", "traceloop.entity.input", "input"):
        value = parsed(a.get(name))
        if isinstance(value, (list, dict)) and (found := prompt(value)):
            return found
    plain = first_text(a.get("input.value"), *(one.get("prompt.text") for one in _indexed(a, "llm.prompts")))
    return prompt(plain) if plain else None


def _written(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Events that Pydantic AI wrote into one attribute."""
    return [{"name": one.get("event.name"), "attributes": one} for one in mappings(parsed(attributes.get("events")))]


def _event(event: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A span event's name and body, which exporters keep in different places."""
    body = mapping(event.get("attributes"))
    return text(event.get("name")) or "", mapping(parsed(body.get("event_body"))) or mapping(parsed(event.get("body"))) or body


def _from_events(events: Sequence[dict[str, Any]]) -> list[Any]:
    """Messages written as span events, as the conventions had it up to version 1.36."""
    found: list[Any] = []
    for name, body in map(_event, events):
        match = re.fullmatch(r"gen_ai\.(system|user|assistant|tool)\.message", name)
        if match:
            known = {k: parsed(v) if k == "tool_calls" else v for k, v in body.items()}
            ident = first_text(known.get("tool_call_id"), known.get("id"))
            found.append({"content": "", **known, "role": match[1], "tool_call_id": ident})
        elif name in ("gen_ai.content.prompt", "gen_ai.client.inference.operation.details"):
            value = parsed(body.get("gen_ai.input.messages") or body.get("gen_ai.prompt"))
            found.extend(items(value) or ([{"role": "user", "content": value}] if isinstance(value, str) else []))
    return found if has_messages(found) else []


def schemas(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Tool schemas, in the order sent."""
    a = attributes
    for name in ("gen_ai.tool.definitions", "gen_ai.request.tools", "ai.prompt.tools"):
        if found := tool_schemas(a.get(name)):
            return found
    if found := tool_schemas(_indexed(a, "llm.tools")):
        return found
    if found := tool_schemas(_indexed(a, "llm.request.functions")):
        return found
    parameters = mapping(parsed(a.get("model_request_parameters")))
    if found := tool_schemas([*items(parameters.get("function_tools")), *items(parameters.get("output_tools"))]):
        return found
    return tool_schemas(dig(parsed(a.get("llm.invocation_parameters")), "tools"))


def answered(attributes: dict[str, Any], events: Sequence[dict[str, Any]] = ()) -> Chat | None:
    """The assistant message, or ``None`` where the span holds none."""
    a = attributes
    values: list[Any] = [
        a.get("gen_ai.output.messages"),
        _indexed(a, "llm.output_messages"),
        a.get("gen_ai.completion"),
        _indexed(a, "gen_ai.completion"),
    ]
    for name, body in map(_event, [*events, *_written(a)]):
        if name == "gen_ai.choice":
            values.append(parsed(body.get("message")) or body)
        elif name in ("gen_ai.content.completion", "gen_ai.client.inference.operation.details"):
            values.append(body.get("gen_ai.output.messages") or body.get("gen_ai.completion"))
    for value in values:
        if value and (found := answer(value)):
            return found
    said, calls = text(a.get("ai.response.text")), tool_calls(a.get("ai.response.toolCalls"))
    if said or calls:
        return {"role": "assistant", "content": said or "", **({"tool_calls": calls} if calls else {})}
    value = a.get("output.value") or a.get("output")
    return answer(value) if value else None


def model(attributes: dict[str, Any]) -> str:
    """The model asked for, else the one that answered, else ``""``."""
    names = ("gen_ai.request.model", "llm.request.model", "gen_ai.response.model", "llm.model_name", "ai.model.id", "llm.response.model")
    return first_text(*(attributes.get(name) for name in names)) or ""


def response_id(attributes: dict[str, Any]) -> str | None:
    """The provider's id of the answer. vLLM's spans have it as the request's id (``chatcmpl-…``)."""
    return first_text(*(attributes.get(name) for name in ("gen_ai.response.id", "ai.response.id", "gen_ai.request.id")))


def agent(attributes: dict[str, Any], name: str | None = None) -> str | None:
    """The agent a span runs, by the attributes that name one, else by the span's own name."""
    names = ("gen_ai.agent.name", "agent.name", "agent_name", "graph.node.id", "traceloop.entity.name")
    return first_text(*(attributes.get(n) for n in names), name)


def system(attributes: dict[str, Any]) -> Any:
    """An agent's system prompt."""
    return parsed(attributes.get("gen_ai.system_instructions"))


def _indexed(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """The list that attributes ``prefix.0.…``, ``prefix.1.…`` spell out, or the list under ``prefix`` itself."""
    if isinstance(whole := parsed(attributes.get(prefix)), list):
        return [_unwrapped(one) for one in mappings(whole)]
    found: dict[int, dict[str, Any]] = {}
    start = len(prefix) + 1
    for name, value in attributes.items():
        if not name.startswith(prefix + "."):
            continue
        index, _, rest = name[start:].partition(".")
        if rest and _INDEX.fullmatch(index):
            _put(found.setdefault(int(index), {}), rest.split("."), value)
    return [_unwrapped(_lists(found[index])) for index in sorted(found)]


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    if len(path) > MAX_PATH:
        return
    for step in path[:-1]:
        inner = into.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        into = cast("dict[str, Any]", inner)
    into.setdefault(path[-1], value)


def _lists(value: Any, depth: int = MAX_PATH) -> Any:
    """Objects whose keys are all indices become lists."""
    body = mapping(value)
    if not body or not depth:
        return value
    if all(_INDEX.fullmatch(name) for name in body):
        return [_lists(body[name], depth - 1) for name in sorted(body, key=int)]
    return {name: _lists(one, depth - 1) for name, one in body.items()}


def _unwrapped(entry: Any) -> Any:
    """A message out of OpenInference's ``{"message": {…}}``; content that OpenLLMetry wrote as JSON parts out of its string."""
    body = mapping(entry)
    one: dict[str, Any] = mapping(body.get("message")) or body
    content = one.get("content")
    if isinstance(content, str) and content.startswith("[{") and one.get("role") != "tool":
        parts = items(parsed(content))
        if parts and all("type" in mapping(part) for part in parts):
            return {**one, "content": parts}
    return one

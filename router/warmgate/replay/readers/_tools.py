"""Tool schemas of any provider or framework, turned into OpenAI's ``{"type": "function", "function": {…}}``."""

from __future__ import annotations

from typing import Any

from warmgate.replay.readers._fields import first_text, items, mapping, parsed, text

_SCHEMA = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "parametersJsonSchema", "json_schema")
"""Where OpenAI, Anthropic (and MCP), the AI SDK, Pydantic AI and Gemini keep a tool's JSON schema."""


def tool_schemas(value: Any) -> list[dict[str, Any]]:
    """Schemas in the order sent.

    Args:
        value: A list of tools, a mapping of name to tool, or JSON of these in a string. Each tool may be JSON in a string too.
            A built-in tool (``web_search``), which has no schema of its own, stays as it was.
    """
    value = parsed(value)
    if isinstance(value, dict):
        value = [{"name": name, **mapping(parsed(one))} for name, one in mapping(value).items()]
    found: list[dict[str, Any]] = []
    for entry in items(value):
        found.extend(_tool(mapping(parsed(entry))))
    return found


def _tool(entry: dict[str, Any], depth: int = 3) -> list[dict[str, Any]]:
    if not entry or not depth:
        return []
    if text(mapping(entry.get("function")).get("name")):  # as OpenAI has it: what is printed stays as it was sent
        return [entry]
    if isinstance(inner := parsed(entry.get("tool")), dict):  # OpenInference
        entry = mapping(inner)
    if isinstance(inner := parsed(entry.get("json_schema")), dict) and "name" not in entry:
        entry = mapping(inner)
    if isinstance(inner := entry.get("toolSpec"), dict):  # Bedrock
        entry = mapping(inner)
    declared = items(entry.get("function_declarations") or entry.get("functionDeclarations"))
    if declared:  # Gemini keeps all functions in one tool
        return [schema for one in declared for schema in _tool(mapping(one), depth - 1)]
    if text(mapping(entry.get("function")).get("name")):
        return [entry]
    kind, name = text(entry.get("type")), first_text(entry.get("name"), entry.get("title"))
    if name is None or (kind not in (None, "function", "custom") and not any(entry.get(k) for k in _SCHEMA)):
        return [entry] if kind else []
    made: dict[str, Any] = {"name": name}
    if described := text(entry.get("description")):
        made["description"] = described
    schema = parsed(next((entry[k] for k in _SCHEMA if entry.get(k) is not None), None))
    if isinstance(schema, dict):
        inner = mapping(schema)
        made["parameters"] = inner["json"] if set(inner) == {"json"} else inner
    return [{"type": "function", "function": made}]

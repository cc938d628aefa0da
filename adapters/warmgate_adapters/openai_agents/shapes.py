"""The SDK's items, tools, calls and usage in the gate's shapes: what is judged must be what is sent."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from agents import (
    ApplyPatchTool,
    CustomTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    LocalShellTool,
    ModelResponse,
    ShellTool,
    Tool,
    TResponseInputItem,
    Usage,
    UserError,
)
from agents.models.chatcmpl_converter import Converter

from warmgate.foreign import items, mapping
from warmgate.turn import ProposedCall
from warmgate_adapters.core import one_of_each

Message = dict[str, Any]


def messages_of(instructions: str | None, items: str | Iterable[TResponseInputItem], model: str, base_url: str = "") -> list[Message]:
    """Messages as the SDK's chat completions model sends them; the model and its URL decide what of a reasoning is sent again.

    What only the Responses API can send is told in the nearest shape that a chat has, or left out: such a prompt is never ours to align.
    """
    try:
        found = Converter.items_to_messages(items, model=model, base_url=base_url)
    except UserError:
        chatty = [told for item in items if (told := _chatty(item)) is not None]
        found = Converter.items_to_messages(chatty, model=model, base_url=base_url)
    made = [cast("Message", one) for one in found]
    return [{"content": instructions, "role": "system"}, *made] if instructions else made


def schema_of(tool: Tool) -> Message | None:
    """A tool as a chat completions request carries it, or in that shape where only the Responses API knows it.

    ``None`` for what runs at the provider.
    """
    if isinstance(tool, FunctionTool):
        function: Message = {"name": tool.name, "description": tool.description or "", "parameters": tool.params_json_schema}
        return {"type": "function", "function": {**function, "strict": tool.strict_json_schema}}
    if isinstance(tool, (ShellTool, LocalShellTool)):
        return _local(tool.name, "Run shell commands.", "command")
    if isinstance(tool, ApplyPatchTool):
        return _local(tool.name, "Create, change or delete a file.", "type", "path", "diff")
    if isinstance(tool, CustomTool):
        return _local(tool.name, tool.description, "input")
    return None


def handoff_schema(handoff: Handoff[Any, Any]) -> Message:
    """A handoff as a request carries it: a tool among the others."""
    return cast("Message", Converter.convert_handoff_tool(handoff))


def catalogue(tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]] = ()) -> list[Message]:
    """A request's tools, in the order sent; a handoff is a tool of its own, behind them."""
    known = [schema_of(tool) for tool in tools if not isinstance(tool, HostedMCPTool)]
    made = [schema for schema in known if schema is not None] + [handoff_schema(one) for one in handoffs]
    return [one_of_each(schema) for schema in made]


def proposed(item: Any) -> ProposedCall | None:
    """A call that the model's output holds; ``None`` where it is none that runs here, or one that is judged file by file (a patch)."""
    raw = _plain(item)
    kind, call_id = raw.get("type"), str(raw.get("call_id") or raw.get("id") or "")
    if kind == "function_call":
        return ProposedCall(call_id, str(raw.get("name")), raw.get("arguments") or "")
    if kind == "shell_call":
        return ProposedCall(call_id, "shell", shell_arguments(mapping(raw.get("action"))))
    if kind == "local_shell_call":
        return ProposedCall(call_id, "local_shell", local_shell_arguments(mapping(raw.get("action"))))
    if kind == "custom_tool_call":
        return ProposedCall(call_id, str(raw.get("name")), {"input": raw.get("input") or ""})
    return None


def shell_arguments(action: Any) -> dict[str, Any]:
    """What a shell call runs: its commands one after the other, as one script."""
    commands = items(mapping(action).get("commands")) if isinstance(action, Mapping) else action.commands
    return {"command": "\n".join(str(one) for one in commands or ())}


def local_shell_arguments(action: Any) -> dict[str, Any]:
    """What a local shell call runs: an argv, the folder it runs in and what is put into its environment."""
    raw = _plain(action)
    told: dict[str, Any] = {"command": shlex.join(str(one) for one in raw.get("command") or ())}
    if raw.get("working_directory"):
        told["cwd"] = raw["working_directory"]
    if raw.get("env"):
        told["command"] = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in raw["env"].items()) + " " + told["command"]
    return told


def patch_arguments(operation: Any) -> dict[str, Any]:
    """What a patch does to one file."""
    told = {"type": operation.type, "path": operation.path, "diff": operation.diff, "move_to": operation.move_to}
    return {name: value for name, value in told.items() if value is not None}


def user_turns(items: Iterable[Any]) -> int:
    """The user's messages."""
    return sum(_plain(item).get("role") == "user" for item in items)


def calls_since_the_user_spoke(items: Sequence[Any]) -> list[ProposedCall]:
    """The calls of this user turn that the conversation already holds."""
    found: list[ProposedCall] = []
    for item in reversed(items):
        if _plain(item).get("role") == "user":
            break
        call = proposed(item)
        if call is not None:
            found.append(call)
    return found


def usage_of(response: ModelResponse) -> Message | None:
    """``usage`` of a reply in OpenAI's shape; ``None`` where it has none."""
    return usage_shape(response.usage)


def usage_shape(usage: Usage) -> Message | None:
    """See :func:`usage_of`. The SDK writes 0 cached tokens where a server does not say, so that 0 is what is told here too."""
    if not usage.input_tokens:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
    }


def _local(name: str, description: str, *fields: str) -> Message:
    parameters = {"type": "object", "properties": {one: {"type": "string"} for one in fields}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _chatty(item: Any) -> TResponseInputItem | None:
    raw = _plain(item)
    call = proposed(item)
    kind, call_id = str(raw.get("type") or "message"), raw.get("call_id")
    told: Any = raw
    if call is not None and kind != "function_call":
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        told = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
    elif kind.endswith("_call_output") and kind != "function_call_output" and call_id:
        told = {"type": "function_call_output", "call_id": call_id, "output": str(raw.get("output") or "")}
    elif kind == "apply_patch_call" and call_id:
        arguments = json.dumps(raw.get("operation"), ensure_ascii=False, default=str)
        told = {"type": "function_call", "call_id": call_id, "name": "apply_patch", "arguments": arguments}
    try:
        Converter.items_to_messages([told], model="")
    except UserError:
        return None
    return cast("TResponseInputItem", told)


def _plain(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return cast("Mapping[str, Any]", item)
    dump = getattr(item, "model_dump", None)
    return mapping(dump(exclude_unset=True)) if dump is not None else {}

"""What a generation prompt depends on: the shape of a conversation's end.

Not every template opens an assistant's turn whenever it is asked to. Gemma 4 and DeepSeek V3.1 open none behind a tool's result, where the
turn that called it goes on, and print other markup behind a call without a result. So the opening is what the template prints behind
messages of *this* shape, told from a short conversation that ends like the agent's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warmgate.alignment.served import served_message
from warmgate.foreign import mappings, text

Message = Mapping[str, Any]

STUB: Message = {"role": "user", "content": "x"}
"""Stands for the turn that the end belongs to."""


def ending(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A short conversation that ends in the shape of this one: roles, calls and their results, thinking; no text of anybody's.

    Equal for every conversation of one shape, so that its ``repr`` may stand for the shape.
    """
    start = len(messages) - 1
    while start > 0 and messages[start].get("role") not in ("user", "assistant"):
        start -= 1
    ids: dict[object, str] = {}
    found = [_bare(served_message(message), ids) for message in messages[max(0, start) :]]
    return found if found and found[0]["role"] in ("user", "system", "developer") else [dict(STUB), *found]


def _bare(message: Message, ids: dict[object, str]) -> dict[str, Any]:
    content = text(message.get("content")) or ""
    bare: dict[str, Any] = {"role": message.get("role"), "content": "x" if content else ""}
    if "</think>" in content:
        bare["content"] = "<think>\nx\n</think>\n\nx"
    if calls := mappings(message.get("tool_calls")):
        bare["tool_calls"] = [
            {"id": _id(call.get("id"), ids), "type": "function", "function": {"name": "f", "arguments": {}}} for call in calls
        ]
    if message.get("reasoning"):
        bare["reasoning"] = bare["reasoning_content"] = "x"
    if "tool_call_id" in message:
        bare["tool_call_id"] = _id(message["tool_call_id"], ids)
    if "name" in message:
        bare["name"] = "f"
    return bare


def _id(given: object, ids: dict[object, str]) -> str:
    """The same for every conversation; of nine letters and digits, as some templates demand."""
    return ids.setdefault(str(given), f"call{len(ids):05}")

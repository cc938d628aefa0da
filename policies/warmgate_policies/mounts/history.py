"""What a conversation shows about the tools it needs: which were called, which were asked for in vain, whether it goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from warmgate.foreign import mapping, mappings, text

FOLLOW_UP_WORDS = 6
"""A user message of so few words, none of them a tool's or toolset's name, continues what was under way."""

_WORD = re.compile(r"[\w'-]+")


def called(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the tools the model called, oldest first, each as often as it was called."""
    names: list[str] = []
    for message in messages:
        if message.get("role") != "assistant":
            continue
        for call in mappings(message.get("tool_calls")):
            name = text(mapping(call.get("function")).get("name")) or text(call.get("name"))
            if name:
                names.append(name)
        parts = mappings(message.get("content"))  # Anthropic's shape
        names += [name for part in parts if part.get("type") == "tool_use" and (name := text(part.get("name")))]
    return names


def calls(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many calls the agent has made: each left one message of its own."""
    return sum(message.get("role") == "assistant" for message in messages)


def last_user(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last user message."""
    for message in reversed(messages):
        if message.get("role") == "user":
            return said(message)
    return ""


def said(message: Mapping[str, Any]) -> str:
    """The text of one message, parts joined by newlines."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(t for part in mappings(content) if (t := text(part.get("text"))) is not None)


def since_last_user(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """What came after the last user message: the tool loop under way."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            return messages[index + 1 :]
    return messages


def follows_up(message: str, names: Sequence[str]) -> bool:
    """Whether a user message only says to go on ("do it", "yes please"): short, and naming nothing that could be mounted."""
    words = _WORD.findall(message.casefold())
    if not words or len(words) > FOLLOW_UP_WORDS:
        return not words
    parts = {part for name in names for part in _WORD.findall(re.sub(r"[_.:/-]+", " ", name).casefold()) if len(part) > 2}
    return parts.isdisjoint(words)

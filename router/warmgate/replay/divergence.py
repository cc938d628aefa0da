"""Where two consecutive prompts of a session part, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

from warmgate.alignment.template import flat_content
from warmgate.errors import TemplateError
from warmgate.foreign import items, mapping, text
from warmgate.prefix.blocks import common_prefix
from warmgate.replay.trace import Message, TextPrompt

SPAN = 48
"""Characters of a differing span shown on each side."""


@dataclass(slots=True)
class Divergence:
    """The first difference between a prompt and the session's previous one.

    Attributes:
        message: Index of the message from 0; ``None`` for tools or where the trace has no text.
        field: ``tools``, ``content``, ``role``, ``tool_calls`` …
        token: Token at which the prompts part, from 0.
        why: One sentence for people.
    """

    message: int | None
    field: str | None
    token: int | None
    why: str


class Render(Protocol):
    """Prints a prompt as the served model's template does, without its generation prompt."""

    def __call__(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any] | None = None) -> str:
        """The text."""
        ...


def explain(old: TextPrompt | None, new: TextPrompt, token: int, render: Render) -> Divergence:
    """Compare two prompts that part at ``token``.

    Args:
        old: The session's previous prompt; ``None`` when it is no longer held in memory.
        new: This prompt.
        token: Where they part.
        render: Settles which of two changes comes first in the text, and where a template renders an unchanged message anew.
    """
    if old is None:
        return Divergence(None, None, token, "the session's earlier prompt is no longer held in memory, so its text cannot be compared")
    message = _messages(old, new, token)
    if (why := _tools(old.tools, new.tools)) is not None:
        tools = Divergence(None, "tools", token, why)
        if message is None or not _comes_first(message, old, new, render):
            return tools
        return replace(message, why=f"{message.why}; {tools.why}")
    if dict(old.template_kwargs) != dict(new.template_kwargs):
        return Divergence(
            None,
            "template_kwargs",
            token,
            f"template arguments changed: {_short(old.template_kwargs)} → {_short(new.template_kwargs)}",
        )
    if message is not None:
        return message
    return Divergence(
        _rendered_anew(old, new, render),
        None,
        token,
        "the messages agree but the template renders earlier turns differently (for example, thinking stripped once a turn is over)",
    )


def _messages(old: TextPrompt, new: TextPrompt, token: int) -> Divergence | None:
    """The first message that differs; ``None`` where all that both have agree."""
    for index in range(min(len(old.messages), len(new.messages))):
        a, b = old.messages[index], new.messages[index]
        if a is b:
            continue
        if a == b:
            if same(a, b):
                continue
            return Divergence(index, "tool_calls", token, "unstable key order: the same message with its keys in another order")
        if gone := _dropped(old.messages, new.messages, index):
            return Divergence(index, "messages", token, f"history cut: {gone} message{'s' * (gone > 1)} left out here, later ones kept")
        return _message(index, a, b, token, last=index == len(old.messages) - 1)
    if len(new.messages) < len(old.messages):
        gone = len(old.messages) - len(new.messages)
        return Divergence(len(new.messages), "messages", token, f"history cut: {gone} message{'s' * (gone > 1)} at its end left out")
    return None


def _dropped(old: Sequence[Message], new: Sequence[Message], index: int) -> int:
    """Messages from ``index`` on that are gone while those behind them stand in their place, up to the end of the old prompt; else 0."""
    alike = (at for at in range(index + 1, len(old)) if old[at] == new[index])
    for at in islice(alike, 16):
        if list(old[at:]) == list(new[index : index + len(old) - at]):
            return at - index
    return 0


def _comes_first(message: Divergence, old: TextPrompt, new: TextPrompt, render: Render) -> bool:
    """Whether the changed message is printed before the changed tools. Most templates print tools first, but not before the system text."""
    if message.message is None:
        return False
    upto = message.message + 1
    try:
        before = render(old.messages[:upto], old.tools, old.template_kwargs)
        with_tools = render(old.messages[:upto], new.tools, old.template_kwargs)
        with_message = render(new.messages[:upto], old.tools, old.template_kwargs)
    except TemplateError:
        return False
    return common_prefix(before, with_message) < common_prefix(before, with_tools)


def _rendered_anew(old: TextPrompt, new: TextPrompt, render: Render) -> int | None:
    """The message in which two renderings of agreeing messages part."""
    try:
        then, now = (render(p.messages, p.tools, p.template_kwargs) for p in (old, new))
        at = common_prefix(then, now)
        low, high = 0, len(old.messages) - 1
        while low < high:  # the text up to and with message k grows with k
            middle = (low + high) // 2
            if len(render(old.messages[: middle + 1], old.tools, old.template_kwargs)) > at:
                high = middle
            else:
                low = middle + 1
    except TemplateError:
        return None
    return low if old.messages else None


def same(a: Any, b: Any) -> bool:
    """Whether two parts of a prompt print alike: equal, key order included, since prompts are printed."""
    return a is b or (a == b and json.dumps(a, default=str) == json.dumps(b, default=str))


def _tools(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> str | None:
    if old is new:
        return None
    if list(old) == list(new):
        return None if same(list(old), list(new)) else "tools changed: unstable key order in their schemas"
    before, after = [_tool_name(t) for t in old], [_tool_name(t) for t in new]
    set_before, set_after = set(before), set(after)
    parts: list[str] = []
    if added := [n for n in after if n not in set_before]:
        parts.append("added " + _names(added))
    if removed := [n for n in before if n not in set_after]:
        parts.append("removed " + _names(removed))
    if not parts:
        by_name = {_tool_name(t): t for t in old}
        if changed := [n for n, t in zip(after, new, strict=True) if by_name.get(n) != t]:
            parts.append("schema of " + _names(changed) + " differs")
        elif before != after:
            parts.append("the order differs")
    return "tools changed: " + "; ".join(parts or ["the list differs"])


def _tool_name(tool: Mapping[str, Any]) -> str:
    return text(mapping(tool.get("function")).get("name")) or text(tool.get("name")) or "?"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _message(index: int, a: Message, b: Message, token: int, *, last: bool) -> Divergence:
    if a.get("role") != b.get("role"):
        if last:
            return Divergence(index, "role", token, "history edited: the last message was replaced")
        return Divergence(index, "role", token, f"history edited: a {a.get('role')} message became a {b.get('role')} message")
    field = next(
        (k for k in ("content", "reasoning_content", "reasoning", "tool_calls", "tool_call_id", "name") if a.get(k) != b.get(k)),
        None,
    )
    if field is None:
        field = next((str(k) for k in {**a, **b} if a.get(k) != b.get(k)), "content")
    if field in ("reasoning_content", "reasoning") or _thinking(a, b):
        return Divergence(index, field, token, "thinking stripped from an earlier turn")
    span = _span(_text(a.get(field)), _text(b.get(field)))
    if a.get("role") in ("system", "developer"):
        return Divergence(index, field, token, f"system prompt changed: {span}")
    return Divergence(index, field, token, f"history edited: {a.get('role')} message, {span}")


def _thinking(a: Message, b: Message) -> bool:
    """Whether the two differ by a block of thinking alone."""
    if a.get("role") != "assistant":
        return False
    one, two = _text(a.get("content")), _text(b.get("content"))
    if "</think>" in one and "</think>" not in two:
        return one.split("</think>")[-1].strip() == two.strip()
    parts = list(items(a.get("content")))
    kept = [part for part in parts if mapping(part).get("type") not in ("thinking", "reasoning")]
    return len(kept) < len(parts) and kept == list(items(b.get("content")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else flat_content(value) if isinstance(value, list) else _short(value, 4000)


def _short(value: Any, limit: int = SPAN) -> str:
    text = json.dumps(dict(mapping(value)) if isinstance(value, Mapping) else value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _span(a: str, b: str) -> str:
    """The differing stretch of two texts with a little of what stands before it."""
    start = common_prefix(a, b)
    end = common_prefix(a[start:][::-1], b[start:][::-1])
    change = f"{_quote(a[start : len(a) - end])} became {_quote(b[start : len(b) - end])}"
    lead = ("…" if start > 16 else "") + a[max(0, start - 16) : start]
    return f"after {_quote(lead)} {change}" if lead else change


def _quote(text: str) -> str:
    text = text if len(text) <= SPAN else text[: SPAN - 1] + "…"
    return json.dumps(text, ensure_ascii=False)

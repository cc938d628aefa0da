"""Why a session's prompt parts from its previous one, as one of a few words that a metric's label can carry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from warmgate.foreign import text

Kind: TypeAlias = Literal[
    "tools_changed",
    "clock",  # the system prompt differs by digits, month and day names alone
    "system_changed",
    "thinking_stripped",
    "key_order",
    "template_arguments",
    "history_edited",
    "history_cut",
    "rendered_anew",  # the messages agree, the template prints earlier turns otherwise
    "not_explained",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_TIME = re.compile(
    r"\d+|\b(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)(?:uary|ruary|ch|il|e|ust|ember|ober|tember)?\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:mon|tue|wed|thu|fri|sat|sun)\b|\b[ap]m\b|\b(?:st|nd|rd|th)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PromptView:
    """What a prompt was rendered from. Held for one turn to compare with the next, never written anywhere.

    Attributes:
        messages: In OpenAI's shape.
        tools: Schemas, in order.
        template_kwargs: Arguments of the chat template.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


def kind_of(old: PromptView | None, new: PromptView | None) -> Kind:
    """What parts two consecutive prompts of a session that are known to part."""
    if old is None or new is None:
        return "not_explained"
    from warmgate.replay.divergence import explain
    from warmgate.replay.trace import TextPrompt

    def printed(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any] | None = None) -> str:
        """Most templates print the system text, then tools, then the rest: enough to rank two changes without rendering."""
        del kwargs
        head = [m for m in messages[:1] if m.get("role") in ("system", "developer")]
        return f"{head}{list(tools)}{list(messages[len(head) :])}"

    found = explain(
        TextPrompt(old.messages, old.tools, old.template_kwargs), TextPrompt(new.messages, new.tools, new.template_kwargs), 0, printed
    )
    why = found.why
    if "key order" in why:
        return "key_order"
    if why.startswith("system prompt changed"):
        index = found.message or 0
        before, after = (_clockless(text(view.messages[index].get("content"))) for view in (old, new))
        return "clock" if before is not None and before == after else "system_changed"
    for words, kind in _WORDS:
        if why.startswith(words):
            return kind
    return "not_explained"


_WORDS: tuple[tuple[str, Kind], ...] = (
    ("tools changed", "tools_changed"),
    ("template arguments", "template_arguments"),
    ("thinking stripped", "thinking_stripped"),
    ("history cut", "history_cut"),
    ("history edited", "history_edited"),
    ("the messages agree", "rendered_anew"),
)


def _clockless(content: str | None) -> str | None:
    return None if content is None else _TIME.sub("0", content)

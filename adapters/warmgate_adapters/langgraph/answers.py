"""What a person is shown and may answer: the shapes of LangChain's human-in-the-loop, so that screens made for it serve here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from warmgate.errors import OptionError
from warmgate.foreign import items, mapping, text
from warmgate_adapters.core import Ask

_MEND = 'resume with {"decisions": [{"type": "approve"}]}: one of approve, edit, reject for each call asked about, in their order'


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer about one call.

    Attributes:
        type: The word.
        arguments: Of an edited call.
        name: Of an edited call's tool; ``None``: the same.
        message: What the person said to a rejection.
    """

    type: Literal["approve", "edit", "reject"]
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str | None = None
    message: str = ""


def question(asks: Sequence[Ask], problem: str | None = None) -> dict[str, Any]:
    """The value of an interrupt about some calls of one message.

    Args:
        asks: The calls.
        problem: What was wrong with the answer before, where one was.
    """
    return {
        **({"problem": problem} if problem is not None else {}),
        "action_requests": [
            {"name": ask.call.name, "args": ask.payload["call"]["arguments"], "description": ask.record.reason} for ask in asks
        ],
        "review_configs": [{"action_name": ask.call.name, "allowed_decisions": ["approve", "edit", "reject"]} for ask in asks],
        "warmgate": [ask.payload for ask in asks],
    }


def read(value: Any, asks: Sequence[Ask]) -> list[Answer]:
    """The answers, one for each call.

    A single call may be answered by its word alone, or by True or False.

    Raises:
        OptionError: It is not an answer to what was asked.
    """
    decisions: Sequence[Any] = items(mapping(value).get("decisions")) or items(value) or (value,)
    if len(decisions) != len(asks):
        raise OptionError(f"{len(decisions)} answers came for {len(asks)} calls", where="the resume value", mend=_MEND)
    return [_one(decision) for decision in decisions]


def _one(value: Any) -> Answer:
    if isinstance(value, bool):
        return Answer("approve" if value else "reject")
    found = mapping(value)
    word = value if isinstance(value, str) else text(found.get("type"))
    if word in ("approve", "accept"):
        return Answer("approve")
    if word in ("reject", "ignore"):
        return Answer("reject", message=text(found.get("message")) or "")
    edited = mapping(found.get("edited_action")) or found
    arguments = edited.get("args")
    if word == "edit" and isinstance(arguments, Mapping):
        return Answer("edit", dict(mapping(arguments)), text(edited.get("name")))
    raise OptionError(f"{value!r:.80} is no answer", where="the resume value", mend=_MEND)

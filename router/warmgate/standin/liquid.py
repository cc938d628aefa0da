"""How LiquidAI's d1 is asked (vLLM's ``LiquidStrategy``): its own prompt, and option names that are letters become the labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from warmgate.standin.questions import Question
from warmgate.standin.replies import refusal
from warmgate.standin.text import Text


def state_text(state: Any) -> str:
    """The state as d1 was trained to read it."""
    if state is None:
        return ""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False, indent=2)


def content(text: Text, question: Question, state: str) -> str:
    """The user turn of one question.

    Raises:
        Refused: A label is not one distinct token.
    """
    _check_labels(text, question)
    if question.kind == "choice":
        named = zip(codes(question), question.options, strict=True)
        lines = "\n".join(f"{code} {option.description or option.name.replace('_', ' ')}" for code, option in named)
        ask = f"{question.instructions}\n\nOptions:\n{lines}\n\nReply with the option code only."
    elif question.kind == "noul":
        yes, no = (option.description for option in question.options)
        sides = f"\nYes: {yes}\nNo: {no}" if yes or no else ""
        ask = f"{question.instructions}{sides}\n\nReply with yes or no only."
    else:
        legend = "\n".join(f"{label} {option.name}" for label, option in zip(question.labels, question.options, strict=True))
        ask = f"{question.instructions}\n\n{legend}\n\nReply with a single digit 0-{len(question.options) - 1} only."
    return f"{state}\n\n\nQUESTION:\n{ask}" if state else ask


def codes(question: Question) -> Sequence[str]:
    """What stands for a choice's options: their names when all are single letters, else A to Z."""
    names = [option.name.strip() for option in question.options]
    return names if all(len(name) == 1 and name.isalpha() for name in names) else question.labels


def _check_labels(text: Text, question: Question) -> None:
    forms: list[tuple[str, ...]]
    if question.kind == "noul":
        forms = [("yes", "Yes", "YES"), ("no", "No", "NO")]
    elif question.kind == "choice":
        forms = [(code, f" {code}") for code in codes(question)]
    else:
        forms = [(label,) for label in question.labels]
    seen: set[int] = set()
    for spellings in forms:
        ids = [token for token in map(text.single, spellings) if token is not None]
        if not ids or text.single(spellings[0]) != ids[0] or seen & set(ids):
            raise refusal(f"question {question.id!r}: label {spellings[0]!r} is not one distinct token for this model")
        seen.update(ids)

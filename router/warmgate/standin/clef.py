"""How Cloudflare's clef-omni is asked (vLLM's ``JointSchemaStrategy``): one fixed prompt holds the state, then all questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from warmgate.standin.prompts import Prompts
from warmgate.standin.questions import Question
from warmgate.standin.replies import refusal

MAX_TOKENS = 64_000
"""The model's own bound on a prompt."""

_SYSTEM = "Read the complete state and schema. Decide every field jointly. Each answer must be exactly one of that field's allowed options."
_BEFORE = f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\nSTATE:\n"
_AFTER = "\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nJOINT SCHEMA DECISIONS:"
_SIDES = {"true": "The proposition is true or the answer is yes.", "false": "The proposition is false or the answer is no."}


def state_text(value: Any) -> str:
    """Text as it is, anything else as compact JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def prompt_tokens(prompts: Prompts, questions: Sequence[Question], state: str, media: Sequence[str]) -> int:
    """Tokens of the prompt of a whole request. A state that does not fit loses its tail without a word.

    Raises:
        Refused: The questions alone are too long.
    """
    limit = min(MAX_TOKENS, prompts.max_model_len)
    before = len(prompts.encode(_BEFORE)) + len(prompts.encode(prompts.placeholders(media)))
    fixed = before + sum(len(prompts.encode(piece)) for piece in _schema(questions)) + len(prompts.encode(_AFTER))
    if fixed > limit:
        raise refusal(f"the questions take {fixed} tokens, more than the {limit} this model reads")
    return fixed + min(len(prompts.encode(state)), limit - fixed)


def _schema(questions: Sequence[Question]) -> list[str]:
    """The questions, in the pieces in which the model's tokenizer sees them."""
    pieces = ["\n\nSCHEMA FIELDS:\n"]
    for number, question in enumerate(questions, 1):
        pieces.append(f"\nFIELD {number}\nID: {question.id}\nTYPE: {question.kind}\nINSTRUCTION: ")
        pieces += [question.instructions or question.id, "\nALLOWED OPTIONS:\n"]
        for place, meaning in enumerate(_options(question), 1):
            pieces += [f"OPTION {place}: ", state_text(meaning), "\n"]
        pieces.append("END FIELD\n")
    return pieces


def _options(question: Question) -> list[Mapping[str, Any]]:
    if question.kind == "noul":
        sides = zip(_SIDES, question.options, strict=True)
        return [{"option_id": side, "description": option.description or _SIDES[side]} for side, option in sides]
    if question.kind == "score":
        return [{"option_id": str(level), "description": option.name} for level, option in enumerate(question.options)]
    ordered = sorted(question.options, key=lambda option: option.name)
    return [
        {"option_id": option.name} if option.description is None else {"option_id": option.name, "description": option.description}
        for option in ordered
    ]

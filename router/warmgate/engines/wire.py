"""What several engines put on the wire, and what they read off it."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from warmgate.answers import Usage
from warmgate.errors import QuestionError
from warmgate.questions import Noul, Question, Score


def wire_question(question: Question) -> dict[str, Any]:
    """A question in the shape of ``/v1/systemone``."""
    criteria: Any = question.criteria
    if isinstance(question, Noul) and question.criteria is not None:
        given = {"true": question.criteria.true, "false": question.criteria.false}
        criteria = {side: text for side, text in given.items() if text is not None}
    elif isinstance(question, Score):
        criteria = list(question.criteria)
    wire: dict[str, Any] = {"type": question.type, "instructions": question.instructions}
    if criteria is not None:
        wire["criteria"] = criteria
    return wire


def json_state(state: Any) -> Any:
    """A state that encodes to what it is: text as it stands, anything else through the strict encoder (msgspec would write NaN as null).

    Raises:
        QuestionError: Not JSON: a NaN, a date, a key that is not text.
    """
    if state is None or isinstance(state, str | bool | int):
        return state
    try:
        return msgspec.Raw(json.dumps(state, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as fault:
        raise QuestionError(f"cannot be sent as JSON ({_why(fault)})", field="state", mend="give text or plain JSON values") from None


def _why(fault: Exception) -> str:
    """Why a value is not JSON, in words of JSON."""
    if isinstance(fault, UnicodeEncodeError):
        return f"half of a surrogate pair, {fault.object[fault.start]!r}"
    if isinstance(fault, RecursionError):
        return "nested too deeply"
    return "a number that is not finite" if "Out of range float" in str(fault) else str(fault)


def text_state(state: Any) -> str:
    """A state as text: text as it stands, null as nothing, anything else as compact JSON.

    Raises:
        QuestionError: See :func:`json_state`.
    """
    if isinstance(state, str):
        return state
    if state is None:
        return ""
    json_state(state)
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def usage_of(usage: Any) -> Usage:
    """Token counts out of any server's ``usage``; what is missing or no count is None, for an answer is worth more than its bill."""

    def count(*names: str) -> int | None:
        value: Any = usage
        for name in names:
            value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    def first(*paths: tuple[str, ...]) -> int | None:
        return next((n for path in paths if (n := count(*path)) is not None), None)

    return Usage(
        input_tokens=first(("input_tokens",), ("prompt_tokens",)),
        output_tokens=first(("output_tokens",), ("completion_tokens",)),
        cached_tokens=first(("input_tokens_details", "cached_tokens"), ("prompt_tokens_details", "cached_tokens")),
    )

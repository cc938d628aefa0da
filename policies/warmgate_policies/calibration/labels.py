"""Labelled questions: one JSON object a line, what was asked, what the model answered, what is right.

::

    {"id": "risky", "question": {"type": "noul", "instructions": "Is this command risky?", "criteria": null},
     "model": "qwen3", "dialect": "vllm", "probabilities": {"yes": 0.93, "no": 0.07}, "label": "yes", "state": {"argv": ["rm", "x"]}}

``label`` is one of the question's labels (``true``/``false`` are read as ``yes``/``no`` of a noul). ``probabilities`` may be left out where
a worker is asked now; ``state`` may be left out where it is not. ``policy``
names the rules that made the state, where they have a part in it. A set of labels that is to be checked again later needs states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from warmgate.answers import distribution
from warmgate.errors import InputError, WarmgateError
from warmgate.foreign import mapping, text
from warmgate.questions import Question, parse_questions
from warmgate_policies.calibration.recorded import DECISIONS, Recorded


@dataclass(frozen=True, slots=True)
class Key:
    """What a threshold belongs to: it means nothing for another model, dialect, wording or order of options.

    Attributes:
        model: Name of the model that answers.
        dialect: How it is asked.
        fingerprint: Hash of the question with its options in order.
        policy: Name and version of the rules that resolved the facts it was asked about; empty where rules have no part.
    """

    model: str
    dialect: str
    fingerprint: str
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """One labelled question.

    Attributes:
        id: Id of the question.
        question: As it was asked.
        key: What it counts for.
        probabilities: Label → probability in the order asked; ``None`` where a worker must be asked first.
        label: The right one.
        state: What it was asked about; ``None`` where that was not kept.
        line: Line in the file, from 1.
    """

    id: str
    question: Question
    key: Key
    probabilities: dict[str, float] | None
    label: str
    state: Any
    line: int


def fingerprint(question: Question) -> str:
    """Hash of a question: type, wording, options in their order."""
    shown = question.model_dump(mode="json")
    criteria = shown.get("criteria")
    if isinstance(criteria, Mapping):
        shown["criteria"] = [[name, value] for name, value in mapping(criteria).items()]  # order is part of the question
    return sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]


def parse_labels(data: bytes, *, where: str, model: str | None = None, dialect: str | None = None) -> list[Label]:
    """Labels from JSON Lines.

    Args:
        data: The file's bytes.
        where: What to call it in errors.
        model: Model of rows that name none.
        dialect: Dialect of rows that name none; ``vllm`` without it.

    Raises:
        InputError: The first line that cannot be used; it names the line.
    """
    found: list[Label] = []
    known: dict[str, tuple[Question, str]] = {}
    recorded = Recorded()
    for number, raw in enumerate(data.splitlines(), 1):
        if not raw.strip():
            continue
        at = f"{where}:{number}"
        try:
            row = mapping(json.loads(raw))
        except (ValueError, RecursionError):
            raise InputError("is not a JSON object", where=at) from None
        if not row:
            raise InputError("is not a JSON object with fields", where=at)
        if row.get("schema") == DECISIONS:
            if (labelled := recorded.take(row)) is None:
                continue
            row = labelled
        found.append(_label(row, number, at, known, model, dialect or "vllm"))
    if not found and recorded.decisions:
        why = f"holds {recorded.decisions:,} decisions and no person's word on a call that a model was asked about"
        raise InputError(why, where=where, mend="report approvals to the gate (gate.approval)")
    if not found:
        raise InputError("holds no label", where=where, mend="one JSON object a line: question, probabilities, label")
    return found


def groups(labels: Sequence[Label]) -> dict[Key, list[Label]]:
    """Labels by what they count for, in the order met."""
    found: dict[Key, list[Label]] = {}
    for label in labels:
        found.setdefault(label.key, []).append(label)
    return found


def _label(row: Mapping[str, Any], number: int, at: str, known: dict[str, tuple[Question, str]], model: str | None, dialect: str) -> Label:
    id_ = text(row.get("id")) or "question"
    try:
        spelled = json.dumps(row.get("question"), sort_keys=False)
        if spelled not in known:
            asked = parse_questions({id_: row.get("question")})[id_]
            known[spelled] = asked, fingerprint(asked)
        question, shown = known[spelled]
        right = row.get("label")
        right = {True: "yes", False: "no"}[right] if isinstance(right, bool) and question.type == "noul" else text(right)
        if right not in question.labels:
            raise InputError(f"the label {right!r} is none of {', '.join(question.labels)}", where=at)
        probabilities = None
        if (given := row.get("probabilities")) is not None:
            values = {name: _number(name, p) for name, p in mapping(given).items()}
            probabilities = distribution(question.labels, values, question=id_)
    except InputError as fault:
        raise InputError(fault.what, where=at) from None
    except (WarmgateError, TypeError, ValueError) as fault:
        raise InputError(getattr(fault, "what", str(fault)), where=at) from None
    if (named := text(row.get("model")) or model) is None:
        raise InputError("names no model, and none was given", where=at, mend="a threshold belongs to one model: --model")
    state = row.get("state")
    if probabilities is None and state is None:
        raise InputError("has neither probabilities nor a state to ask about", where=at, mend="give one of them")
    try:
        kept = state is None or same(msgspec.json.decode(msgspec.json.encode(state)), state)
    except (TypeError, ValueError, RecursionError):
        kept = False
    if not kept:  # NaN, half of a surrogate pair, numbers that JSON readers round: the check would ask about something else
        raise InputError("has a state that cannot be kept as JSON", where=at, mend="text, lists, objects and plain numbers can")
    key = Key(named, text(row.get("dialect")) or dialect, shown, text(row.get("policy")) or "")
    return Label(id_, question, key, probabilities, right, state, number)


def same(one: Any, other: Any) -> bool:
    """Equal, numbers by their type too."""
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _number(name: str, p: Any) -> float:
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise InputError(f"the probability of {name!r} is {p!r}, no number")
    return float(p)

"""The three question types of ``/v1/systemone`` with vLLM 0.32's limits and words (``structured_decisions/question_types.py``)."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmgate.standin.bodies import QuestionSpec
from warmgate.standin.replies import refusal
from warmgate.standin.shapes import as_list, as_object, is_object

MAX_QUESTIONS = 64
LABELS = {"choice": tuple(string.ascii_uppercase), "noul": ("yes", "no"), "score": tuple(string.digits)}
"""What stands for an option in the prompt and as the reply's first token, by type and in option order."""

REPLY = {
    "choice": "Answer with the letter of one option only.",
    "noul": "Answer with yes or no only.",
    "score": "Answer with the number of one level only.",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One possible answer."""

    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question ready to ask; ``labels`` are in the order of ``options``."""

    id: str
    kind: str
    instructions: str
    options: tuple[Option, ...]
    labels: tuple[str, ...]


def parse_questions(specs: Mapping[str, QuestionSpec]) -> list[Question]:
    """Check and build the questions of a request, in its order.

    Raises:
        Refused: 400, with the first fault found.
    """
    if not specs:
        raise refusal("questions: needs at least one question")
    if len(specs) > MAX_QUESTIONS:
        raise refusal(f"questions: at most {MAX_QUESTIONS} for this model")
    return [_parse(qid, spec) for qid, spec in specs.items()]


def _parse(qid: str, spec: QuestionSpec) -> Question:
    if spec.model_extra:
        raise refusal(f"question {qid!r}: unknown field(s) {sorted(spec.model_extra)}")
    if not qid:
        raise refusal("question ids must be non-empty")
    labels = LABELS.get(spec.type)
    if labels is None:
        raise refusal(f"unknown question type {spec.type!r}; supported: {sorted(LABELS)}")
    options = _OPTIONS[spec.type](qid, spec.criteria)
    if len({option.name for option in options}) != len(options):
        raise refusal(f"question {qid!r}: duplicate option names")
    if len(options) > len(labels):
        raise refusal(f"question {qid!r}: at most {len(labels)} options for this model")
    told = spec.instructions
    instructions = told if isinstance(told, str) else "" if told is None else str(told)
    return Question(qid, spec.type, instructions, tuple(options), labels[: len(options)])


def _choice(qid: str, criteria: Any) -> list[Option]:
    named = as_object(criteria)
    if not named:
        raise refusal(f"question {qid!r}: choice criteria must map option names to a description or null")
    return [Option(name, None if text is None else str(text)) for name, text in named.items()]


def _noul(qid: str, criteria: Any) -> list[Option]:
    sides = as_object(criteria)
    if criteria is not None and not (is_object(criteria) and sides.keys() <= {"true", "false"}):
        raise refusal(f"question {qid!r}: noul criteria must be an object with true and false")
    true, false = sides.get("true"), sides.get("false")
    return [Option("yes", None if true is None else str(true)), Option("no", None if false is None else str(false))]


def _score(qid: str, criteria: Any) -> list[Option]:
    levels = as_list(criteria)
    if len(levels) < 2:
        raise refusal(f"question {qid!r}: score criteria must be an ordered list of levels")
    return [Option(str(level)) for level in levels]


_OPTIONS = {"choice": _choice, "noul": _noul, "score": _score}


def question_text(question: Question) -> str:
    """The question as an ordinary chat model reads it, after the state."""
    lines = [f"Question: {question.instructions}"] if question.instructions else []
    for label, option in zip(question.labels, question.options, strict=True):
        if question.kind == "noul":
            lines.append(f"{label}: {option.description}" if option.description else label)
        else:
            lines.append(f"{label}: {option.name} - {option.description}" if option.description else f"{label}: {option.name}")
    lines.append(REPLY[question.kind])
    return "\n".join(lines)


def answer(question: Question, probabilities: Sequence[float], label_mass: float) -> dict[str, Any]:
    """The answer of a question, from its options' probabilities (in option order, summing to 1).

    ``confidence`` is the best option's probability times ``label_mass``, the labels' share of the whole vocabulary.
    """
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    confidence = probabilities[best] * label_mass
    if question.kind == "choice":
        by_name = {option.name: p for option, p in zip(question.options, probabilities, strict=True)}
        return {"type": "choice", "choice": question.options[best].name, "probabilities": by_name, "confidence": confidence}
    if question.kind == "noul":
        yes, no = probabilities
        return {"type": "noul", "noul": yes, "probabilities": {"yes": yes, "no": no}, "confidence": confidence}
    return {
        "type": "score",
        "score": sum(level * p for level, p in enumerate(probabilities)),
        "legend": {str(level): option.name for level, option in enumerate(question.options)},
        "probabilities": {str(level): p for level, p in enumerate(probabilities)},
        "confidence": confidence,
    }

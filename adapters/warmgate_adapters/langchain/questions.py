"""LangChain's questions as a worker is asked them, and its answers as LangChain reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core import decisions as lc

from warmgate.answers import Answer
from warmgate.errors import MalformedAnswer, QuestionError
from warmgate.questions import Choice, Noul, NoulCriteria, Question, Score, check_name


def ours(questions: Mapping[str, lc.Question]) -> dict[str, Question]:
    """Questions as the gate asks them.

    Instructions and descriptions that are no text are written as JSON. Levels of a score that cannot be labels (too long, several lines,
    no text) are numbered, and described in the instructions.

    Raises:
        QuestionError: A box, which no decision endpoint of a text model can answer; a name or text that cannot be asked; no question.
    """
    if not questions:
        raise QuestionError("needs at least one question", field="questions")
    asked: dict[str, Question] = {}
    for name, question in questions.items():
        check_name(name, field="id")
        try:
            asked[name] = _one(question)
        except QuestionError as fault:
            raise QuestionError(fault.what, question=name, field=fault.field, limit=fault.limit, mend=fault.mend) from None
    return asked


def theirs(name: str, question: lc.Question, answer: Answer, *, floor: float) -> lc.Answer:
    """An answer as LangChain reads it.

    ``confidence`` is :data:`warmgate.answers.CONFIDENCE`, over the labels alone.

    Args:
        name: Id of the question.
        question: As it was asked of us.
        answer: The worker's.
        floor: Least label mass of an answer that means anything.

    Raises:
        MalformedAnswer: It cannot be told how sure the model is. LangChain's types know no doubt, and its middlewares act on any number.
    """
    probabilities, confidence = answer.probabilities, answer.confidence
    if probabilities is None or confidence is None:
        raise MalformedAnswer(f"question {name!r}: {answer.source.engine} gave a label without probabilities", where=answer.source.worker)
    if answer.label_mass is not None and answer.label_mass < floor:
        what = f"question {name!r}: the model did not want to answer (label mass {answer.label_mass:.3f}, below {floor:g})"
        raise MalformedAnswer(what, where=answer.source.worker, mend="ask a model that was trained for it, or lower label_mass_floor")
    if isinstance(question, lc.Noul):
        return lc.NoulAnswer(type="noul", noul=float(answer.value))
    if isinstance(question, lc.Choice):
        return lc.ChoiceAnswer(type="choice", choice=str(answer.value), probabilities=dict(probabilities), confidence=confidence)
    criteria = question.criteria if isinstance(question, lc.Score) else []
    return lc.ScoreAnswer(
        type="score",
        score=float(answer.value),
        legend=dict(enumerate(criteria)),
        probabilities=dict(enumerate(probabilities.values())),
        confidence=confidence,
    )


def _one(question: lc.Question) -> Question:
    if isinstance(question, lc.Noul):
        criteria = None
        if question.criteria is not None:
            criteria = NoulCriteria(true=_text(question.criteria.true), false=_text(question.criteria.false))
        return Noul(instructions=_text(question.instructions) or "", criteria=criteria)
    if isinstance(question, lc.Choice):
        described = {name: _text(description) for name, description in question.criteria.items()}
        return Choice(instructions=_text(question.instructions) or "", criteria=described)
    if isinstance(question, lc.Score):
        return _score(_text(question.instructions) or "", [_text(level) or "" for level in question.criteria])
    raise QuestionError(
        "asks for a box in an image, which no decision endpoint of vLLM answers", field="type", mend="ask a noul, choice or score"
    )


def _score(instructions: str, levels: list[str]) -> Question:
    try:
        return Score(instructions=instructions, criteria=tuple(levels))
    except QuestionError:
        legend = "\n".join(f"{number}: {level}" for number, level in enumerate(levels))
        return Score(instructions=f"{instructions}\nThe levels:\n{legend}", criteria=tuple(map(str, range(len(levels)))))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)

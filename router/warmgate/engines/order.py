"""Asking a choice in two orders: the order of the options moves answers, so agreement between two is worth knowing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from warmgate.answers import Answer, Answers, winner
from warmgate.questions import Choice, Question

SUFFIX = "~reversed"
"""Ends the id under which the second order is asked."""


def in_two_orders(questions: Mapping[str, Question]) -> dict[str, Question]:
    """The questions, each choice of two or more options followed by itself with the options reversed."""
    both: dict[str, Question] = {}
    for id_, question in questions.items():
        both[id_] = question
        if isinstance(question, Choice) and len(question.criteria) > 1:
            reverse = dict(reversed(question.criteria.items()))
            both[_second(id_, questions)] = question.model_copy(update={"criteria": reverse})
    return both


def second_orders(questions: Mapping[str, Question]) -> frozenset[str]:
    """The ids among ``questions`` that :func:`in_two_orders` added."""
    found: set[str] = set()
    for id_, question in questions.items():
        base = id_.rstrip("~").removesuffix(SUFFIX)
        first = questions.get(base) if base != id_ and base + SUFFIX in id_ else None
        if isinstance(first, Choice) and isinstance(question, Choice) and question.labels == first.labels[::-1]:
            found.add(id_)
    return frozenset(found)


def join_orders(answers: Answers, questions: Mapping[str, Question]) -> Answers:
    """Fold the second orders back into the answers they belong to; where either was refused, ``order_agrees`` stays None."""
    joined: dict[str, Answer] = {}
    for id_, question in questions.items():
        answer = answers.answers.get(id_)
        if answer is None:
            continue
        other = answers.answers.get(_second(id_, questions)) if isinstance(question, Choice) else None
        if other is not None:
            p = other.probabilities
            answer = msgspec.structs.replace(
                answer,
                order_agrees=_winner(answer) == _winner(other),
                order_probabilities=None if p is None else {label: p[label] for label in question.labels},
            )
        joined[id_] = answer
    refused = {id_: words for id_, words in answers.refused.items() if id_ in questions}
    return msgspec.structs.replace(answers, answers=joined, refused=refused)


def _second(id_: str, questions: Mapping[str, Question]) -> str:
    second = id_ + SUFFIX
    while second in questions:
        second += "~"
    return second


def _winner(answer: Answer) -> str:
    return str(answer.value) if answer.probabilities is None else winner(answer.probabilities)

"""Typed answers: what a worker said to each question, checked, with where it came from.

Rules that hold for every engine and dialect:

- Probabilities have exactly the labels that were asked, in the order asked; each is finite and in [0, 1]. Their sum may miss 1 by
  :data:`SUM_TOLERANCE` (servers round) and is then divided out, so that it is 1 here; a larger miss is a fault.
- ``value`` and ``confidence`` are computed here, from those probabilities. A server whose own ``choice``, ``noul`` or ``score``
  contradicts its probabilities has not answered.
- What a server did not give is None. An answer without probabilities is ``uncalibrated``; none are made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from warmgate.errors import MalformedAnswer
from warmgate.questions import Choice, Noul, Question, Score

CONFIDENCE = "normalised_margin"
"""How ``Answer.confidence`` is computed, for every type and dialect: ``(p_max − 1/n) / (1 − 1/n)`` over the n labels.

0 at chance and 1 at certainty whatever n is, so one threshold means the same for two options and for twenty; that is why it is
preferred to p_max. It is the published formula of TypeSafe's choice. It looks at the labels alone: how much the model wanted to
answer at all is ``label_mass``, kept apart. Servers' own figures mean different things (vLLM: p_max × label_mass; TypeSafe's
score: spread around the mode) and are kept as ``server_confidence``.
"""

SUM_TOLERANCE = 0.02
"""How far the sum of a distribution may be from 1: 255 options rounded to four decimals miss it by at most 0.013."""

AGREEMENT_TOLERANCE = 1e-3
"""How far a server's own ``noul``, ``choice`` or ``score`` (per level) may be from its probabilities: three rounded decimals."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call or read. None where the server does not say.

    ``cached_tokens`` is the part of ``input_tokens`` that was served from the prefix cache.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Sums, None where either side is unknown."""

        def add(a: int | None, b: int | None) -> int | None:
            return None if a is None or b is None else a + b

        return Usage(
            input_tokens=add(self.input_tokens, other.input_tokens),
            output_tokens=add(self.output_tokens, other.output_tokens),
            cached_tokens=add(self.cached_tokens, other.cached_tokens),
        )


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Who answered: enough to find the request in the worker's log and to attribute its answer."""

    engine: str
    worker: str
    model: str | None
    dialect: str
    request_id: str
    latency_s: float
    """Seconds from asking to the checked answer, retries included."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question."""

    id: str
    type: Literal["choice", "noul", "score"]
    value: str | float
    """A choice's option name; a noul's probability of yes; a score's expected level from 0. Uncalibrated: 1.0 or 0.0 for yes or no,
    the level itself for a score."""
    probabilities: dict[str, float] | None
    """Label → probability in the order asked, summing to 1; ``yes``/``no`` for a noul, level names for a score."""
    confidence: float | None
    """:data:`CONFIDENCE`; None without probabilities."""
    server_confidence: float | None
    label_mass: float | None
    """Probability of all labels together over the whole vocabulary: low means the model did not want to answer."""
    argmax_is_label: bool | None
    """Whether the most probable token of all is a label."""
    source: Source
    usage: Usage | None = None
    """Tokens of this read, where reads are told apart; else see :class:`Answers`."""
    order_agrees: bool | None = None
    """Whether the same option won when they were offered in reverse order; None where that was not asked."""
    order_probabilities: dict[str, float] | None = None
    """Probabilities from the reverse order, keys in the order asked."""

    @property
    def uncalibrated(self) -> bool:
        """True when the server gave a label but no probabilities."""
        return self.probabilities is None


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine answered to one request, ids in the order asked."""

    answers: dict[str, Answer]
    source: Source
    usage: Usage
    refused: dict[str, str] = {}
    """Id → the server's words, for questions the model declined while it answered others."""


def distribution(labels: Sequence[str], given: Mapping[str, float], *, question: str) -> dict[str, float]:
    """``given`` as a distribution over ``labels``, in their order.

    Raises:
        MalformedAnswer: Other labels, a value outside [0, 1] or not finite, or a sum further from 1 than :data:`SUM_TOLERANCE`.
    """
    if len(given) != len(labels) or any(label not in given for label in labels):
        missing = [label for label in labels if label not in given]
        extra = [label for label in given if label not in labels]
        raise malformed(question, f"probabilities for other labels than asked (missing {missing[:3]}, unknown {extra[:3]})")
    values = [given[label] for label in labels]
    for label, p in zip(labels, values, strict=True):
        if not 0.0 <= p <= 1.0:  # NaN fails this too
            raise malformed(question, f"the probability of {label!r} is {p!r}")
    total = math.fsum(values)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise malformed(question, f"the probabilities sum to {total:.4g}, not 1")
    return {label: p / total for label, p in zip(labels, values, strict=True)}


def confidence(probabilities: Mapping[str, float]) -> float:
    """:data:`CONFIDENCE` of a distribution; 1 for a single label, which leaves nothing to decide."""
    n = len(probabilities)
    if n < 2:
        return 1.0
    return min(1.0, max(0.0, (max(probabilities.values()) - 1.0 / n) / (1.0 - 1.0 / n)))


def winner(probabilities: Mapping[str, float]) -> str:
    """The most probable label; the first of equals."""
    return max(probabilities, key=probabilities.__getitem__)


def calibrated(
    id_: str,
    question: Question,
    given: Mapping[str, float],
    source: Source,
    *,
    server_value: str | float | None = None,
    server_confidence: float | None = None,
    label_mass: float | None = None,
    argmax_is_label: bool | None = None,
    usage: Usage | None = None,
) -> Answer:
    """An answer from label probabilities.

    Args:
        id_: The question's id.
        question: The question.
        given: Label → probability, labels as in ``question.labels``.
        source: Who answered.
        server_value: The server's own choice, probability of yes or expected level; checked against ``given``.
        server_confidence: The server's own figure, kept as it came.
        label_mass: See :class:`Answer`; rounding may bring it a little above 1.
        argmax_is_label: See :class:`Answer`.
        usage: Tokens of this read.

    Raises:
        MalformedAnswer: ``given`` is no distribution over the labels, or the server contradicts it.
    """
    probabilities = distribution(question.labels, given, question=id_)
    value: str | float
    if isinstance(question, Choice):
        value = winner(probabilities)
        if server_value is not None and probabilities.get(str(server_value), -1.0) < probabilities[value] - AGREEMENT_TOLERANCE:
            raise malformed(id_, f"the choice {server_value!r} is not the most probable option")
        if server_value in probabilities:  # a tie, or one within the tolerance: the server broke it
            value = str(server_value)
    else:
        scale = 1
        if isinstance(question, Score):
            scale = len(probabilities) - 1
            value = math.fsum(level * p for level, p in enumerate(probabilities.values()))
        else:
            value = probabilities["yes"]
        if server_value is not None and not abs(float(server_value) - value) <= (AGREEMENT_TOLERANCE + SUM_TOLERANCE / 2) * scale:
            raise malformed(id_, f"the {question.type} {server_value!r} does not follow from its probabilities ({value:.4g})")
    if label_mass is not None and not -1e-6 <= label_mass <= 1.01:
        raise malformed(id_, f"the label mass is {label_mass!r}")
    return Answer(
        id=id_,
        type=question.type,
        value=value,
        probabilities=probabilities,
        confidence=confidence(probabilities),
        server_confidence=server_confidence,
        label_mass=None if label_mass is None else min(1.0, max(0.0, label_mass)),
        argmax_is_label=argmax_is_label,
        source=source,
        usage=usage,
    )


def uncalibrated(id_: str, question: Question, label: str, source: Source, *, usage: Usage | None = None) -> Answer:
    """An answer of which only the label is known.

    Raises:
        MalformedAnswer: ``label`` was not asked.
    """
    if label not in question.labels:
        raise malformed(id_, f"the answer {label!r} is none of the labels")
    value: str | float = label
    if isinstance(question, Noul):
        value = 1.0 if label == "yes" else 0.0
    elif isinstance(question, Score):
        value = float(question.labels.index(label))
    return Answer(
        id=id_,
        type=question.type,
        value=value,
        probabilities=None,
        confidence=None,
        server_confidence=None,
        label_mass=None,
        argmax_is_label=None,
        source=source,
        usage=usage,
    )


def malformed(question: str, what: str) -> MalformedAnswer:
    """The error for an answer that is not one, naming its question."""
    return MalformedAnswer(f"question {question!r}: {what}", mend="check that the worker's dialect is the one configured")

"""How honest probabilities are: expected calibration error, Brier score, the risk–coverage curve; with error bars."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

BINS = 10
"""Bins of the calibration error, of equal numbers of labels: equal widths leave most of them empty for a sure model."""

RESAMPLES = 200
"""Bootstrap samples behind an error bar."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with its 95 % interval from the bootstrap."""

    value: float
    low: float
    high: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a curve: ``at`` is a coverage or a mean confidence, ``rate`` an error rate or a share right, ``n`` its labels."""

    at: float
    rate: float
    n: int


def confidences(distributions: Sequence[Mapping[str, float]], labels: Sequence[str]) -> tuple[list[float], list[bool]]:
    """Of each answer: the probability of its most likely label, and whether that one was right."""
    best = [max(d, key=lambda name: d[name]) for d in distributions]
    return [d[b] for d, b in zip(distributions, best, strict=True)], [b == label for b, label in zip(best, labels, strict=True)]


def reliability(sure: Sequence[float], right: Sequence[bool], bins: int = BINS) -> list[Point]:
    """Mean confidence against share right, in bins of equal numbers."""
    order = sorted(range(len(sure)), key=lambda i: sure[i])
    points: list[Point] = []
    for b in range(bins):
        part = order[len(order) * b // bins : len(order) * (b + 1) // bins]
        if part:
            points.append(
                Point(at=sum(sure[i] for i in part) / len(part), rate=sum(right[i] for i in part) / len(part), n=len(part)),
            )
    return points


def expected_calibration_error(sure: Sequence[float], right: Sequence[bool]) -> float:
    """Mean distance of confidence and share right over the bins (Naeini et al., 2015)."""
    return sum(abs(p.at - p.rate) * p.n for p in reliability(sure, right)) / len(sure)


def brier(distributions: Sequence[Mapping[str, float]], labels: Sequence[str]) -> float:
    """Mean squared distance from the right answer, summed over the labels (Brier, 1950): 0 is perfect, 2 the worst."""
    total = 0.0
    for d, label in zip(distributions, labels, strict=True):
        total += sum((p - (name == label)) ** 2 for name, p in d.items())
    return total / len(labels)


def risk_coverage(sure: Sequence[float], right: Sequence[bool], points: int = 20) -> list[Point]:
    """Error rate among the surest answers, for growing shares of them."""
    order = sorted(range(len(sure)), key=lambda i: -sure[i])
    curve: list[Point] = []
    for step in range(1, points + 1):
        part = order[: max(1, len(order) * step // points)]
        curve.append(Point(at=len(part) / len(order), rate=sum(not right[i] for i in part) / len(part), n=len(part)))
    return curve


def with_error_bars(count: int, figure: Callable[[Sequence[int]], float], *, seed: int = 0) -> Figure:
    """A figure over ``count`` labels, given by their indexes, with its bootstrap interval."""
    draw = random.Random(seed)  # noqa: S311 -- reproducible error bars, not a secret
    resampled = sorted(figure(draw.choices(range(count), k=count)) for _ in range(RESAMPLES))
    low, high = resampled[int(0.025 * RESAMPLES)], resampled[int(0.975 * RESAMPLES) - 1]
    return Figure(value=figure(range(count)), low=low, high=high)

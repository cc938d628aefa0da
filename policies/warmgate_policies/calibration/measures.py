"""How honest probabilities are: expected calibration error, Brier score, the risk–coverage curve; with error bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

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


def expected_calibration_error(sure: Sequence[float], right: Sequence[bool]) -> Figure:
    """Mean distance of confidence and share right over the bins (Naeini et al., 2015), with its bootstrap interval."""
    import numpy as np

    order = np.argsort(np.asarray(sure), kind="stable")
    distance = np.asarray(sure)[order] - np.asarray(right, dtype=float)[order]
    count = len(order)
    edges = [count * b // BINS for b in range(BINS)]

    def figure(picked: Any) -> float:
        """Of labels by their rank, in order: a resample stays sorted without being sorted again."""
        sums = np.add.reduceat(distance[picked], sorted({edge for edge in edges if edge < count}))
        return float(np.abs(sums).sum() / count)

    return _resampled(count, figure, np.arange(count), ranked=True)


def brier(distributions: Sequence[Mapping[str, float]], labels: Sequence[str]) -> Figure:
    """Mean squared distance from the right answer, summed over the labels (Brier, 1950), with its interval: 0 is perfect, 2 worst."""
    import numpy as np

    each = np.array([sum((p - (name == label)) ** 2 for name, p in d.items()) for d, label in zip(distributions, labels, strict=True)])
    return _resampled(len(each), lambda picked: float(each[picked].mean()), np.arange(len(each)), ranked=False)


def risk_coverage(sure: Sequence[float], right: Sequence[bool], points: int = 20) -> list[Point]:
    """Error rate among the surest answers, for growing shares of them."""
    order = sorted(range(len(sure)), key=lambda i: -sure[i])
    wrong = [0, *accumulate(not right[i] for i in order)]
    taken = [max(1, len(order) * step // points) for step in range(1, points + 1)]
    return [Point(at=n / len(order), rate=wrong[n] / n, n=n) for n in taken]


def _resampled(count: int, figure: Callable[[Any], float], whole: Any, *, ranked: bool, seed: int = 0) -> Figure:
    """A figure over ``count`` labels, given by their indexes, with the interval of its values on resamples of them."""
    import numpy as np

    draw = np.random.default_rng(seed)
    values: list[float] = []
    for _ in range(RESAMPLES):
        picked = draw.integers(0, count, count)
        if ranked:
            picked = np.repeat(whole, np.bincount(picked, minlength=count))
        values.append(figure(picked))
    values.sort()
    return Figure(value=figure(whole), low=values[int(0.025 * RESAMPLES)], high=values[int(0.975 * RESAMPLES) - 1])

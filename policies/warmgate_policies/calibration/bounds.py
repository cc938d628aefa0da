"""A threshold whose promised error rate holds: exact bounds, and how many labels they need.

For a wanted error rate α and a confidence 1 − δ, a threshold is accepted where the upper Clopper–Pearson bound (Clopper and Pearson, 1934)
on the errors at or above it is at most α. Several thresholds are looked at, fixed before any label is seen, so each is tested at δ divided
by their number (Bonferroni): the chance that *any* accepted one breaks its promise is then at most δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

GRID = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
"""The thresholds looked at: raw probabilities. Denser near 1, where sure models put most of their answers."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A score from which on the error rate is bounded.

    Attributes:
        at: Answers with a score of at least this are taken; others are abstained from.
        accepted: Labels at or above it.
        errors: Wrong ones of these.
        bound: Upper bound of their error rate.
    """

    at: float
    accepted: int
    errors: int
    bound: float


def upper_bound(errors: int, total: int, delta: float) -> float:
    """Upper Clopper–Pearson bound of an error rate, exceeded with probability ``delta`` at most."""
    from scipy.stats import beta

    if total == 0 or errors >= total:
        return 1.0
    return float(beta.ppf(1 - delta, errors + 1, total - errors))


def labels_needed(max_error: float, delta: float, steps: int = len(GRID)) -> int:
    """Accepted labels without one error that a bound of ``max_error`` takes at least."""
    return math.ceil(math.log(delta / steps) / math.log1p(-max_error))


def threshold(
    scores: Sequence[float], wrong: Sequence[bool], *, max_error: float, delta: float, grid: Sequence[float] = GRID
) -> Threshold | None:
    """The lowest threshold whose error rate is bounded; ``None`` where none is.

    Args:
        scores: How sure each answer was, 0 to 1.
        wrong: Whether it was wrong.
        max_error: The wanted error rate among what passes.
        delta: Chance that the promise fails.
        grid: The thresholds to look at, chosen without the labels.
    """
    for cut in sorted(grid):
        passing = [bad for score, bad in zip(scores, wrong, strict=True) if score >= cut]
        bound = upper_bound(sum(passing), len(passing), delta / len(grid))
        if bound <= max_error:
            return Threshold(cut, len(passing), sum(passing), bound)
    return None

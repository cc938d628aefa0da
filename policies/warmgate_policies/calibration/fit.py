"""Probabilities made honest: temperature for any question, isotonic regression for a yes or no with many labels."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Kind = Literal["none", "temperature", "isotonic"]

FLOOR = 1e-6
"""Smallest probability taken for a logarithm: a server that rounds to 0 did not mean never."""

ISOTONIC_LABELS = 200
"""Fewer labels than this overfit a step function (Niculescu-Mizil and Caruana, 2005, see it lose below about a thousand; with bounds from
raw scores a rough fit does no harm, so ours is lower)."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How a raw distribution becomes a calibrated one.

    Attributes:
        kind: Which of the three.
        temperature: Divides log-probabilities; above 1 the model was too sure.
        x: Raw probabilities of yes at which an isotonic fit steps.
        y: Calibrated probabilities there.
    """

    kind: Kind
    temperature: float = 1.0
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for figures that no fit has."""
        if not 0 < self.temperature < math.inf or len(self.x) != len(self.y):
            raise ValueError("a fit has a temperature above 0, and as many x as y")

    def apply(self, probabilities: Mapping[str, float]) -> dict[str, float]:
        """A calibrated distribution over the same labels."""
        if self.kind == "temperature":
            return tempered(probabilities, self.temperature)
        if self.kind == "isotonic" and self.x and set(probabilities) == {"yes", "no"}:
            yes = self._between(probabilities["yes"])
            return {name: yes if name == "yes" else 1 - yes for name in probabilities}
        return dict(probabilities)

    def _between(self, p: float) -> float:
        at = bisect_right(self.x, p)
        if at == 0:
            return self.y[0]
        if at == len(self.x):
            return self.y[-1]
        low, high = self.x[at - 1], self.x[at]
        part = (p - low) / (high - low) if high > low else 0.0
        return self.y[at - 1] + part * (self.y[at] - self.y[at - 1])


def tempered(probabilities: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Softmax of log-probabilities divided by a temperature (Guo et al., 2017)."""
    logs = {name: math.log(max(p, FLOOR)) / temperature for name, p in probabilities.items()}
    top = max(logs.values())
    weights = {name: math.exp(value - top) for name, value in logs.items()}
    total = math.fsum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def learn(distributions: Sequence[Mapping[str, float]], labels: Sequence[str], kind: Kind) -> Fit:
    """Fit to labels. ``isotonic`` is for a yes or no; other questions get a temperature.

    Args:
        distributions: Raw probabilities, label → p.
        labels: The right ones.
        kind: Which fit.
    """
    if kind == "none" or not labels:
        return Fit(kind="none")
    if kind == "isotonic" and set(distributions[0]) == {"yes", "no"}:
        return _isotonic([d["yes"] for d in distributions], [label == "yes" for label in labels])
    return Fit(kind="temperature", temperature=_temperature(distributions, labels))


def _temperature(distributions: Sequence[Mapping[str, float]], labels: Sequence[str]) -> float:
    import numpy as np
    from scipy.optimize import minimize_scalar

    logs = np.log(np.maximum(np.array([list(d.values()) for d in distributions]), FLOOR))
    right = np.array([list(d).index(label) for d, label in zip(distributions, labels, strict=True)])
    rows = np.arange(len(right))

    def loss(log_t: float) -> float:
        scaled = logs / math.exp(log_t)
        scaled -= scaled.max(axis=1, keepdims=True)
        return float(-(scaled[rows, right] - np.log(np.exp(scaled).sum(axis=1))).mean())

    found = minimize_scalar(loss, bounds=(math.log(0.05), math.log(20.0)), method="bounded")
    return float(math.exp(found.x))


def _isotonic(yes: Sequence[float], right: Sequence[bool]) -> Fit:
    import numpy as np
    from scipy.optimize import isotonic_regression

    order = sorted(range(len(yes)), key=lambda i: yes[i])
    x = np.array([yes[i] for i in order])
    y = np.array([float(right[i]) for i in order])
    values, starts = np.unique(x, return_index=True)  # equal scores are one step
    weights = np.diff(np.append(starts, len(x))).astype(float)
    means = np.add.reduceat(y, starts) / weights
    fitted = np.clip(isotonic_regression(means, weights=weights).x, 0.0, 1.0)
    steps = [i for i in range(len(values)) if i in (0, len(values) - 1) or fitted[i] != fitted[i - 1] or fitted[i] != fitted[i + 1]]
    return Fit(kind="isotonic", x=tuple(float(values[i]) for i in steps), y=tuple(float(fitted[i]) for i in steps))

"""Whether a model still answers as it did when its thresholds were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warmgate_policies.calibration.policyfile import Entry

TOLERANCE = 0.02
"""Mean change of a probability that batching and cache hits alone can cause on a GPU (kernels sum in another order)."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the answers to the pinned states moved.

    Attributes:
        asked: Pinned states that were answered.
        unanswered: Those that were not.
        moved: Mean absolute change of the probabilities.
        flipped: Answers that fell on another side of their threshold.
        drifted: Whether the thresholds should no longer be used.
    """

    asked: int
    unanswered: int
    moved: float
    flipped: int
    drifted: bool


def compare(entry: Entry, now: Sequence[Mapping[str, float] | None], *, tolerance: float = TOLERANCE) -> Drift:
    """Compare today's answers to the pinned ones, in their order. An unanswered one is drift: its promise cannot be checked.

    Args:
        entry: What was pinned.
        now: Probabilities of today; ``None`` where a state was not answered.
        tolerance: See :data:`TOLERANCE`.
    """
    pairs = [(pin.probabilities, new) for pin, new in zip(entry.pinned, now, strict=True) if new is not None]
    unanswered = len(now) - len(pairs)
    if not pairs:
        return Drift(0, unanswered, 1.0, 0, True)
    distances = [sum(abs(old[name] - new.get(name, 0.0)) for name in old) / len(old) for old, new in pairs]
    moved = sum(distances) / len(distances)
    flipped = sum(_side(entry, old) != _side(entry, new) for old, new in pairs)
    return Drift(len(pairs), unanswered, moved, flipped, moved > tolerance or flipped > max(1, len(pairs) // 20) or unanswered > 0)


def _side(entry: Entry, probabilities: Mapping[str, float]) -> str | None:
    best = max(probabilities, key=lambda name: probabilities[name])
    side = entry.thresholds.get(best) or entry.thresholds.get("*")
    return best if side is not None and probabilities[best] >= side.at else None

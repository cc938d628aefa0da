"""From labels to an entry of a policy file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from warmgate.errors import InputError
from warmgate_policies.calibration import measures
from warmgate_policies.calibration.bounds import Threshold, labels_needed, threshold
from warmgate_policies.calibration.fit import ISOTONIC_LABELS, Kind, learn
from warmgate_policies.calibration.labels import Key, Label, groups
from warmgate_policies.calibration.policyfile import SCHEMA, Entry, Pinned, PolicyFile, Side, version_of

FOLDS = 5
PINNED = 32
"""States kept for a later check: enough to see a changed model, few enough to ask in seconds."""


def calibrate(labels: Sequence[Label], *, max_error: float = 0.05, confidence: float = 0.95, fit: Kind | None = None) -> PolicyFile:
    """A policy file from labels, an entry for each question, model and dialect among them.

    Args:
        labels: All with probabilities.
        max_error: Error rate wanted among the answers taken.
        confidence: Probability that the promise holds.
        fit: How probabilities are mended; ``None``: a temperature, or isotonic for a yes-or-no with enough labels.

    Raises:
        InputError: Too few labels for any promise; it says how many are needed.
    """
    entries = [_entry(key, part, max_error, confidence, fit) for key, part in groups(labels).items()]
    return PolicyFile(schema=SCHEMA, version=version_of(entries), created=datetime.now(UTC).isoformat(timespec="seconds"), entries=entries)


def _entry(key: Key, labels: Sequence[Label], max_error: float, confidence: float, fit: Kind | None) -> Entry:
    question, id_ = labels[0].question, labels[0].id
    if any(label.probabilities is None for label in labels):
        raise InputError("a label has no probabilities", where=f"question {id_}", mend="ask a worker: --worker URL")
    raw = [label.probabilities or {} for label in labels]
    right = [label.label for label in labels]
    binary = len(question.labels) == 2
    delta = (1 - confidence) / (2 if binary else 1)  # two labels promise on two sides, and both must hold
    needed = labels_needed(max_error, delta)
    if len(labels) < needed:
        raise InputError(
            f"{len(labels)} labels cannot show an error rate of {max_error:g} with confidence {confidence:g}",
            where=f"question {id_} ({key.model}, {key.dialect})",
            mend=f"at least {needed} are needed, even if no answer were wrong",
        )
    thresholds = _sides(raw, right, binary, max_error, delta)
    if not thresholds:
        raise InputError(
            f"no threshold keeps an error rate of {max_error:g}: the answers are too often wrong, or the labels too few",
            where=f"question {id_} ({key.model}, {key.dialect})",
            mend=f"allow more errors, or label more ({needed} above the threshold are needed even without one error)",
        )
    repeated, contradicted = _repeated(labels)
    kind: Kind = fit or ("isotonic" if question.type == "noul" and len(labels) >= ISOTONIC_LABELS else "temperature")
    crossed = _cross_validated(raw, right, kind)
    sure, hits = measures.confidences(raw, right)
    sure_after, hits_after = measures.confidences(crossed, right)
    return Entry(
        id=id_,
        model=key.model,
        dialect=key.dialect,
        fingerprint=key.fingerprint,
        question=question.model_dump(mode="json"),
        labels=len(labels),
        repeated=repeated,
        contradicted=contradicted,
        max_error=max_error,
        confidence=confidence,
        fit=learn(raw, right, kind),
        thresholds=thresholds,
        ece={
            "raw": measures.expected_calibration_error(sure, hits),
            "calibrated": measures.expected_calibration_error(sure_after, hits_after),
        },
        brier={"raw": measures.brier(raw, right), "calibrated": measures.brier(crossed, right)},
        curve=measures.risk_coverage(sure, hits),
        reliability=measures.reliability(sure_after, hits_after),
        pinned=[
            Pinned(state=label.state, probabilities=p)
            for label, p in list(zip(labels, raw, strict=True))[:: max(1, len(labels) // PINNED)][:PINNED]
            if label.state is not None
        ],
        policy=key.policy,
    )


def _sides(raw: Sequence[Mapping[str, float]], right: Sequence[str], binary: bool, max_error: float, delta: float) -> dict[str, Side]:
    if not binary:
        sure, hits = measures.confidences(raw, right)
        found = threshold(sure, [not hit for hit in hits], max_error=max_error, delta=delta)
        return {"*": _side(found)} if found is not None else {}
    sides: dict[str, Side] = {}
    for name in raw[0]:
        picked = [i for i, d in enumerate(raw) if d[name] >= 0.5]
        wrong = [right[i] != name for i in picked]
        if picked and (found := threshold([raw[i][name] for i in picked], wrong, max_error=max_error, delta=delta)) is not None:
            sides[name] = _side(found)
    return sides


def _repeated(labels: Sequence[Label]) -> tuple[int, int]:
    """How many labels are of a state that another had before, and how many states were labelled both ways."""
    seen: dict[bytes, set[str]] = {}
    kept = 0
    for label in labels:
        if label.state is not None:
            kept += 1
            seen.setdefault(msgspec.json.encode(label.state, order="deterministic"), set()).add(label.label)
    return kept - len(seen), sum(len(words) > 1 for words in seen.values())


def _side(found: Threshold) -> Side:
    return Side(at=found.at, accepted=found.accepted, errors=found.errors, bound=found.bound)


def _cross_validated(raw: Sequence[Mapping[str, float]], right: Sequence[str], kind: Kind) -> list[dict[str, float]]:
    """Calibrated by what the other folds taught: figures on the labels that a fit was made of would flatter it."""
    after: list[dict[str, float]] = [{}] * len(raw)
    for fold in range(FOLDS):
        others = [i for i in range(len(raw)) if i % FOLDS != fold]
        learnt = learn([raw[i] for i in others], [right[i] for i in others], kind)
        for i in range(fold, len(raw), FOLDS):
            after[i] = learnt.apply(raw[i])
    return after

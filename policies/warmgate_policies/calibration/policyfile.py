"""The policy file: calibrated thresholds, what they belong to, and the evidence for them. Read without scipy."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Literal

import msgspec

from warmgate.answers import Answer
from warmgate.errors import InputError
from warmgate.questions import Question
from warmgate_policies.calibration.fit import Fit
from warmgate_policies.calibration.labels import Key, fingerprint
from warmgate_policies.calibration.measures import Figure, Point

SCHEMA = "warmgate.policy/1"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold on the raw probability of one label (``*``: of whichever is the most likely).

    Attributes:
        at: From here on the answer is taken.
        accepted: Labels at or above it when it was chosen.
        errors: Wrong ones of these.
        bound: Upper bound of their error rate.
    """

    at: float
    accepted: int
    errors: int
    bound: float

    def __post_init__(self) -> None:
        """Raises ValueError for a threshold that is no probability: it would take every answer, or none."""
        if not 0 <= self.at <= 1:
            raise ValueError(f"the threshold {self.at!r} is no probability")


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A state that is asked again by ``calibrate --check``, and what was answered then."""

    state: Any
    probabilities: dict[str, float]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one question, asked of one model in one dialect.

    Attributes:
        id: Id the question had among the labels.
        model: Model that answers.
        dialect: How it is asked.
        fingerprint: Hash of the question, options in order.
        question: The question as asked.
        labels: How many labels are behind this.
        repeated: How many of them are of a state that another had before. The promise is on questions drawn as the labels were: ones that
            come again and again are to be among them as often as they come, and a file that is there twice promises too much.
        contradicted: States that were labelled both ways.
        max_error: Error rate promised from each threshold on.
        confidence: Probability that all promises of this entry hold.
        fit: From raw to calibrated probabilities.
        thresholds: Label → threshold. A question of two labels has one for each, others have ``*``. One that is missing cannot be promised.
        ece: Expected calibration error, raw and calibrated (by 5-fold cross-validation).
        brier: Brier score, likewise.
        curve: Risk against coverage.
        reliability: Share right against calibrated confidence.
        pinned: States for a later check; empty where the labels carried none.
        policy: The rules that made the states; empty where rules have no part.
    """

    id: str
    model: str
    dialect: str
    fingerprint: str
    question: dict[str, Any]
    labels: int
    max_error: float
    confidence: float
    fit: Fit
    thresholds: dict[str, Side]
    ece: dict[Literal["raw", "calibrated"], Figure]
    brier: dict[Literal["raw", "calibrated"], Figure]
    curve: list[Point]
    reliability: list[Point]
    pinned: list[Pinned] = []
    policy: str = ""
    repeated: int = 0
    contradicted: int = 0

    @property
    def key(self) -> Key:
        """What it belongs to."""
        return Key(self.model, self.dialect, self.fingerprint, self.policy)


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """All entries of a file.

    Attributes:
        schema: :data:`SCHEMA`.
        version: Hash of the entries: part of a verdict's binding.
        created: Time of making, UTC, ISO 8601.
        entries: One a question and model.
    """

    schema: str
    version: str
    created: str
    entries: list[Entry]

    @classmethod
    def parse(cls, data: bytes, *, where: str) -> PolicyFile:
        """From a file's bytes.

        Raises:
            InputError: Not a policy file, one of another version of the schema, or one that was changed after it was made.
        """
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise InputError(f"is not a policy file ({fault})", where=where, mend="warmgate calibrate makes one") from None
        if found.schema != SCHEMA:
            raise InputError(f"has the schema {found.schema!r}, not {SCHEMA}", where=where, mend="calibrate again")
        if found.version != version_of(found.entries):
            why = "was changed after it was made: its entries are not those of its version, and promise nothing"
            raise InputError(why, where=where, mend="calibrate again; what you want goes into --max-error and --confidence")
        return found

    def entry(self, question: Question, *, model: str, dialect: str, policy: str = "") -> Entry | None:
        """The entry that holds for exactly this question, model and dialect, on facts that exactly these rules resolved."""
        key = Key(model, dialect, fingerprint(question), policy)
        return next((e for e in self.entries if e.key == key), None)


def version_of(entries: list[Entry]) -> str:
    """Hash of the entries."""
    return sha256(msgspec.json.encode(entries, order="deterministic")).hexdigest()[:12]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer comes to under an entry.

    Attributes:
        label: The label taken; ``None`` where the policy abstains.
        probability: Its calibrated probability.
        reason: Why, or why not.
    """

    label: str | None
    probability: float | None
    reason: str


def take(entry: Entry | None, answer: Answer) -> Taken:
    """Take a label, or abstain. Whatever is odd about the answer abstains."""
    if entry is None:
        return Taken(label=None, probability=None, reason="no calibrated threshold for this question, model and dialect")
    raw = answer.probabilities
    if raw is None:
        return Taken(label=None, probability=None, reason="the answer has no probabilities")
    if answer.argmax_is_label is False:
        return Taken(label=None, probability=None, reason="the model did not want to answer")
    best = max(raw, key=lambda name: raw[name])
    side = entry.thresholds.get(best) or entry.thresholds.get("*")
    calibrated = entry.fit.apply(raw).get(best)
    if side is None:
        return Taken(label=None, probability=calibrated, reason=f"no threshold for {best} could be promised")
    if not raw[best] >= side.at:
        return Taken(label=None, probability=calibrated, reason=f"{raw[best]:.3f} for {best} is below {side.at:g}")
    return Taken(
        label=best, probability=calibrated, reason=f"{raw[best]:.3f} for {best} is not below {side.at:g} (error ≤ {entry.max_error:g})"
    )

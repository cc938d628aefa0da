"""What one scrape of a gate's metrics says, as far as ``warmgate top`` shows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warmgate.errors import MalformedAnswer

if TYPE_CHECKING:
    from warmgate.doctor.exposition import Metrics

TOTALS = (
    "prompt_tokens_total",
    "reusable_tokens_total",
    "survived_tokens_total",
    "computed_tokens_total",
    "floor_tokens_total",
    "tax_tokens",
    "rebinds_total",
    "decision_duration_seconds_sum",
    "decision_duration_seconds_count",
)


def _none() -> dict[str, float]:
    return {}


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker. Counts are tokens but for ``sessions`` and ``blocks``."""

    sessions: float = 0
    blocks: float = 0
    events: str = "off"
    reusable: float = 0
    survived: float = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way: ``read``, the agent's prefix in the gate's hands, or ``call``, the agent's own again. Counts are tokens.

    Attributes:
        reusable: R.
        available: What the best worker held.
        captured: What the chosen worker held.
        delivered: S.
        measured: Prompt tokens of which the engine told what was cached.
        prompt: Prompt tokens.
        unpredicted: Prompts of which nothing could be predicted; no figure here has them.
    """

    reusable: float = 0
    available: float = 0
    captured: float = 0
    delivered: float = 0
    measured: float = 0
    prompt: float = 0
    unpredicted: float = 0

    def since(self, was: Step) -> Step:
        """What was added."""
        return Step(
            self.reusable - was.reusable,
            self.available - was.available,
            self.captured - was.captured,
            self.delivered - was.delivered,
            self.measured - was.measured,
            self.prompt - was.prompt,
            self.unpredicted - was.unpredicted,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """One scrape.

    Attributes:
        at: When, seconds of ``time.monotonic()``.
        totals: :data:`TOTALS` over all labels.
        steps: ``read`` and ``call``.
        tax_seconds: ``hop`` and ``prefill``.
        lost: Tokens by cause.
        outside: Tokens by reason.
        fallbacks: By ``from → to``.
        decisions: By outcome.
        verdicts: By verdict.
        workers: By URL.
    """

    at: float
    totals: Mapping[str, float] = field(default_factory=_none)
    steps: Mapping[str, Step] = field(default_factory=dict[str, Step])
    tax_seconds: Mapping[str, float] = field(default_factory=_none)
    lost: Mapping[str, float] = field(default_factory=_none)
    outside: Mapping[str, float] = field(default_factory=_none)
    fallbacks: Mapping[str, float] = field(default_factory=_none)
    decisions: Mapping[str, float] = field(default_factory=_none)
    verdicts: Mapping[str, float] = field(default_factory=_none)
    workers: Mapping[str, Worker] = field(default_factory=dict[str, Worker])

    @classmethod
    def of(cls, page: Metrics) -> Reading:
        """From a page.

        Raises:
            MalformedAnswer: Its figures are beyond all bounds.
        """
        try:
            return _read(page)
        except OverflowError:
            raise MalformedAnswer("the page's figures are no figures of a gate", where="metrics") from None

    def follows(self, was: Reading) -> bool:
        """Whether this gate is the one of an earlier reading; one that was started anew counts from 0."""
        return all(self.totals.get(name, 0) >= value for name, value in was.totals.items() if name != "tax_tokens")


def _read(page: Metrics) -> Reading:
    def by(name: str, *labels: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for sample in page.of(f"warmgate_{name}"):
            key = " → ".join(sample.labels.get(label, "") for label in labels)
            found[key] = found.get(key, 0) + sample.value
        return found

    kinds = {
        name: by(f"{name}_total", "kind")
        for name in ("reusable_tokens", "available_tokens", "captured_tokens", "survived_tokens", "prompt_tokens", "unpredicted")
    }
    told: dict[str, float] = {}
    for name in ("survived_tokens_total", "computed_tokens_total"):
        for sample in page.of(f"warmgate_{name}"):
            if sample.labels.get("basis") == "measured":
                kind = sample.labels.get("kind", "")
                told[kind] = told.get(kind, 0) + sample.value
    steps = {
        kind: Step(
            kinds["reusable_tokens"].get(kind, 0),
            kinds["available_tokens"].get(kind, 0),
            kinds["captured_tokens"].get(kind, 0),
            kinds["survived_tokens"].get(kind, 0),
            told.get(kind, 0),
            kinds["prompt_tokens"].get(kind, 0),
            kinds["unpredicted"].get(kind, 0),
        )
        for kind in ("read", "call")
    }
    sessions, blocks = by("worker_sessions", "worker"), by("worker_resident_blocks", "worker")
    reusable, survived = by("worker_reusable_tokens_total", "worker"), by("worker_survived_tokens_total", "worker")
    events = {s.labels.get("worker", ""): s.labels.get("state", "") for s in page.of("warmgate_worker_events") if s.value > 0}
    return Reading(
        time.monotonic(),
        {name: page.total(f"warmgate_{name}") or 0 for name in TOTALS},
        steps,
        by("tax_seconds", "part"),
        by("lost_tokens_total", "cause"),
        by("outside_tokens_total", "reason"),
        by("fallbacks_total", "from", "to"),
        by("decisions_total", "outcome"),
        by("verdicts_total", "verdict"),
        {
            name: Worker(sessions.get(name, 0), blocks.get(name, 0), events.get(name, "off"), reusable.get(name, 0), survived.get(name, 0))
            for name in sorted({*sessions, *blocks, *reusable, *survived})
        },
    )

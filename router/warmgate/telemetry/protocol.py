"""What a gate reports while it works: one Protocol, the facts it takes, and a fan that keeps a listener's faults from a decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from warmgate.answers import Answer
    from warmgate.decision import Decision
    from warmgate.prefix.survival import Outcome
    from warmgate.prefix.usage import Reported
    from warmgate.questions import Question
    from warmgate.workers.counts import Counted


@dataclass(frozen=True, slots=True)
class Started:
    """A decision began.

    Attributes:
        decision: Its id.
        session: Key of the session; hashed before it is written anywhere.
        model: The agent's model.
        worker: Where its questions go.
    """

    decision: str
    session: str
    model: str
    worker: str


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a decision's time went, in seconds. What is not known is 0.

    Attributes:
        queue: Waiting for another decision of the session, and in the engine's queue where it says so.
        hop: On the wire, there and back.
        engine: In the engine.
        ours: All else.
    """

    queue: float = 0.0
    hop: float = 0.0
    engine: float = 0.0
    ours: float = 0.0


def _no_answers() -> dict[str, Answer]:
    return {}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was asked about a proposed call.

    Attributes:
        question: The policy's question.
        facts: Its state: resolved facts of the call.
        dialect: How it was asked.
    """

    question: Question
    facts: Mapping[str, Any]
    dialect: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A decision is made. Its mounts, verdicts and reads are in it.

    Attributes:
        decision: What was decided.
        session: See :class:`Started`.
        model: The agent's model.
        parts: Where the time went.
        asked: Call id → what a model was asked about it, for grey cases.
        answered: Call id → what it answered.
        prompt_tokens: Tokens of the agent's coming prompt, where they were counted.
        dropped_characters: In shadow mode, length of the schemas that enforcing would have left out, as JSON.
    """

    decision: Decision
    session: str
    model: str
    parts: Parts = field(default_factory=Parts)
    asked: Mapping[str, Asked] = field(default_factory=dict[str, Asked])
    answered: Mapping[str, Answer] = field(default_factory=_no_answers)
    prompt_tokens: int | None = None
    dropped_characters: int = 0


Unpredicted: TypeAlias = Literal[
    "json",  # asked on a JSON state: it shares nothing with the agent's prompt
    "facts",  # asked about resolved facts alone
    "sidecar",  # another model's cache
    "cache",  # the cache is off, keeps only some prefixes, or this model's reads never look into it
    "worker",  # the worker is not followed; Watch.reasons says why
    "tokenizer",  # the worker's tokenizer did not answer, or not in time
    "engine",  # what this engine adds to the prompt is not known, or another one answered
    "prompt",  # the prompt is not known, or another one was answered than the one predicted
    "moved",  # another worker served it
]
"""Why a prompt has no prediction."""


@dataclass(frozen=True, slots=True)
class ReadSeen:
    """One engine request of a decision came back, or did not.

    Attributes:
        decision: Id of the decision.
        request: The X-Request-Id it was sent with.
        session: See :class:`Started`.
        model: The model asked.
        worker: Where.
        engine: The engine that answered, or ``None``.
        outcome: As in :class:`~warmgate.decision.Read`.
        questions: How many it carried.
        elapsed_s: Seconds.
        survival: One outcome a question where its prompt was predicted; else empty.
        unpredicted: Why it is empty.
    """

    decision: str
    request: str
    session: str
    model: str
    worker: str
    engine: str | None
    outcome: Literal["answered", "partial", "no_answer"]
    questions: int
    elapsed_s: float
    survival: Sequence[Outcome] = ()
    unpredicted: Unpredicted | None = None


@dataclass(frozen=True, slots=True)
class CallSeen:
    """An agent's own call came back.

    Attributes:
        session: See :class:`Started`.
        model: Its model.
        worker: Who served it.
        reported: What its answer says about tokens.
        survival: What became of its prefix, where it was predicted.
        decision: Id of the decision before it.
        request: Its X-Request-Id, if known.
        started: When it was sent, seconds since 1970.
        ended: When it was answered.
        unpredicted: Why ``survival`` is not known.
    """

    session: str
    model: str
    worker: str
    reported: Reported
    survival: Outcome | None = None
    decision: str | None = None
    request: str | None = None
    started: float | None = None
    ended: float | None = None
    unpredicted: Unpredicted | None = None


@dataclass(frozen=True, slots=True)
class Fallback:
    """A step of the chain was left.

    Attributes:
        decision: Id of the decision.
        request: The X-Request-Id.
        worker: Where.
        left: The engine that was left.
        to: The next one, or ``rules`` when none was left.
        code: Code of its error (``WG314``), or ``None``.
    """

    decision: str
    request: str
    worker: str
    left: str
    to: str
    code: str | None


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's word on a proposed call: a label for ``calibrate``.

    Attributes:
        decision: Id of the decision that asked.
        call: Id of the proposed call.
        binding: Binding of the verdict the person saw.
        approved: What they said.
        tool: Name of the tool.
    """

    decision: str
    call: str
    binding: str
    approved: bool
    tool: str = ""


class Telemetry(Protocol):
    """A listener. Methods return at once; where one raises, :class:`Fan` takes it off the decision's path."""

    def decision_started(self, fact: Started) -> None:
        """Before anything is asked."""
        ...

    def decision_finished(self, fact: Finished) -> None:
        """With everything decided. A decision that raised has no such fact; see :meth:`decision_failed`."""
        ...

    def decision_failed(self, decision: str, code: str) -> None:
        """It raised, or was cancelled (code ``cancelled``)."""
        ...

    def read(self, fact: ReadSeen) -> None:
        """After each engine request."""
        ...

    def agent_call(self, fact: CallSeen) -> None:
        """After each call of the agent."""
        ...

    def fallback(self, fact: Fallback) -> None:
        """For each step left."""
        ...

    def approval(self, fact: Approval) -> None:
        """For each word of a person."""
        ...

    def counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """What happens to workers and sessions; a :data:`~warmgate.workers.counts.Listener`. Rebinds are ``session_moved``."""
        ...

    def headers(self, decision: str) -> dict[str, str]:
        """Headers that a decision's requests should carry (``traceparent``); usually none."""
        ...

    def close(self) -> None:
        """Write what is held back."""
        ...


class Silent:
    """Listens to nothing. Also the base of listeners that care for some facts only."""

    def decision_started(self, fact: Started) -> None:
        """Ignored."""

    def decision_finished(self, fact: Finished) -> None:
        """Ignored."""

    def decision_failed(self, decision: str, code: str) -> None:
        """Ignored."""

    def read(self, fact: ReadSeen) -> None:
        """Ignored."""

    def agent_call(self, fact: CallSeen) -> None:
        """Ignored."""

    def fallback(self, fact: Fallback) -> None:
        """Ignored."""

    def approval(self, fact: Approval) -> None:
        """Ignored."""

    def counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """Ignored."""

    def headers(self, decision: str) -> dict[str, str]:
        """None."""
        del decision
        return {}

    def close(self) -> None:
        """Nothing is held back."""


class Fan:
    """Several listeners as one. A listener that raises is reported once and left out of that fact: decisions never see it.

    Args:
        listeners: Told in this order.
    """

    def __init__(self, *listeners: Telemetry) -> None:
        self.listeners = listeners
        self.faults = 0
        """How often a listener raised."""
        self._told: set[tuple[str, str]] = set()

    def decision_started(self, fact: Started) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.decision_started(fact))

    def decision_finished(self, fact: Finished) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.decision_finished(fact))

    def decision_failed(self, decision: str, code: str) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.decision_failed(decision, code))

    def read(self, fact: ReadSeen) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.read(fact))

    def agent_call(self, fact: CallSeen) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.agent_call(fact))

    def fallback(self, fact: Fallback) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.fallback(fact))

    def approval(self, fact: Approval) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.approval(fact))

    def counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.counted(what, labels, number))

    def headers(self, decision: str) -> dict[str, str]:
        """See :class:`Telemetry`."""
        found: dict[str, str] = {}
        self.tell(lambda one: found.update(one.headers(decision)))
        return found

    def close(self) -> None:
        """See :class:`Telemetry`."""
        self.tell(lambda one: one.close())

    def tell(self, tell: Callable[[Telemetry], None]) -> None:
        """Tell all listeners something."""
        for one in self.listeners:
            try:
                tell(one)
            except Exception as fault:  # noqa: BLE001 -- listeners may be foreign; a decision goes on whatever they do
                self._fault(one, fault)

    def _fault(self, listener: Telemetry, fault: Exception) -> None:
        self.faults += 1
        key = (type(listener).__name__, type(fault).__name__)
        if key not in self._told:
            from warmgate.engines.events import emit

            self._told.add(key)
            emit(logging.WARNING, "telemetry.failed", listener=key[0], fault=key[1])


def fallbacks(decision: str, request: str, worker: str, steps: Sequence[tuple[str, str, str | None]]) -> list[Fallback]:
    """The fallbacks of one chain.

    Args:
        decision: Id of the decision.
        request: The X-Request-Id.
        worker: Where it was asked.
        steps: (engine, outcome, code) of each step in order, as in :class:`~warmgate.engines.chain.StepReport`.
    """
    found: list[Fallback] = []
    for number, (engine, outcome, code) in enumerate(steps):
        if outcome != "answered":
            to = steps[number + 1][0] if number + 1 < len(steps) else "rules"
            found.append(Fallback(decision, request, worker, engine, to, code))
    return found

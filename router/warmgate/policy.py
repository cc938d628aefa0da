"""What the gate asks of policies: two protocols and the words they exchange. The gate knows no policy pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from warmgate.answers import Answer
from warmgate.decision import Mounts, Word
from warmgate.questions import Question
from warmgate.turn import ProposedCall, Turn


@runtime_checkable
class MountPolicy(Protocol):
    """Which tools the agent may call now.

    Optional attributes, looked for by name:

    - ``first_mount``: ``"bare"`` has a session's first questions asked on a prompt without any tools, since the list that they will
      stand in is what is decided; such a read shares only what precedes the tools. ``"all"`` (the default) asks on the whole list, which
      pays where the list mostly stays whole. May be a function of the turn that returns one of the two.
    - ``narrow(turn, mounted, answers)``: a second step of questions after the first one's answers.
    - ``wants_again(turn, mounted)``: whether the set must be settled anew inside a tool loop, where it is kept otherwise.
    - ``restore(session, *, offered, announced, mounted)``: told before each decision what the session has, as the gate or a checkpoint
      knows it, so that a restarted process goes on with the same list.
    - ``prefilled(tokens, seconds)``: told of reads how many tokens the worker computed in how much time, both measured.
    """

    name: str
    version: str

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        """What to ask before this turn; nothing where the current set holds anyway.

        Args:
            turn: The turn about to happen.
            mounted: What the session has mounted; ``None`` at its first turn.
        """
        ...

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        """The set from the answers. Unanswered questions keep the current set, never a smaller one.

        Args:
            turn: As above.
            mounted: As above.
            answers: Question id → answer; those without are missing.
            widen: Whether the answers may add tools; false where message content forged control markup.
        """
        ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """What rules say of one call.

    Attributes:
        verdict: The rules' own word.
        reason: One plain sentence.
        rule: The rule that decided.
        question: What a model may be asked to move a grey case between ask and allow; ``None`` where rules are final.
        facts: The state of that question: resolved facts alone.
    """

    verdict: Word
    reason: str
    rule: str | None = None
    question: Question | None = None
    facts: Mapping[str, Any] | None = None


@runtime_checkable
class CallPolicy(Protocol):
    """Whether a proposed call may run."""

    name: str
    version: str

    def judge(self, call: ProposedCall, turn: Turn) -> Judgement:
        """Judge by rules. Must not raise; whatever goes wrong inside is ``ask``."""
        ...

    def settle(self, call: ProposedCall, judgement: Judgement, answer: Answer) -> Judgement:
        """Move a grey case by a model's answer, under this policy's own thresholds. Called only for judgements with a question."""
        ...

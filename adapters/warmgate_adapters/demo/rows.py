"""What the demo tells of each call of a model, and of a whole run."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "warmgate.demo/1"

Basis = Literal["measured", "predicted"]
Outcome = Literal["ran", "denied", "not mounted", "approved", "rejected"]


class Verdict(msgspec.Struct):
    """What became of a proposed call.

    Attributes:
        call: Its tool and the values of its arguments, on one line.
        verdict: ``allow``, ``ask`` or ``deny``; ``None`` where the tool is not mounted, so that nothing was judged.
        outcome: What was done.
        reason: The policy's reason.
    """

    call: str
    verdict: str | None
    outcome: Outcome
    reason: str


class Row(msgspec.Struct):
    """One call of a session's model, the gate's decision before it, and the tool calls it proposed. Counts are tokens.

    Attributes:
        session: The conversation.
        user_turn: Number of the user's message, from 1.
        call: Number of the model's call within the session, from 1.
        mounts: Tools that may be called.
        announced: Whether tools were added by a message at the end.
        why: Why these are mounted.
        worker: Who served the call.
        moves: How often the session was moved so far.
        prompt: Of the call's prompt.
        cached: Of these, from the worker's prefix cache, as its usage says (measured).
        reusable: Of these, what an earlier prompt held, on any worker (predicted).
        cause: Why some of ``reusable`` was not found.
        reads: Questions that the gate asked before it.
        computed: Tokens that the workers computed for questions and call, by their counters (measured).
        tax: ``computed`` minus what the call alone would have computed without a gate (predicted).
        verdicts: Of the calls it proposed.
    """

    session: str
    user_turn: int
    call: int
    mounts: list[str]
    announced: bool
    why: str
    worker: str = ""
    moves: int = 0
    prompt: int | None = None
    cached: int | None = None
    reusable: int | None = None
    cause: str | None = None
    reads: int = 0
    computed: int = 0
    tax: int | None = None
    verdicts: list[Verdict] = msgspec.field(default_factory=list[Verdict])

    @property
    def survival(self) -> float | None:
        """Cached over reusable; ``None`` where nothing was reusable, or it is not known."""
        return self.cached / self.reusable if self.cached is not None and self.reusable else None


class Way(msgspec.Struct):
    """The same conversations with one kind of gate. Tokens, by the workers' own counters.

    Attributes:
        gate: ``none``, ``separate``, ``json`` or ``aligned``.
        computed: By all workers, for the agent's calls and the gate's reads.
        questions: How many were asked.
        tax: ``computed`` minus that of ``none``.
        basis: How ``computed`` is known.
    """

    gate: str
    computed: int
    questions: int
    tax: int
    basis: Basis = "measured"


class Moved(msgspec.Struct):
    """A session at the end: where it began, where it is, and how often it was moved."""

    session: str
    first: str
    last: str
    moves: int


class Result(msgspec.Struct):
    """``warmgate demo --json``.

    Attributes:
        workers: ``stand-in`` or ``given``.
        killed: The worker that was killed.
        turns: One row a call of a model.
        sessions: Where they ended.
        survival: ΣS/ΣR of all calls; and of those on a worker that their session had not just moved to.
        facts: What a look at the disk showed: commands that ran, what was removed and what was kept.
        ways: The four kinds of gate, on the same conversations.
        report: Path of the page, where one was written.
        replay: What a replay of the recorded traffic says of the same calls.
    """

    schema: str = SCHEMA
    workers: str = "stand-in"
    killed: str | None = None
    turns: list[Row] = msgspec.field(default_factory=list[Row])
    sessions: list[Moved] = msgspec.field(default_factory=list[Moved])
    survival: dict[str, float | None] = msgspec.field(default_factory=dict[str, "float | None"])
    basis: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    facts: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    ways: list[Way] = msgspec.field(default_factory=list[Way])
    report: str | None = None
    replay: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        """UTF-8 JSON, newline at the end."""
        return msgspec.json.encode(self) + b"\n"

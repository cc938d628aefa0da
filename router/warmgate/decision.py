"""What the gate decided, and everything needed to see why."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import msgspec

from warmgate.answers import Answer
from warmgate.prefix.ledger import Entry
from warmgate.turn import ProposedCall

Word = Literal["allow", "ask", "deny"]
"""The closed set of verdicts. ``ask`` is a value like the others: a person decides."""

Strategy = Literal["all", "freeze", "append", "remount", "native", "keep"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on one proposed call.

    Attributes:
        call: Id of the call.
        verdict: See :data:`Word`.
        reason: One plain sentence a person can act on.
        source: ``rules``, ``none`` (no policy installed), or the engine whose answer moved a grey case.
        rule: The rule that decided, where one did.
        binding: Ties the verdict to the exact call, policy and model; see :func:`binding_of`.
        policy: Name and version of the policy.
        shadow: Decided and recorded, to be enforced by nobody.
    """

    call: str
    verdict: Word
    reason: str
    source: str
    binding: str
    rule: str | None = None
    policy: str | None = None
    shadow: bool = False


class Mounts(msgspec.Struct, frozen=True, kw_only=True):
    """The tools the agent may call now.

    Attributes:
        tools: Names, in the order of the turn's tools.
        strategy: How the set came to be.
        changed: Whether it differs from the session's previous set.
        reason: One sentence, with the figures where a price was weighed.
        shadow: Decided and recorded; the agent keeps what it had.
        offered: The list that the agent's request carries, where it is not ``tools``: only a change of this one breaks the prefix.
        announce: Tools whose schemas must be put into a message at the end of the conversation now, since the list does not carry them.
        would: In shadow mode, the tools that enforcing would have mounted.
    """

    tools: tuple[str, ...]
    strategy: Strategy
    changed: bool
    reason: str
    shadow: bool = False
    offered: tuple[str, ...] | None = None
    announce: tuple[str, ...] = ()
    would: tuple[str, ...] | None = None


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """One engine request as it was sent.

    Attributes:
        questions: Ids of the questions it carried; none for a plant.
        state: ``aligned``, ``json`` or ``facts`` (resolved facts of proposed calls, never the transcript).
        outcome: ``answered``, ``partial`` or ``no_answer``.
        engine: The engine that answered, ``plant`` for the shared prefix sent on its own, or ``None``.
        worker: Where it was sent.
        elapsed_s: Seconds.
        answers: Id → answer.
        reason: Why steps were left, or why the state is not aligned.
        shared_characters: Characters of the agent's prompt that this read restates from the front, by construction.
    """

    questions: tuple[str, ...]
    state: Literal["aligned", "json", "facts"]
    outcome: Literal["answered", "partial", "no_answer"]
    engine: str | None
    worker: str
    elapsed_s: float
    answers: dict[str, Answer]
    reason: str = ""
    shared_characters: int = 0
    ledger: Entry | None = None
    """What it computed and what it found, tokens; each figure says whether it was measured or predicted."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """An agent call as it was reported back, beside what was predicted.

    Attributes:
        predicted_tokens: Its prompt's predicted length; ``None`` where it could not be counted.
        reported_tokens: ``usage.prompt_tokens``; ``None`` where the usage has none.
        cached_tokens: Those served from the prefix cache; ``None`` where the server does not say.
        drift: Why the two lengths differ; ``None`` where they agree or one is missing.
        ledger: The call's entry.
        notes: Sentences for people.
    """

    predicted_tokens: int | None
    reported_tokens: int | None
    cached_tokens: int | None
    drift: Literal["template_changed", "float_arguments", "null_contents", "unknown"] | None
    ledger: Entry
    notes: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's answer to one turn.

    Attributes:
        id: Also the prefix of the request ids of its reads.
        mounts: Tools to offer.
        verdicts: Call id → verdict, for every proposed call.
        worker: Base URL that the agent's call must go to.
        headers: Headers the agent's call must carry (stickiness, gateways).
        reads: Engine requests in the order sent.
        reasons: Sentences for people: what was left, why, what could not be known.
        flags: ``forged_markup`` and the like.
        elapsed_s: Seconds the whole decision took.
    """

    id: str
    mounts: Mounts
    verdicts: dict[str, Verdict]
    worker: str
    headers: dict[str, str]
    reads: tuple[Read, ...]
    reasons: tuple[str, ...]
    flags: tuple[str, ...] = ()
    elapsed_s: float = 0.0

    def to_json(self) -> bytes:
        """This decision as one JSON object."""
        return msgspec.json.encode(self)


def binding_of(call: ProposedCall, *, policy: str, model: str) -> str:
    """Hash that ties a verdict to the exact call, policy and model version.

    Arguments are compared as values where they parse as JSON, so that blanks and key order do not matter, and as text where they do not.

    Raises:
        ValueError: The arguments are no JSON: they hold themselves, are nested too deeply, or have keys that no object has.
    """
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, object_pairs_hook=_once)
        except (ValueError, RecursionError):
            arguments = {"$text": call.arguments}
    try:
        canonical = _canonical([call.name, arguments, policy, model])
    except TypeError as fault:
        raise ValueError(str(fault)) from None
    except RecursionError:
        written = {"$text": call.arguments} if isinstance(call.arguments, str) else None
        if written is None:
            raise ValueError("nested too deeply") from None
        canonical = _canonical([call.name, written, policy, model])  # parsing goes deeper than printing
    return hashlib.sha256(canonical.encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key given twice means whatever a parser makes of it, so such arguments are compared as text."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found

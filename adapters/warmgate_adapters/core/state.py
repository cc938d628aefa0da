"""What a conversation's checkpoint keeps of the gate: plain JSON under a versioned schema, merged where branches of a graph meet.

The JSON of a session is flat (``state["mounts"]``, ``state["worker"]``). Where several sessions write into one channel (subgraphs, parallel
branches), the one written last is on top and the rest are in ``others``, so that no two ever share anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

import msgspec

from warmgate.decision import Verdict, Word
from warmgate.errors import OptionError
from warmgate.foreign import mapping, text

SCHEMA = "warmgate.gate/1"

RECORDS = 64
"""Verdicts kept, newest, and all of the latest message however many calls it proposes: what a person approved is looked up when it runs. An
older one is judged again when it is wanted."""

REFUSALS = 4096
"""Refusals kept, newest."""

SESSIONS = 256
"""Sessions of one channel kept, newest."""

_V = TypeVar("_V")


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verdict as it is kept.

    Attributes:
        binding: Of the exact call, policy and model it was given for.
        verdict: The word.
        reason: One sentence.
        source: Who said so; see :class:`warmgate.decision.Verdict`. ``unavailable`` where the gate gave no decision.
        decision: Id of the decision it is from.
        rule: The rule that decided.
        policy: Name and version.
        shadow: To be enforced by nobody.
        approved: A person approved exactly this call.
        call: Id that the decision gave the call, where it is not the conversation's: two of one message may have one.
    """

    binding: str
    verdict: Word
    reason: str
    source: str
    decision: str = ""
    rule: str | None = None
    policy: str | None = None
    shadow: bool = False
    approved: bool = False
    call: str = ""

    @classmethod
    def of(cls, verdict: Verdict, binding: str, decision: str, call: str = "") -> Self:
        """A verdict of the gate's, under the call's own binding and the conversation's id of the call."""
        return cls(
            binding=binding,
            verdict=verdict.verdict,
            reason=verdict.reason,
            source=verdict.source,
            decision=decision,
            rule=verdict.rule,
            policy=verdict.policy,
            shadow=verdict.shadow,
            call="" if verdict.call == call else verdict.call,
        )


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's no to one exact call.

    Attributes:
        user_turn: The user turn it was said in; in this one the call is not put to anybody again.
        message: What the person said, if anything.
    """

    user_turn: int
    message: str = ""


class GateState(msgspec.Struct, frozen=True, kw_only=True):
    """One session's.

    Attributes:
        session: Its key.
        seq: Counts its updates.
        decision: Id of the latest decision.
        worker: Base URL its calls go to.
        headers: Headers its calls carry.
        mounts: Tools that may be called; ``None`` before the first decision.
        offered: Tools in the list that its requests carry.
        announce: Tools still to be announced by a message.
        announced: Tools announced so far.
        user_turn: The user turn of the latest mount.
        verdicts: Place of a call (see :func:`place`) → its verdict.
        refused: Call, whatever the policy → a person's no.
    """

    session: str
    seq: int = 0
    decision: str | None = None
    worker: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    mounts: tuple[str, ...] | None = None
    offered: tuple[str, ...] | None = None
    announce: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()
    user_turn: int | None = None
    verdicts: dict[str, Record] = msgspec.field(default_factory=dict[str, Record])
    refused: dict[str, Refusal] = msgspec.field(default_factory=dict[str, Refusal])

    def with_(self, **changes: Any) -> GateState:
        """A later one: fields replaced, ``verdicts`` and ``refused`` added to."""
        changes["verdicts"] = _recent({**self.verdicts, **changes.get("verdicts", {})})
        changes["refused"] = _newest({**self.refused, **changes.get("refused", {})}, REFUSALS)
        return msgspec.structs.replace(self, seq=self.seq + 1, **changes)

    def to_json(self) -> dict[str, Any]:
        """As it is kept: JSON of plain dicts, lists and texts."""
        return {"schema": SCHEMA, **msgspec.json.decode(msgspec.json.encode(self))}

    @classmethod
    def read(cls, value: Any, session: str) -> GateState:
        """A session's state out of what a checkpoint holds; a fresh one where it holds none.

        Raises:
            OptionError: It was written by a later version, or is not what this one writes. Nothing is guessed: it may hold a refusal.
        """
        kept = _sessions(value).get(session)
        return cls(session=session) if kept is None else _convert(kept)


def place(batch: str, call_id: str) -> str:
    """Where a verdict is kept: some models number the calls of every message alike, so the message is part of it."""
    return f"{batch}/{call_id}"


def merge(kept: Any, update: Any) -> dict[str, Any]:
    """Both: the reducer of a graph's ``gate`` channel.

    Of one session, verdicts and refusals add up, so that no branch can lift another's refusal; the rest is the later one's.
    """
    sessions = _sessions(kept)
    top: str | None = None
    for session, one in _sessions(update).items():
        before = sessions.pop(session, None)
        sessions[session] = one if before is None else _joined(_convert(before), _convert(one)).to_json()
        top = session
    if not sessions:
        return {}
    top = top or next(reversed(sessions))
    others = _newest({name: one for name, one in sessions.items() if name != top}, SESSIONS - 1)
    return {**sessions[top], **({"others": others} if others else {})}


def _joined(left: GateState, right: GateState) -> GateState:
    late, early = (right, left) if right.seq >= left.seq else (left, right)
    announce = late.announce
    if left.seq == right.seq:
        announce = tuple(dict.fromkeys((*left.announce, *right.announce)))
    return msgspec.structs.replace(
        late,
        announce=announce,
        announced=tuple(dict.fromkeys((*early.announced, *late.announced))),
        verdicts=_recent({**early.verdicts, **late.verdicts}),
        refused=_newest({**early.refused, **late.refused}, REFUSALS),
    )


def _sessions(value: Any) -> dict[str, dict[str, Any]]:
    """Session → its JSON, the one on top last."""
    if not value:
        return {}
    found = mapping(value)
    schema = text(found.get("schema"))
    if schema != SCHEMA:
        later = schema is not None and schema.startswith("warmgate.gate/")
        what = f"is of schema {schema!r}; this version reads {SCHEMA}" if later else "is not what warmgate writes"
        raise OptionError(what, where="the gate state", mend="resume with the version that wrote it, or start a new thread")
    sessions: dict[str, dict[str, Any]] = {}
    for name, one in mapping(found.get("others")).items():
        sessions[name] = dict(mapping(one))
    session = text(found.get("session"))
    if session is None:
        raise OptionError("names no session", where="the gate state", mend="start a new thread")
    sessions[session] = {key: one for key, one in found.items() if key != "others"}
    return sessions


def _convert(kept: Mapping[str, Any]) -> GateState:
    try:
        return msgspec.convert(kept, GateState)
    except msgspec.ValidationError as fault:
        raise OptionError(f"is not what warmgate writes ({fault})", where="the gate state", mend="start a new thread") from None


def _recent(verdicts: dict[str, Record]) -> dict[str, Record]:
    if len(verdicts) <= RECORDS:
        return verdicts
    batch = next(reversed(verdicts)).rpartition("/")[0]
    latest = sum(place.rpartition("/")[0] == batch for place in verdicts) if batch else 0  # without a name it is nobody's message
    return _newest(verdicts, max(RECORDS, latest))


def _newest(values: dict[str, _V], limit: int) -> dict[str, _V]:
    return values if len(values) <= limit else dict(list(values.items())[-limit:])

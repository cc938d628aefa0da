"""What is to be done with a proposed call: the closed set of three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from warmgate.errors import OptionError
from warmgate.foreign import mapping
from warmgate.turn import ProposedCall
from warmgate_adapters.core.state import Record

Why = Literal["unmounted", "unknown", "denied", "refused", "unattended", "changed"]
"""Why a call is not run: its tool is not mounted; there is no such tool; the policy denies it; a person refused it; it needs a person and
nobody is there; it is not the call that was judged."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Run it, after :meth:`~warmgate_adapters.core.Keeper.holds` said that it still is this call.

    Attributes:
        call: The call, exactly as it was judged.
        binding: Ties the verdict to it.
        record: The verdict.
    """

    call: ProposedCall
    binding: str
    record: Record


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not run it; the model gets ``text`` as the call's result.

    Attributes:
        call: The call.
        text: For the model: what did not happen, why, and what it can do.
        why: See :data:`Why`.
        record: The verdict, where there was one.
    """

    call: ProposedCall
    text: str
    why: Why
    record: Record | None = None

    @property
    def recoverable(self) -> bool:
        """Whether the same call may run later without a person: its tool may be mounted, or it is judged once it is proposed as it is."""
        return self.why in ("unmounted", "changed")


@dataclass(frozen=True, slots=True)
class Ask:
    """A person decides.

    Attributes:
        call: The call.
        binding: What an approval is tied to.
        record: The verdict.
    """

    call: ProposedCall
    binding: str
    record: Record

    @property
    def payload(self) -> dict[str, Any]:
        """What a person needs to see, as JSON."""
        return {
            "kind": "warmgate.ask/1",
            "call": {"id": self.call.id, "name": self.call.name, "arguments": _plain(self.call.arguments)},
            "reason": self.record.reason,
            "rule": self.record.rule,
            "source": self.record.source,
            "policy": self.record.policy,
            "decision": self.record.decision,
            "binding": self.binding,
        }


Outcome: TypeAlias = Execute | Reject | Ask


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: Literal["execute", "reject", "ask"]
    record: Record | None = None
    text: str = ""
    why: Why = "denied"


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as a checkpoint keeps it: all but the call, which the conversation has."""
    if isinstance(outcome, Reject):
        stored = _Stored(kind="reject", record=outcome.record, text=outcome.text, why=outcome.why)
    else:
        stored = _Stored(kind="execute" if isinstance(outcome, Execute) else "ask", record=outcome.record)
    return dict(mapping(msgspec.to_builtins(stored)))


def outcome_from_json(value: Any, call: ProposedCall) -> Outcome:
    """Back from what :func:`outcome_to_json` made.

    Raises:
        OptionError: It made no such thing.
    """
    try:
        stored = msgspec.convert(value, _Stored)
    except msgspec.ValidationError as fault:
        raise OptionError(f"is not what warmgate writes ({fault})", where="a stored outcome", mend="start a new thread") from None
    if stored.kind == "reject" or stored.record is None:
        return Reject(call, stored.text, stored.why, stored.record)
    made = Execute if stored.kind == "execute" else Ask
    return made(call, stored.record.binding, stored.record)


def _plain(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else dict(arguments)

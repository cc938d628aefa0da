"""What is to be done with a proposed call: the closed set of three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

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


def _plain(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else dict(arguments)

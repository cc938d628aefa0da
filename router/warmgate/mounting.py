"""The tools of a turn: decided once per user turn, kept inside a tool loop, and whatever fails keeps the current set."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from warmgate.answers import Answer
from warmgate.asking import Asker
from warmgate.decision import Mounts, Read
from warmgate.foreign import mapping, text
from warmgate.policy import MountPolicy
from warmgate.questions import Question
from warmgate.settings import Settings
from warmgate.turn import Turn

SESSIONS = 65_536
"""Sessions whose mounts are remembered. A forgotten session is mounted anew, as one that is taken up in the middle."""

Narrow = Callable[[Turn, "tuple[str, ...] | None", Mapping[str, Answer]], Mapping[str, Question]]


@dataclass(frozen=True, slots=True)
class Held:
    """What a session has.

    Attributes:
        user_turn: The user turn in which it was decided.
        tools: Names of the tools that may be called.
        offered: Names in the list that the agent's requests carry.
    """

    user_turn: int
    tools: tuple[str, ...]
    offered: tuple[str, ...]


class Memory:
    """The mounts of all sessions of one gate. Safe across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._shadows: OrderedDict[str, Held] = OrderedDict()

    def of(self, session: str, *, shadow: bool = False) -> Held | None:
        """What a session has mounted, or would have; ``None`` before its first mount."""
        return (self._shadows if shadow else self._held).get(session)

    def keep(self, session: str, held: Held, *, shadow: bool = False) -> None:
        """Remember a session's mount, or the one it would have."""
        kept = self._shadows if shadow else self._held
        with self._lock:
            kept[session] = held
            kept.move_to_end(session)
            while len(kept) > SESSIONS:
                kept.popitem(last=False)

    def forget(self, session: str) -> None:
        """Forget a session."""
        with self._lock:
            self._held.pop(session, None)
            self._shadows.pop(session, None)

    def offered(self, turn: Turn) -> Sequence[Mapping[str, Any]]:
        """The tools that the agent's prompt carries: what its list was last decided to be, in the turn's order."""
        held = self._held.get(turn.session)
        if held is None:
            return turn.tools
        offered = frozenset(held.offered)
        kept = [tool for tool in turn.tools if tool_name(tool) in offered]
        return turn.tools if len(kept) == len(turn.tools) else kept


@dataclass(frozen=True, slots=True)
class Mounter:
    """The mounts of one turn.

    Attributes:
        settings: The gate's.
        policy: Decides; without one the current set is kept.
        memory: What sessions have.
        turn: The turn.
        asker: Asks the policy's questions.
    """

    settings: Settings
    policy: MountPolicy | None
    memory: Memory
    turn: Turn
    asker: Asker

    async def mount(self, *, widen: bool) -> Mounts:
        """The tools. In shadow mode all of the turn's, whatever would be mounted: the agent keeps what it has.

        Args:
            widen: Whether answers may add any; not where messages forged markup.
        """
        names = tuple(map(tool_name, self.turn.tools))
        shadow = self.settings.mounts_mode == "shadow" and self.policy is not None and bool(names)
        mounts = await self._decided(names, widen=widen, shadow=shadow)
        if not shadow:
            return mounts
        reason = f"shadow: would be {mounts.reason}"
        return Mounts(tools=names, strategy=mounts.strategy, changed=False, reason=reason, shadow=True, would=mounts.tools)

    async def _decided(self, names: tuple[str, ...], *, widen: bool, shadow: bool) -> Mounts:
        policy, turn = self.policy, self.turn
        held = self.memory.of(turn.session, shadow=shadow)
        current = names if held is None else _among(names, held.tools)
        offered = None if held is None or held.offered == held.tools else _among(names, held.offered)
        if policy is None or not names:
            return self._kept(current, offered, "no mount policy: the current set is kept")
        try:
            self._restore(policy, held)
            if held is not None and held.user_turn == turn.user_turns and not self._again(policy, current):
                return self._kept(current, offered, "decided once per user turn: kept inside the tool loop")
            mounted = None if held is None else current
            answers = await self._answers(policy, mounted)
            mounts = policy.settle(turn, mounted, answers, widen=widen)
        except Exception as fault:  # noqa: BLE001 -- a policy is foreign code; mounting fails open to the current set
            self.asker.reasons.append(f"the mount policy failed ({fault}): the current set is kept")
            return self._kept(current, offered, "the mount policy failed: the current set is kept")
        self.memory.keep(turn.session, Held(turn.user_turns, mounts.tools, _list(mounts)), shadow=shadow)
        return mounts

    def _kept(self, tools: tuple[str, ...], offered: tuple[str, ...] | None, reason: str) -> Mounts:
        return Mounts(tools=tools, strategy="keep", changed=False, reason=reason, offered=offered)

    def _restore(self, policy: MountPolicy, held: Held | None) -> None:
        """Tell a policy that was restarted, or whose session went back to an older checkpoint, what the session has."""
        restore = getattr(policy, "restore", None)
        if restore is None or held is None:
            return
        listed = frozenset(held.offered)
        announced = tuple(name for name in held.tools if name not in listed)
        restore(self.turn.session, offered=held.offered, announced=announced, mounted=held.tools)

    def _again(self, policy: MountPolicy, mounted: tuple[str, ...]) -> bool:
        again = getattr(policy, "wants_again", None)
        return bool(again is not None and again(self.turn, mounted))

    async def _answers(self, policy: MountPolicy, mounted: tuple[str, ...] | None) -> Mapping[str, Answer]:
        turn = self.turn
        questions = policy.questions(turn, mounted)
        if not questions:
            return {}
        first = getattr(policy, "first_mount", "all")
        bare = mounted is None and (first(turn) if callable(first) else first) == "bare"
        tools = () if bare else self.memory.offered(turn)
        asked_before = len(self.asker.reads)
        answers = (await self.asker.ask(questions, tools)).answers
        narrow = cast("Narrow | None", getattr(policy, "narrow", None))
        if narrow is not None and answers and (more := narrow(turn, mounted, answers)):
            answers = {**answers, **(await self.asker.ask(more, tools)).answers}
        self._measure(policy, self.asker.reads[asked_before:])
        return answers

    def _measure(self, policy: MountPolicy, reads: Sequence[Read]) -> None:
        """Tell a policy that wants to know how fast the worker computes, as the ledger has it: measured tokens alone."""
        prefilled = getattr(policy, "prefilled", None)
        if prefilled is None or self.asker.sidecar:
            return
        for read in reads:
            found = read.ledger
            if found is None or read.outcome != "answered" or "predicted" in (found.prompt_basis, found.survived_basis):
                continue
            if found.prompt_tokens is not None and found.survived is not None:
                prefilled(found.prompt_tokens - found.survived, read.elapsed_s)


def _among(names: tuple[str, ...], held: tuple[str, ...]) -> tuple[str, ...]:
    kept = frozenset(held)
    return tuple(name for name in names if name in kept)


def _list(mounts: Mounts) -> tuple[str, ...]:
    """The list that requests carry. An empty one is a list, too."""
    return mounts.tools if mounts.offered is None else mounts.offered


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name of a tool schema; empty where it has none."""
    function = tool.get("function")
    if type(function) is dict and type(name := cast("dict[str, Any]", function).get("name")) is str and name:
        return name  # asked of each of hundreds of tools, several times a turn
    return text(mapping(tool.get("function")).get("name")) or text(tool.get("name")) or ""

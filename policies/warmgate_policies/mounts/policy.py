"""The mount policy the gate loads: which tools a turn gets, held by default, priced where they change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from warmgate.answers import Answer
from warmgate.decision import Mounts
from warmgate.mounting import tool_name
from warmgate.questions import Choice, Question
from warmgate.turn import Turn
from warmgate_policies.mounts import asking, history
from warmgate_policies.mounts.catalogue import BYTES_PER_TOKEN, Catalogue, Toolset
from warmgate_policies.mounts.options import MountOptions
from warmgate_policies.mounts.plan import Held, Wants, first, later
from warmgate_policies.mounts.price import TurnsAhead

SESSIONS = 65_536
"""Sessions whose lists are remembered. A forgotten one is taken up with what the gate says it has mounted."""

LISTS = 64
"""Different first lists remembered as warm: their tools block was prefilled lately and may still be cached."""


_V = TypeVar("_V")


class ToolMounts:
    """Mounts tools by :class:`~warmgate_policies.mounts.options.MountOptions`.

    Args:
        options: What the operator set.
    """

    name = "mounts"
    version = "1"

    def __init__(self, options: MountOptions | None = None) -> None:
        self.options = options or MountOptions()
        self.turns = TurnsAhead(self.options.lengths)
        self._held: OrderedDict[bytes, Held] = OrderedDict()
        self._asked: OrderedDict[bytes, dict[str, Question]] = OrderedDict()
        self._warm: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._catalogues: OrderedDict[tuple[str, ...], tuple[Sequence[Mapping[str, Any]], Catalogue]] = OrderedDict()

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        """The first step's questions; none where the set holds anyway."""
        key = _key(turn.session)
        self._asked.pop(key, None)
        catalogue = self.catalogue(turn)
        doubtful = self._doubtful(turn, catalogue, mounted)
        context = "\n".join(history.said(m) for m in turn.messages[-max(1, self.options.recent) :])
        asked = asking.questions(doubtful, limit=self.options.questions, options=self.options.options, context=context)
        if asked:
            self._remember(self._asked, key, dict(asked))
        return asked

    def narrow(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer]) -> Mapping[str, Question]:
        """The second step's questions, where the first was a choice among many; the budget of both is one."""
        key = _key(turn.session)
        asked = self._asked.get(key)
        if not asked or not any(isinstance(question, Choice) for question in asked.values()):
            return {}
        doubtful = self._doubtful(turn, self.catalogue(turn), mounted)
        more = asking.narrowed(doubtful, answers, limit=self.options.questions - len(asked))
        asked.update(more)
        return more

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        """The set, its strategy and the arithmetic behind it. Without answers the current set holds."""
        key = _key(turn.session)
        catalogue = self.catalogue(turn)
        asked = self._asked.pop(key, {})
        held = self._held.get(key)
        probable = asking.wanted(list(catalogue.toolsets.values()), asked, answers)
        if mounted is None:
            if probable:  # what was asked about and not answered must not make the set smaller
                probable = dict.fromkeys(asking.named(list(catalogue.toolsets.values()), asked), 1.0) | probable
            wants = Wants(probable if widen else {}, threshold=self.options.threshold)
            chosen = catalogue.expand(wants.names({}))
            held, mounts = first(catalogue, wants, self.options, turns=self.turns.after(0), warm=chosen in self._warm, asked=bool(asked))
            self._warm[held.offered] = None
            self._warm.move_to_end(held.offered)
            while len(self._warm) > LISTS:
                self._warm.popitem(last=False)
        else:
            held = held or Held(offered=mounted, mounted=mounted)
            in_vain = self._in_vain(turn, catalogue, held) if widen else ()
            for name in in_vain:
                if (toolset := catalogue.toolset_of(name)) is not None:
                    held.asked[toolset] = held.asked.get(toolset, 0) + 1
            recent = tuple(n for n in history.called(turn.messages[-self.options.recent :]) if n in held.mounted) if probable else ()
            wants = Wants(probable if widen else {}, (*in_vain, *recent), self.options.threshold)
            conversation = _tokens(turn.messages) if self.options.strategy == "remount" and probable else 0
            held, mounts = later(catalogue, held, wants, self.options, turns=self.turns.after(held.calls), conversation=conversation)
        held.calls += 1
        self._remember(self._held, key, held)
        return mounts

    def wants_again(self, turn: Turn, mounted: tuple[str, ...]) -> bool:
        """Whether the model called a tool it does not have, so that the set must be settled anew inside a tool loop."""
        held = self._held.get(_key(turn.session)) or Held(offered=mounted, mounted=mounted)
        return bool(self._in_vain(turn, self.catalogue(turn), held))

    def ended(self, session: str) -> None:
        """A session is over: its length sharpens the outlook of the others, its lists are dropped."""
        key = _key(session)
        held = self._held.pop(key, None)
        self._asked.pop(key, None)
        if held is not None:
            self.turns.ended(held.calls)

    def catalogue(self, turn: Turn) -> Catalogue:
        """The turn's tools, grouped; made once for each list of tools."""
        names = tuple(tool_name(tool) for tool in turn.tools)
        known = self._catalogues.get(names)
        if known is not None and (known[0] is turn.tools or list(known[0]) == list(turn.tools)):
            return known[1]
        options = self.options
        made = Catalogue(turn.tools, groups=options.groups, descriptions=options.descriptions, always=options.always, needs=options.needs)
        self._catalogues[names] = (turn.tools, made)
        while len(self._catalogues) > LISTS:
            self._catalogues.popitem(last=False)
        return made

    def _doubtful(self, turn: Turn, catalogue: Catalogue, mounted: tuple[str, ...] | None) -> list[Toolset]:
        """Toolsets worth a question now."""
        toolsets = list(catalogue.toolsets.values())
        if mounted is None:
            small = catalogue.tokens(catalogue.tools) < self.options.smallest
            return [] if small and self.options.strategy != "native" else toolsets
        if self.options.strategy == "freeze":
            return []
        if history.follows_up(history.last_user(turn.messages), list(catalogue.tools)):
            return []
        if self.options.strategy == "append":
            there = catalogue.mounted(mounted)
            return [t for t in toolsets if t.name not in there]
        return toolsets

    def _in_vain(self, turn: Turn, catalogue: Catalogue, held: Held) -> tuple[str, ...]:
        """Tools that the model called since the last user message and does not have."""
        called = history.called(history.since_last_user(turn.messages))
        return tuple(dict.fromkeys(n for n in called if n in catalogue.tools and n not in held.mounted))

    def _remember(self, store: OrderedDict[bytes, _V], key: bytes, value: _V) -> None:
        store[key] = value
        store.move_to_end(key)
        while len(store) > SESSIONS:
            store.popitem(last=False)


def from_settings(settings: Any) -> ToolMounts:
    """The policy under the name ``mounts`` of the entry-point group ``warmgate.policies``.

    Raises:
        OptionError: ``mount_options`` of the settings cannot be used.
    """
    return ToolMounts(MountOptions.of(dict(getattr(settings, "mount_options", None) or {})))


def _key(session: str) -> bytes:
    """Sessions are remembered by hash: a key may be a user's name."""
    return blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    try:
        return len(msgspec.json.encode(list(messages))) // BYTES_PER_TOKEN
    except (TypeError, ValueError, RecursionError):
        return sum(len(str(m)) for m in messages) // BYTES_PER_TOKEN

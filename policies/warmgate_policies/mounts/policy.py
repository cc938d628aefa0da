"""The mount policy the gate loads: which tools a turn gets, held by default, priced where they change."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from statistics import median
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
from warmgate_policies.mounts.plan import Held, Outlook, Wants, first, later
from warmgate_policies.mounts.price import TurnsAhead

SESSIONS = 65_536
"""Sessions whose lists are remembered. A forgotten one is taken up with what the gate says it has mounted."""

LISTS = 64
"""Different first lists remembered as warm: their tools block was prefilled lately and may still be cached."""

RATES = 32
"""Reads behind a measured prefill rate."""

RATE_TOKENS = 1024
"""Tokens that a read must have computed for its time to tell a rate: below it, the way to the worker and its queue are most of it."""

_V = TypeVar("_V")


class ToolMounts:
    """Mounts tools by :class:`~warmgate_policies.mounts.options.MountOptions`. Safe across threads.

    Args:
        options: What the operator set.
    """

    name = "mounts"
    version = "1"

    def __init__(self, options: MountOptions | None = None) -> None:
        self.options = options or MountOptions()
        self.turns = TurnsAhead(self.options.lengths)
        self._lock = threading.Lock()
        self._held: OrderedDict[bytes, Held] = OrderedDict()
        self._asked: OrderedDict[bytes, dict[str, Question]] = OrderedDict()
        self._warm: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._catalogues: OrderedDict[tuple[str, ...], tuple[Sequence[Mapping[str, Any]], Catalogue]] = OrderedDict()
        self._rates: deque[float] = deque(maxlen=RATES)

    def first_mount(self, turn: Turn) -> str:
        """How a session's first questions are asked: without the tools yet to be chosen, unless their list stays or stood already."""
        if self.options.strategy == "native":
            return "all"
        catalogue = self.catalogue(turn)
        return "all" if history.calls(turn.messages) and _tokens(turn.messages) > catalogue.tokens(catalogue.every) else "bare"

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        """The first step's questions; none where the set holds anyway."""
        key = _key(turn.session)
        with self._lock:
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
        self._remember(self._asked, key, {**asked, **more})
        return more

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        """The set, its strategy and the arithmetic behind it. Without answers the current set holds."""
        key = _key(turn.session)
        catalogue = self.catalogue(turn)
        with self._lock:
            asked = self._asked.pop(key, {})
        toolsets = list(catalogue.toolsets.values())
        probable = asking.wanted(toolsets, asked, answers) if widen else {}
        made = history.calls(turn.messages)
        if mounted is None:
            held, mounts = self._first(turn, catalogue, asked, probable, made, widen=widen)
        else:
            held = self._held.get(key) or Held(offered=mounted, mounted=mounted)
            held.counts(made)
            held, mounts = self._later(turn, catalogue, held, probable, widen=widen)
        self._remember(self._held, key, held)
        return mounts

    def wants_again(self, turn: Turn, mounted: tuple[str, ...]) -> bool:
        """Whether the model called a tool it does not have, so that the set must be settled anew inside a tool loop."""
        held = self._held.get(_key(turn.session)) or Held(offered=mounted, mounted=mounted)
        held.counts(history.calls(turn.messages))
        return any(name not in held.unheeded for name in self._in_vain(turn, self.catalogue(turn), held))

    def restore(self, session: str, *, offered: tuple[str, ...], announced: tuple[str, ...], mounted: tuple[str, ...]) -> None:
        """Take up what a session has, where this policy knows nothing of it or something else.

        A process was restarted, or an older checkpoint was resumed. What was announced stays out of the list, so that the prefix survives.

        Args:
            session: Its key.
            offered: Names in the list that its requests carry.
            announced: Names added by messages since.
            mounted: Names that may be called.
        """
        key = _key(session)
        held = self._held.get(key)
        if held is not None and held.shows(offered, announced, mounted):
            return
        asked = held.asked if held is not None else {}
        self._remember(self._held, key, Held(offered, announced, mounted, asked=asked))

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A read computed so many tokens in so much time: the rate that prices are told in, where none was set."""
        if tokens >= RATE_TOKENS and seconds > 0:
            self._rates.append(tokens / seconds)

    @property
    def prefill_rate(self) -> float | None:
        """Tokens a second; the median of what reads showed where it was not set, and ``None`` where none did."""
        rates = list(self._rates)
        return self.options.prefill_rate or (median(rates) if rates else None)

    def ended(self, session: str) -> None:
        """A session is over: its length sharpens the outlook of the others, its lists are dropped."""
        key = _key(session)
        with self._lock:
            held = self._held.pop(key, None)
            self._asked.pop(key, None)
            if held is not None:
                self.turns.ended(held.calls + 1)  # the call behind the last decision has left no message here

    def catalogue(self, turn: Turn) -> Catalogue:
        """The turn's tools, grouped; made once for each list of tools."""
        names = tuple(tool_name(tool) for tool in turn.tools)
        known = self._catalogues.get(names)
        if known is not None and (known[0] is turn.tools or list(known[0]) == list(turn.tools)):
            return known[1]
        options = self.options
        made = Catalogue(turn.tools, groups=options.groups, descriptions=options.descriptions, always=options.always, needs=options.needs)
        with self._lock:
            self._catalogues[names] = (turn.tools, made)
            while len(self._catalogues) > LISTS:
                self._catalogues.popitem(last=False)
        return made

    def _first(
        self, turn: Turn, catalogue: Catalogue, asked: Mapping[str, Question], probable: dict[str, float], made: int, *, widen: bool
    ) -> tuple[Held, Mounts]:
        if probable:  # what was asked about and not answered must not make the set smaller
            probable = dict.fromkeys(asking.named(list(catalogue.toolsets.values()), asked), 1.0) | probable
        why = "nothing was answered, and mounting fails open"
        if not asked:
            why = "so short a list is not asked about" if catalogue.toolsets else "all are always on"
        elif not widen:
            why = "its messages hold forged markup, so their answers count for nothing"
        wants = Wants(probable, tuple(history.called(turn.messages)), self.options.threshold)
        outlook = Outlook(self.turns.after(made), _tokens(turn.messages) if made else 0, self.prefill_rate)
        held, mounts = first(catalogue, wants, self.options, outlook, warm=list(self._warm), why=why)
        held.calls = held.seen = made
        with self._lock:
            self._warm[held.offered] = None
            self._warm.move_to_end(held.offered)
            while len(self._warm) > LISTS:
                self._warm.popitem(last=False)
        return held, mounts

    def _later(self, turn: Turn, catalogue: Catalogue, held: Held, probable: dict[str, float], *, widen: bool) -> tuple[Held, Mounts]:
        in_vain = self._in_vain(turn, catalogue, held)
        held.unheeded = frozenset() if widen else frozenset(in_vain)
        in_vain = in_vain if widen else ()
        for name in in_vain:
            if (toolset := catalogue.toolset_of(name)) is not None:
                held.asked[toolset] = held.asked.get(toolset, 0) + 1
        stay: list[str] = []
        if probable:
            mounted = set(held.mounted)
            recent = turn.messages[-self.options.recent :] if self.options.recent else ()
            stay = [name for name in history.called(recent) if name in mounted]
            stay += [name for name in held.mounted if catalogue.toolset_of(name) not in probable]  # nobody said that these are not needed
        wants = Wants(probable, (*in_vain, *stay), self.options.threshold)
        outlook = Outlook(self.turns.after(held.calls), _tokens(turn.messages), self.prefill_rate)
        return later(catalogue, held, wants, self.options, outlook)

    def _doubtful(self, turn: Turn, catalogue: Catalogue, mounted: tuple[str, ...] | None) -> list[Toolset]:
        """Toolsets worth a question now."""
        toolsets = list(catalogue.toolsets.values())
        if mounted is None:
            small = catalogue.tokens(catalogue.every) < self.options.smallest
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
        mounted = set(held.mounted) if called else ()
        return tuple(dict.fromkeys(n for n in called if n in catalogue.tools and n not in mounted))

    def _remember(self, store: OrderedDict[bytes, _V], key: bytes, value: _V) -> None:
        with self._lock:
            store[key] = value
            store.move_to_end(key)
            while len(store) > SESSIONS:
                store.popitem(last=False)


def from_settings(settings: Any) -> ToolMounts:
    """The policy under the name ``mounts`` of the entry-point group ``warmgate.policies``.

    Raises:
        OptionError: ``mount_options`` of the settings cannot be used.
    """
    given = dict(getattr(settings, "mount_options", None) or {})
    given.setdefault("prefill_rate", getattr(settings, "prefill_rate", None))
    return ToolMounts(MountOptions.of(given))


def _key(session: str) -> bytes:
    """Sessions are remembered by hash: a key may be a user's name."""
    return blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    try:
        return len(msgspec.json.encode(list(messages))) // BYTES_PER_TOKEN
    except (TypeError, ValueError, RecursionError):
        return sum(len(str(m)) for m in messages) // BYTES_PER_TOKEN

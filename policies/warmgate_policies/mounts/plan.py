"""From what is wanted to what is mounted: the four strategies, and what each does to the prefix.

A session has three lists. *Offered* is the list that its requests carry at the front of the prompt. *Announced* tools were added later
by a message at the end. *Mounted* tools, a part of both, may be called. Only a change of the offered list breaks the prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from warmgate.decision import Mounts, Strategy
from warmgate_policies.mounts.catalogue import Catalogue
from warmgate_policies.mounts.options import MountOptions
from warmgate_policies.mounts.price import Price, took


@dataclass(slots=True)
class Held:
    """What one session has. Names stay in it while the application is without their tools: a server that comes back finds its place.

    Attributes:
        offered: Names in the list its requests carry, in the order offered.
        announced: Names added by messages since.
        mounted: Names that may be called.
        calls: Calls of the agent so far, those forgotten by a compaction included.
        seen: Calls among the messages of the latest turn.
        asked: Toolset → how often the model called one of its tools in vain.
        known: Tools that the application had at the latest mount; ``None`` where that is not known.
        unheeded: Tools called in vain in a turn whose messages could not be trusted.
    """

    offered: tuple[str, ...]
    announced: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    calls: int = 0
    seen: int = 0
    asked: dict[str, int] = field(default_factory=dict[str, int])
    known: frozenset[str] | None = None
    unheeded: frozenset[str] = frozenset()

    def counts(self, calls: int) -> None:
        """Take in how many calls the messages of a turn show. Fewer than before: older ones were cut away, and this is one more."""
        self.calls += calls - self.seen if calls >= self.seen else 1
        self.seen = calls

    def shows(self, offered: Iterable[str], announced: Iterable[str], mounted: Iterable[str]) -> bool:
        """Whether these are the lists that it gave when it last decided."""

        def there(names: Iterable[str]) -> set[str]:
            return {name for name in names if self.known is None or name in self.known}

        return (there(self.offered), there(self.announced), there(self.mounted)) == (set(offered), set(announced), set(mounted))


@dataclass(frozen=True, slots=True)
class Wants:
    """What a turn wants.

    Attributes:
        toolsets: Toolset → probability that it is needed now; those nobody answered about are missing.
        tools: Single tools that the model called in vain, or that were called lately and so stay.
        threshold: Probability from which a toolset is mounted.
    """

    toolsets: Mapping[str, float]
    tools: tuple[str, ...] = ()
    threshold: float = 0.3

    def names(self, asked: Mapping[str, int]) -> list[str]:
        """Toolsets over the threshold; half as much suffices each time the model called for one in vain."""
        return [name for name, p in self.toolsets.items() if p >= self.threshold * 0.5 ** asked.get(name, 0)]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What prices are made of.

    Attributes:
        turns: Calls still expected.
        conversation: Tokens behind the tools block, which a changed list computes again; 0 where nothing of them is cached yet.
        prefill_rate: Tokens a second; ``None`` where it is not known.
    """

    turns: float
    conversation: int = 0
    prefill_rate: float | None = None


def first(
    catalogue: Catalogue,
    wants: Wants,
    options: MountOptions,
    outlook: Outlook,
    *,
    warm: Iterable[tuple[str, ...]] = (),
    why: str = "nothing was answered, and mounting fails open",
) -> tuple[Held, Mounts]:
    """The first mount of a session: the list is free to choose, but for its cold block and a conversation that is there already.

    Args:
        catalogue: All tools.
        wants: What was answered; nothing answered mounts all, since mounting fails open.
        options: See :class:`MountOptions`.
        outlook: What prices are made of.
        warm: Lists offered lately, whose block may still be cached.
        why: What to say of a turn that nothing was answered in.
    """
    every = catalogue.every
    odd = f"; {catalogue.strange}" if catalogue.strange else ""
    wanted = wants.names({})
    chosen = catalogue.expand(wanted, wants.tools) if wants.toolsets else every
    if options.strategy == "native":
        said = f": {why}" if not wants.toolsets else ""
        held = Held(offered=every, mounted=chosen)
        reason = f"{len(chosen)} of {len(every)} tools allowed; the list stays whole{said}{odd}"
        return held, _mounts(catalogue, held, "native", chosen != every, reason)
    if not wants.toolsets:
        return _all(catalogue, f"all {len(every)} tools: {why}{odd}" if why else f"all {len(every)} tools{odd}")
    whole, part = catalogue.tokens(every), catalogue.tokens(chosen)
    used = f"{whole + outlook.conversation:,} of {options.context_tokens or 0:,} context tokens would be used"
    tight = _tight(options, whole + outlook.conversation)
    if (
        not wanted and not tight and (options.strategy == "freeze" or not chosen)
    ):  # else an agent that was greeted would be left without tools
        best = max(wants.toolsets.values())
        return _all(catalogue, f"all {len(every)} tools: none is needed yet (the likeliest toolset has {best:.2f}){odd}")
    if len(chosen) == len(every):
        return _all(catalogue, f"all {len(every)} tools: each may be needed{odd}")
    held_lists = set(warm)
    refill = 0 if chosen in held_lists else part
    if every not in held_lists and not outlook.conversation:
        refill -= whole  # it would have to be computed, too
    price = _price(max(0, refill) + outlook.conversation, whole - part, outlook.turns, options)
    if not price.pays and not tight:
        return _all(catalogue, f"all {len(every)} tools: a list of {len(chosen)} would not pay, {price.says(outlook.prefill_rate)}{odd}")
    held = Held(offered=chosen, mounted=chosen)
    saved = (
        f"{used}, so {whole - part:,} are freed" if not price.pays else f"{whole - part:,} of {whole:,} schema tokens fewer at every call"
    )
    return held, _mounts(
        catalogue, held, options.strategy, True, f"{len(chosen)} of {len(every)} tools at the session's start: {saved}{odd}"
    )


def later(catalogue: Catalogue, held: Held, wants: Wants, options: MountOptions, outlook: Outlook) -> tuple[Held, Mounts]:
    """A later mount: hold, announce, or change the list where that pays.

    Args:
        catalogue: All tools, as this turn offers them.
        held: What the session has.
        wants: What was answered, and what the model called in vain.
        options: See :class:`MountOptions`.
        outlook: What prices are made of.
    """
    needed = catalogue.expand(wants.names(held.asked), (*wants.tools, *_new(catalogue, held)))
    if options.strategy == "native":
        after = replace(held, offered=_with(held.offered, catalogue.every), mounted=_with(held.mounted, needed))
        mounted, every = len(_there(catalogue, after.mounted)), len(catalogue.tools)
        changed = after.mounted != held.mounted
        return after, _mounts(catalogue, after, "native", changed, f"{mounted} of {every} tools allowed; the list stays whole")
    if options.strategy == "remount" and wants.toolsets:
        return _remount(catalogue, held, needed, options, outlook)
    return _announce(catalogue, held, needed, options, outlook)


def _announce(catalogue: Catalogue, held: Held, needed: tuple[str, ...], options: MountOptions, outlook: Outlook) -> tuple[Held, Mounts]:
    carried = {*held.offered, *held.announced}
    missing = tuple(name for name in needed if name not in carried)
    after = replace(held, announced=held.announced + missing, mounted=_with(held.mounted, needed))
    used = catalogue.tokens(_there(catalogue, (*after.offered, *after.announced))) + outlook.conversation
    tight = f"; {used:,} of {options.context_tokens:,} context tokens are used" if _tight(options, used) else ""
    if missing:
        cost = catalogue.tokens(missing)
        reason = f"{_named(missing)} announced at the end of the conversation: {cost:,} tokens, and the prefix stays whole{tight}"
        return after, _mounts(catalogue, after, "append", True, reason, new=missing)
    list_tokens = catalogue.tokens(_there(catalogue, held.offered))
    again = list_tokens + outlook.conversation
    count = len(_there(catalogue, after.mounted))
    reason = (
        f"kept, because another list would compute up to {again:,} tokens again{took(again, outlook.prefill_rate)}: "
        f"{list_tokens:,} of schemas, {outlook.conversation:,} of conversation; {count} tools serve on{tight}"
    )
    return after, _mounts(catalogue, after, options.strategy, after.mounted != held.mounted, reason)


def _remount(catalogue: Catalogue, held: Held, needed: tuple[str, ...], options: MountOptions, outlook: Outlook) -> tuple[Held, Mounts]:
    offered, announced = _there(catalogue, held.offered), _there(catalogue, held.announced)
    if set(needed) == set(offered) and not announced:
        after = replace(held, mounted=needed)
        return after, _mounts(catalogue, after, "keep", set(needed) != set(held.mounted), f"kept: the same {len(needed)} tools are needed")
    carried = catalogue.tokens(offered) + catalogue.tokens(set(announced) - set(offered))
    price = _price(catalogue.tokens(needed) + outlook.conversation, carried - catalogue.tokens(needed), outlook.turns, options)
    tight = _tight(options, outlook.conversation + carried)
    if price.pays or (tight and price.saved_a_turn > 0):
        why = price.says(outlook.prefill_rate)
        if not price.pays:
            used = f"{outlook.conversation + carried:,} of {options.context_tokens or 0:,} context tokens are used"
            why = f"{used}, so {price.saved_a_turn:,} are freed"
        after = replace(held, offered=needed, announced=(), mounted=needed)
        return after, _mounts(catalogue, after, "remount", True, f"list changed to {len(needed)} tools: {why}")
    after, mounts = _announce(catalogue, held, needed, options, outlook)
    if mounts.announce:
        return after, mounts
    return after, _mounts(catalogue, after, "keep", mounts.changed, f"kept, because {price.says(outlook.prefill_rate)}")


def _new(catalogue: Catalogue, held: Held) -> tuple[str, ...]:
    """Tools that the application did not have when it was decided what to leave out, and that nothing left out would have covered."""
    known = held.known
    if known is None or known >= catalogue.names:
        return ()
    fresh = [name for name in catalogue.tools if name not in known]
    mounted = set(held.mounted)
    if known <= mounted:  # nothing was left out
        return tuple(fresh)
    whole = {t.name for t in catalogue.toolsets.values() if (before := known.intersection(t.tools)) and before <= mounted}
    return tuple(name for name in fresh if catalogue.toolset_of(name) in whole)


def _tight(options: MountOptions, used: int) -> bool:
    return options.context_tokens is not None and used > options.pressure * options.context_tokens


def _there(catalogue: Catalogue, names: Iterable[str]) -> tuple[str, ...]:
    """Tools that the application no longer has can be neither offered nor called."""
    given = tuple(names)
    return given if catalogue.names.issuperset(given) else tuple(name for name in given if name in catalogue.names)


def _with(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    held = set(names)
    return names + tuple(new) if (new := [name for name in more if name not in held]) else names  # one tuple serves many sessions


def _price(refill: int, saved: int, turns: float, options: MountOptions) -> Price:
    return Price(refill, saved, turns, options.cached_cost, options.hysteresis)


def _all(catalogue: Catalogue, reason: str) -> tuple[Held, Mounts]:
    every = catalogue.every
    held = Held(offered=every, mounted=every)
    return held, _mounts(catalogue, held, "all", False, reason)


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _mounts(catalogue: Catalogue, held: Held, strategy: Strategy, changed: bool, reason: str, *, new: tuple[str, ...] = ()) -> Mounts:
    held.known = catalogue.names
    mounted = set(held.mounted)
    return Mounts(
        tools=catalogue.every if mounted >= catalogue.names else tuple(name for name in catalogue.every if name in mounted),
        strategy=strategy,
        changed=changed,
        reason=reason,
        offered=_there(catalogue, held.offered),
        announce=new,
    )

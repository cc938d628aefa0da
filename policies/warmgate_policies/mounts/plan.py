"""From what is wanted to what is mounted: the four strategies, and what each does to the prefix.

A session has three lists. *Offered* is the list that its requests carry at the front of the prompt. *Announced* tools were added later
by a message at the end. *Mounted* tools, a part of both, may be called. Only a change of the offered list breaks the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warmgate.decision import Mounts, Strategy
from warmgate_policies.mounts.catalogue import Catalogue
from warmgate_policies.mounts.options import MountOptions
from warmgate_policies.mounts.price import Price


@dataclass(slots=True)
class Held:
    """What one session has.

    Attributes:
        offered: Names in the list its requests carry, in the order offered.
        announced: Names added by messages since.
        mounted: Names that may be called.
        calls: Decisions so far, as a measure of the session's length.
        asked: Toolset → how often the model called one of its tools in vain.
    """

    offered: tuple[str, ...]
    announced: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    calls: int = 0
    asked: dict[str, int] = field(default_factory=dict[str, int])


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


def first(
    catalogue: Catalogue, wants: Wants, options: MountOptions, *, turns: float, warm: bool, asked: bool = True
) -> tuple[Held, Mounts]:
    """The first mount of a session: the list is free to choose, but for its cold block.

    Args:
        catalogue: All tools.
        wants: What was answered; nothing answered mounts all, since mounting fails open.
        options: See :class:`MountOptions`.
        turns: Calls expected.
        warm: Whether a list like the chosen one was offered before, so that its block may still be cached.
        asked: Whether anything was asked; not about a list so short that leaving tools out saves too little.
    """
    every = tuple(catalogue.tools)
    chosen = catalogue.expand(wants.names({}), wants.tools) if wants.toolsets else every
    if options.strategy == "native":
        held = Held(offered=every, mounted=chosen)
        return held, _mounts(held, "native", chosen != every, f"{len(chosen)} of {len(every)} tools allowed; the list stays whole")
    if len(chosen) < len(every):
        price = _price(0 if warm else catalogue.tokens(chosen), catalogue.tokens(every) - catalogue.tokens(chosen), turns, options)
        if not price.pays:
            reason = f"all {len(every)} tools: a list of {len(chosen)} would not pay, {price.says(options.prefill_rate)}"
            return _all(every, reason)
        held = Held(offered=chosen, mounted=chosen)
        saved = f"{price.saved_a_turn:,} schema tokens fewer a turn"
        return held, _mounts(held, options.strategy, True, f"{len(chosen)} of {len(every)} tools at the session's start: {saved}")
    why = "" if wants.toolsets else ": nothing was answered, and mounting fails open" if asked else ": so short a list is not asked about"
    return _all(every, f"all {len(every)} tools{why}")


def later(catalogue: Catalogue, held: Held, wants: Wants, options: MountOptions, *, turns: float, conversation: int) -> tuple[Held, Mounts]:
    """A later mount: hold, announce, or change the list where that pays.

    Args:
        catalogue: All tools, as this turn offers them.
        held: What the session has.
        wants: What was answered, and what the model called in vain.
        options: See :class:`MountOptions`.
        turns: Calls still expected.
        conversation: Tokens behind the tools block, which a changed list computes again.
    """
    held = _still_there(catalogue, held)
    needed = catalogue.expand(wants.names(held.asked), wants.tools)
    missing = tuple(name for name in needed if name not in held.offered and name not in held.announced)
    if options.strategy == "native":
        mounted = tuple(n for n in catalogue.tools if n in held.mounted or n in needed)
        changed = mounted != held.mounted
        after = Held(held.offered, held.announced, mounted, held.calls, held.asked)
        return after, _mounts(after, "native", changed, f"{len(mounted)} of {len(held.offered)} tools allowed; the list stays whole")
    if options.strategy == "remount" and wants.toolsets:
        return _remount(catalogue, held, needed, missing, options, turns, conversation)
    return _announce(catalogue, held, needed, missing, options)


def _announce(
    catalogue: Catalogue, held: Held, needed: tuple[str, ...], missing: tuple[str, ...], options: MountOptions
) -> tuple[Held, Mounts]:
    mounted = tuple(n for n in catalogue.tools if n in held.mounted or n in needed)
    if not missing:
        after = Held(held.offered, held.announced, mounted, held.calls, held.asked)
        return after, _mounts(after, options.strategy, mounted != held.mounted, f"kept: {len(mounted)} tools serve this turn too")
    after = Held(held.offered, held.announced + missing, mounted, held.calls, held.asked)
    cost = catalogue.tokens(missing)
    reason = f"{_named(missing)} announced at the end of the conversation: {cost:,} tokens, and the prefix stays whole"
    return after, _mounts(after, "append", True, reason, new=missing)


def _remount(
    catalogue: Catalogue,
    held: Held,
    needed: tuple[str, ...],
    missing: tuple[str, ...],
    options: MountOptions,
    turns: float,
    conversation: int,
) -> tuple[Held, Mounts]:
    if needed == held.offered and not held.announced:
        after = Held(held.offered, (), needed, held.calls, held.asked)
        return after, _mounts(after, "keep", needed != held.mounted, "kept: the same tools are needed")
    carried = catalogue.tokens(held.offered) + catalogue.tokens(held.announced)
    price = _price(catalogue.tokens(needed) + conversation, carried - catalogue.tokens(needed), turns, options)
    tight = options.context_tokens is not None and conversation + carried > options.pressure * options.context_tokens
    if price.pays or (tight and price.saved_a_turn > 0):
        why = price.says(options.prefill_rate)
        if not price.pays:
            assert options.context_tokens is not None
            why = f"{conversation + carried:,} of {options.context_tokens:,} context tokens are used, so {price.saved_a_turn:,} are freed"
        after = Held(needed, (), needed, held.calls, held.asked)
        return after, _mounts(after, "remount", True, f"list changed to {len(needed)} tools: {why}")
    after, mounts = _announce(catalogue, held, needed, missing, options)
    if missing:
        return after, mounts
    return after, _mounts(after, "keep", mounts.changed, f"kept, because {price.says(options.prefill_rate)}")


def _still_there(catalogue: Catalogue, held: Held) -> Held:
    """Tools that the application no longer has cannot be called; what a request carried before is not ours to keep."""

    def there(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(n for n in names if n in catalogue.tools)

    return Held(there(held.offered), there(held.announced), there(held.mounted), held.calls, held.asked)


def _price(refill: int, saved: int, turns: float, options: MountOptions) -> Price:
    return Price(refill, saved, turns, options.cached_cost, options.hysteresis)


def _all(every: tuple[str, ...], reason: str) -> tuple[Held, Mounts]:
    held = Held(offered=every, mounted=every)
    return held, _mounts(held, "all", False, reason)


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _mounts(held: Held, strategy: Strategy, changed: bool, reason: str, *, new: tuple[str, ...] = ()) -> Mounts:
    return Mounts(
        tools=held.mounted,
        strategy=strategy,
        changed=changed,
        reason=reason,
        offered=held.offered,
        announce=new,
    )

"""What a change of the mounted tools costs and saves, in tokens and milliseconds.

Chat templates print tools at the front, so a changed list sends the whole conversation behind it through the engine again, once. A
schema that is held costs a little at every turn: it sits in the context window and is attended to, although its keys are cached.
"""

from __future__ import annotations

from dataclasses import dataclass

CACHED_COST = 0.1
"""What one cached prompt token costs beside a computed one. Providers' price lists say a tenth; your own fleet may differ."""

HYSTERESIS = 1.5
"""How many times its price a remount must save. Below it two lists whose worth is close would take turns."""

EXPECTED_TURNS = 8.0
"""Remaining calls of a session of which nothing is known yet."""


@dataclass(frozen=True, slots=True)
class Price:
    """A remount, weighed.

    Attributes:
        refill: Tokens that must be computed this turn because of it: the new tools block where it is cold, the conversation behind it.
        saved_a_turn: Schema tokens that each later call no longer carries; negative where the list grows.
        turns: Calls still expected.
        cached_cost: See :data:`CACHED_COST`.
        hysteresis: See :data:`HYSTERESIS`.
    """

    refill: int
    saved_a_turn: int
    turns: float
    cached_cost: float = CACHED_COST
    hysteresis: float = HYSTERESIS

    @property
    def saving(self) -> float:
        """Tokens saved over the remaining turns, in computed tokens."""
        return self.saved_a_turn * self.turns * self.cached_cost

    @property
    def pays(self) -> bool:
        """Whether the saving is worth the price, with hysteresis."""
        return self.saving > self.refill * self.hysteresis

    def says(self, prefill_rate: float | None = None) -> str:
        """The arithmetic in words; with milliseconds where a prefill rate (tokens a second) is known."""
        cost = f"it would compute {self.refill:,} tokens{took(self.refill, prefill_rate)}"
        if self.saved_a_turn <= 0:
            return f"{cost} and save nothing: {-self.saved_a_turn:,} schema tokens more at every call"
        worth = f"{self.saved_a_turn:,} schema tokens × {self.turns:.1f} calls × {self.cached_cost:g} = {self.saving:,.0f}"
        short = f", and what pays saves {self.hysteresis:g} times its price" if not self.pays and self.saving > self.refill else ""
        return f"{cost} to save {worth}{short}"


def took(tokens: int, prefill_rate: float | None) -> str:
    """How long some tokens take to compute, in brackets; nothing where no rate is known."""
    return f" ({tokens / prefill_rate * 1000:,.0f} ms)" if prefill_rate else ""


class TurnsAhead:
    """How many more calls a session will make, from the lengths of those that ended.

    The mean residual life of the recorded lengths: of the sessions that got as far as this one, how much longer did they go on.

    Args:
        lengths: Calls of sessions that ended, for example from replayed traces.
        keep: How many lengths are remembered; older ones give way.
    """

    def __init__(self, lengths: tuple[int, ...] = (), keep: int = 1024) -> None:
        self._keep = keep
        self._lengths = sorted(n for n in lengths if n > 0)[-keep:]
        self._order = list(self._lengths)

    def ended(self, calls: int) -> None:
        """A session ended after ``calls`` calls."""
        if calls <= 0:
            return
        self._order.append(calls)
        if len(self._order) > self._keep:
            self._order.pop(0)
        self._lengths = sorted(self._order)

    def after(self, calls: int) -> float:
        """Expected further calls of a session that has made ``calls``.

        Where none that ended got so far, a session is taken to be half through (Lindy's rule): as many again as it has made.
        """
        longer = [n - calls for n in self._lengths if n > calls]
        if len(longer) >= 3:
            return sum(longer) / len(longer)
        return max(EXPECTED_TURNS if calls < EXPECTED_TURNS else 1.0, float(calls)) if not longer else max(1.0, sum(longer) / len(longer))

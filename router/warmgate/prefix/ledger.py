"""The ledger: L, R and S of each call, summed, with every figure's basis. Definitions: docs/definitions.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Basis = Literal["measured", "predicted"]


@dataclass(slots=True)
class Entry:
    """One call or read. Counts are tokens; ``None`` means the source cannot know.

    Attributes:
        prompt_tokens: |P|.
        prompt_basis: ``measured`` where an engine or provider counted them.
        shared: L.
        reusable: R.
        survived: S, never capped.
        survived_basis: ``measured`` (usage, counters, events) or ``predicted`` (a simulated or shadow cache).
        cause: Why R − S was lost; used only when something was.
        reported_cached: What the source itself reported as cached.
        divergence: Tokens of the session's previous prompt given up by a divergence.
        namespace_change: Tokens shared with another namespace only.
        intra_call: Tokens shared with siblings of the same call, which L excludes.
    """

    prompt_tokens: int | None
    prompt_basis: Basis = "predicted"
    shared: int | None = None
    reusable: int | None = None
    survived: int | None = None
    survived_basis: Basis = "predicted"
    cause: str | None = None
    reported_cached: int | None = None
    divergence: int = 0
    namespace_change: int = 0
    intra_call: int = 0

    @property
    def lost(self) -> int:
        """R − S, or 0 where unknown or where more survived than R."""
        if self.reusable is None or self.survived is None:
            return 0
        return max(0, self.reusable - self.survived)

    @property
    def surplus(self) -> int:
        """S − R where positive: a fault of the model of the cache, or of the tokenizer used to replay."""
        if self.reusable is None or self.survived is None:
            return 0
        return max(0, self.survived - self.reusable)


@dataclass(slots=True)
class Ledger:
    """Sums over entries. Ratios are ratios of sums; each sum is ``None`` until an entry knows it."""

    calls: int = 0
    prompt_tokens: int = 0
    reusable: int | None = None
    survived: int | None = None
    reported_cached: int | None = None
    intra_call: int = 0
    surplus: int = 0
    lost: dict[str, int] = field(default_factory=dict[str, int])
    divergence: int = 0
    namespace_change: int = 0
    rounding: int = 0
    basis: dict[str, Basis] = field(default_factory=dict[str, Basis])
    _survived_of_reusable: int = 0
    _reusable_known: int = 0
    _prompt_of_survived: int = 0
    _survived_of_prompt: int = 0

    def add(self, entry: Entry) -> None:
        """Enter one call or read."""
        self.calls += 1
        if entry.prompt_tokens is not None:
            self.prompt_tokens += entry.prompt_tokens
            self._note("prompt_tokens", entry.prompt_basis)
        if entry.reusable is not None:
            self.reusable = (self.reusable or 0) + entry.reusable
            self._note("reusable_tokens", "predicted")
            self.divergence += entry.divergence
            self.namespace_change += entry.namespace_change
            if entry.shared is not None:
                self.rounding += entry.shared - entry.reusable
            self._note("outside", "predicted")
        if entry.survived is not None:
            self.survived = (self.survived or 0) + entry.survived
            self._note("survived_tokens", entry.survived_basis)
            if entry.prompt_tokens is not None:
                self._prompt_of_survived += entry.prompt_tokens
                self._survived_of_prompt += entry.survived
                both_measured = entry.prompt_basis == entry.survived_basis == "measured"
                self._note("hit_rate", "measured" if both_measured else "predicted")
        if entry.reusable is not None and entry.survived is not None:
            self._survived_of_reusable += entry.survived
            self._reusable_known += entry.reusable
            self._note("survival", "predicted")
            self._note("lost_tokens", "predicted")
            self.surplus += entry.surplus
            if entry.lost:
                cause = entry.cause or "unknown"
                self.lost[cause] = self.lost.get(cause, 0) + entry.lost
        if entry.reported_cached is not None:
            self.reported_cached = (self.reported_cached or 0) + entry.reported_cached
            self._note("reported_cached_tokens", "measured")
        self.intra_call += entry.intra_call

    def merge(self, other: Ledger) -> None:
        """Add another ledger's sums to this one."""
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.reusable = _sum(self.reusable, other.reusable)
        self.survived = _sum(self.survived, other.survived)
        self.reported_cached = _sum(self.reported_cached, other.reported_cached)
        self.intra_call += other.intra_call
        self.surplus += other.surplus
        self.divergence += other.divergence
        self.namespace_change += other.namespace_change
        self.rounding += other.rounding
        self._survived_of_reusable += other._survived_of_reusable
        self._reusable_known += other._reusable_known
        self._prompt_of_survived += other._prompt_of_survived
        self._survived_of_prompt += other._survived_of_prompt
        for cause, tokens in other.lost.items():
            self.lost[cause] = self.lost.get(cause, 0) + tokens
        for name, basis in other.basis.items():
            self._note(name, basis)

    @property
    def survival(self) -> float | None:
        """ΣS/ΣR over the entries that know both; ``None`` where R is 0 or unknown: not applicable is not zero."""
        return self._survived_of_reusable / self._reusable_known if self._reusable_known else None

    @property
    def hit_rate(self) -> float | None:
        """ΣS/Σ|P| over the entries that know both."""
        return self._survived_of_prompt / self._prompt_of_survived if self._prompt_of_survived else None

    def _note(self, name: str, basis: Basis) -> None:
        """A sum is measured only if every part of it is."""
        if basis == "predicted" or name not in self.basis:
            self.basis[name] = basis


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b

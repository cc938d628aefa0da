"""A shadow of one worker's prefix cache: which blocks are resident there now, and how much of a prompt they would serve.

Fed by the worker's KV events where it sends them, else by our own calls through the model of vLLM's block pool
(:mod:`warmgate.prefix.pool`). Which of the two, and what is not known, is part of every answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from warmgate.errors import OptionError
from warmgate.prefix.cache import CacheFull
from warmgate.prefix.pool import BlockPool

Source: TypeAlias = Literal["events", "model", "none"]
"""What feeds an index: the worker's KV events, the model of its pool under our own calls, or nothing."""

AHEAD_S = 1.0
"""Seconds an answer may come before the event that announces its blocks."""

GRAVES = 1 << 17
"""Names of evicted blocks remembered as evidence, the latest half of them for certain (at most 13 MB). An older eviction is no longer told
from a block never seen."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What an index says about one prompt.

    Attributes:
        blocks: Leading blocks that are resident.
        tokens: Tokens the engine would serve from them: never the last token's block.
        source: What the answer rests on.
        doubt: Why it may be wrong, one clause; ``None`` where the index is known to be complete.
    """

    blocks: int
    tokens: int
    source: Source
    doubt: str | None = None


def servable(blocks: int, block_size: int, prompt_tokens: int, granularity: int | None = None) -> int:
    """Tokens a full-attention cache serves when ``blocks`` leading blocks are resident: ``g·⌊min(L, len − 1)/g⌋``."""
    g = granularity or block_size
    return max(0, min(blocks * block_size, prompt_tokens - 1)) // g * g


class ShadowIndex:
    """Resident blocks of one worker, by the low 64 bits of their names.

    Fed by events: one thread changes it, the reader, and any may ask it meanwhile. Fed by our own calls: one thread at a time changes or
    asks it, which the tracker's lock sees to.

    Args:
        block_size: Tokens per block.
        granularity: Tokens that hits come in multiples of (``--prefix-match-unit``); without it the block.
        blocks: Blocks of the pool that requests can use; bounds the model where there are no events. ``None``: unbounded, which is a doubt.
        source: ``events`` or ``model``.
    """

    __slots__ = (
        "_ahead",
        "_copies",
        "_doubt",
        "_graves",
        "_older_graves",
        "_pool",
        "block_size",
        "cleared_at",
        "granularity",
        "restarted_at",
        "source",
    )

    def __init__(self, block_size: int, *, granularity: int | None = None, blocks: int | None = None, source: Source = "model") -> None:
        if block_size < 1 or (granularity is not None and granularity < 1):
            raise OptionError("block size and granularity are positive")
        self.block_size = block_size
        self.granularity = granularity or block_size
        self.source: Source = source
        self.restarted_at: float | None = None
        """When the worker was last seen to have restarted, seconds of ``time.time()``."""
        self.cleared_at: float | None = None
        """When its cache was last dropped on purpose."""
        self._copies: dict[int, int] = {}
        self._ahead: dict[int, float] = {}
        self._graves: dict[int, float] = {}
        self._older_graves: dict[int, float] = {}
        self._doubt: str | None = "no event heard yet" if source == "events" else None
        self._pool: BlockPool | None = None
        if source == "model":
            self._pool = BlockPool(block_size, blocks, on_evict=self._bury)
            if blocks is None:
                self._doubt = "the size of its pool is unknown, so evictions are not seen"

    def __len__(self) -> int:
        """Distinct resident blocks."""
        return len(self._copies) if self._pool is None else len(self._pool)

    def __contains__(self, name: int) -> bool:
        return name in self._copies if self._pool is None else name in self._pool

    @property
    def doubt(self) -> str | None:
        """Why answers may be wrong; ``None`` where the index is complete."""
        return self._doubt

    def find(self, names: Sequence[int], prompt_tokens: int) -> Prefix:
        """The longest resident prefix of a prompt.

        Args:
            names: Wire names of its full blocks, from the front.
            prompt_tokens: Tokens of the whole prompt.
        """
        blocks = self._leading(names) if self._pool is None else self._pool.leading(names)
        return Prefix(blocks, servable(blocks, self.block_size, prompt_tokens, self.granularity), self.source, self._doubt)

    def evicted(self, name: int) -> bool:
        """Whether a block was resident and then taken for something else, and is not resident now. ``False`` proves nothing."""
        return (name in self._graves or name in self._older_graves) and name not in self

    def _leading(self, names: Sequence[int]) -> int:
        held, ahead = self._copies, self._ahead
        now = time.monotonic() if ahead else 0.0
        blocks = 0
        for name in names:
            if name not in held and ahead.get(name, now) <= now:
                break
            blocks += 1
        return blocks

    # -- fed by events -------------------------------------------------------------------------------------------------------------

    def stored(self, names: Iterable[int]) -> None:
        """Blocks became readable. A block announced twice exists twice."""
        copies, ahead, graves, older = self._copies, self._ahead, self._graves, self._older_graves
        for name in names:
            copies[name] = copies.get(name, 0) + 1
            if ahead:
                ahead.pop(name, None)
            if graves:
                graves.pop(name, None)
            if older:
                older.pop(name, None)

    def removed(self, names: Iterable[int]) -> None:
        """One physical copy of each is gone. Names never announced are passed over."""
        copies = self._copies
        for name in names:
            left = copies.get(name, 0) - 1
            if left > 0:
                copies[name] = left
            elif left == 0:
                del copies[name]
                self._bury(name)

    def confirm(self, names: Sequence[int]) -> None:
        """The worker itself reported these as cached: they are resident, announced or not (events before we listened)."""
        if self._pool is None:
            for name in names:
                self._copies.setdefault(name, 1)

    def announced_soon(self, names: Sequence[int], sent: float) -> None:
        """A request of ours with these blocks was answered: they are resident, though the event may still be on its way.

        Args:
            names: Its full blocks.
            sent: When it was sent, seconds of ``time.monotonic()``. What the events say was evicted since then is not taken for resident.
        """
        if self._pool is not None:
            return
        now = time.monotonic()
        if len(self._ahead) > 4096:
            self._ahead = {name: until for name, until in self._ahead.items() if until > now}
        copies, graves, older = self._copies, self._graves, self._older_graves
        until = now + AHEAD_S
        for name in names:
            if name not in copies and graves.get(name, 0.0) < sent and older.get(name, 0.0) < sent:
                self._ahead[name] = until

    def cleared(self, when: float | None = None) -> None:
        """The whole cache was dropped: what is resident is known again, namely nothing."""
        self._empty()
        self.cleared_at = time.time() if when is None else when

    def restarted(self, when: float | None = None) -> None:
        """The worker began anew with an empty cache."""
        self._empty()
        self._graves, self._older_graves = {}, {}  # what died with the process was not evicted
        self.restarted_at = time.time() if when is None else when

    def trust(self, doubt: str | None) -> None:
        """Say why answers may be wrong from now on, or with ``None`` that they are complete."""
        self._doubt = doubt

    # -- fed by our own calls ------------------------------------------------------------------------------------------------------

    def served(self, names: Sequence[int], tokens: int, prompt_tokens: int, beside: int = 0) -> None:
        """One request of ours ran and ended, nothing else meanwhile but reads sent with it. Ignored where events tell.

        Args:
            names: All its full blocks, generated ones too.
            tokens: Prompt and answer, without the last generated token (never computed).
            prompt_tokens: The prompt alone.
            beside: Partial blocks that those reads held.
        """
        pool = self._pool
        if pool is None:
            return
        try:
            fitted = pool.serve(names, max(tokens, prompt_tokens), prompt_tokens, beside)
        except CacheFull:
            return  # larger than the pool: the engine refused it
        if not fitted:
            self._doubt = "a request outgrew the pool, which preempts others"

    def others(self) -> None:
        """A measurement was another one than modelled: what the model says is a guess from now on, until it restarts or is cleared."""
        if self._pool is not None:
            self._doubt = (
                "what was measured contradicts its model (others use this worker, or reads overlapped otherwise), and it sends no KV events"
            )

    def _empty(self) -> None:
        self._copies.clear()
        self._ahead.clear()
        if self._pool is not None:
            self._pool = BlockPool(self.block_size, self._pool.capacity, on_evict=self._bury)
            self._doubt = None if self._pool.capacity is not None else self._doubt

    def _bury(self, name: int) -> None:
        self._graves[name] = time.monotonic()
        if len(self._graves) > GRAVES // 2:
            self._older_graves, self._graves = self._graves, {}

"""KV events of one worker, batch by batch: in order, none twice, none missed without saying so. No sockets here.

The format is vLLM 0.32's (``vllm/distributed/kv_events.py``): msgpack of ``[ts, events, dp_rank]``, numbered from 0 by each process.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from warmgate.prefix.hashes import MASK, BlockNames, ExtraKeys
from warmgate.prefix.index import ShadowIndex

Name: TypeAlias = int | bytes
"""A block's name on the wire: 64 bits by default, all bytes with ``VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0``."""

REMEMBERED = 1 << 14
"""Batches whose time stamps are remembered, to tell a batch heard twice from another process's batch of the same number."""

MEDIUM = "GPU"
"""Blocks on other media (``CPU``, ``STORAGE``) belong to offloading tiers: a hit there is not the prefix cache's."""


class BlockStored(msgspec.Struct, tag=True, kw_only=True, gc=False):
    """Blocks became readable. Token ids stay undecoded: they are needed for the first block only, to check the names."""

    block_hashes: list[Name]
    parent_block_hash: Name | None = None
    token_ids: msgspec.Raw = msgspec.Raw()
    block_size: int = 0
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(msgspec.Struct, tag=True, kw_only=True, gc=False):
    """One physical copy of each block is gone."""

    block_hashes: list[Name]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, gc=False):
    """The whole cache was dropped."""


class Batch(msgspec.Struct, array_like=True, gc=False):
    """What one engine step did."""

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


Took: TypeAlias = Literal["applied", "duplicate", "gap", "restart", "malformed", "foreign"]
"""What became of a batch. After ``gap`` and ``restart`` it was *not* applied: ask for a replay from :attr:`Intake.expected`, or skip."""


class Intake:
    """Applies batches to an index.

    Args:
        index: What to keep up to date.
        names: How the worker is thought to name blocks; checked against the first block heard.
        rank: Data-parallel rank whose batches count; those of others are ``foreign``. ``None``: all.
        stored: Called with the names of blocks stored, for whoever remembers what was ever stored.
        restarted: Called when another process sends than before.
    """

    def __init__(
        self,
        index: ShadowIndex,
        *,
        names: BlockNames | None = None,
        rank: int | None = None,
        stored: Callable[[Sequence[int]], None] | None = None,
        restarted: Callable[[], None] | None = None,
    ) -> None:
        self.index = index
        self.expected: int | None = None
        """Number of the next batch; ``None`` before the first."""
        self.batches = 0
        self.blocks = 0
        self.gaps = 0
        self.restarts = 0
        self.malformed = 0
        self.last_ts: float | None = None
        """Time stamp of the last batch applied, on the worker's clock."""
        self.missing: str | None = "no event heard yet"
        """What keeps the index from being complete, for good; ``None`` when nothing does."""
        self._names = names
        self._checked = names is None
        self._rank = rank
        self._stored = stored
        self._restarted = restarted
        self._recent: OrderedDict[int, float] = OrderedDict()
        self._skipped_groups: set[int] = set()
        self._unfit: str | None = None
        self._decoder = msgspec.msgpack.Decoder(Batch)

    def take(self, number: int, payload: bytes) -> Took:
        """Apply one batch if it is the next one."""
        try:
            batch = self._decoder.decode(payload)
        except (msgspec.DecodeError, RecursionError):  # hostile nesting included
            self.malformed += 1
            if self.expected is None or number >= self.expected:
                self.expected = number + 1
            self._miss("a batch of its events could not be read")
            return "malformed"
        if self._rank is not None and batch.data_parallel_rank not in (None, self._rank):
            return "foreign"
        if self.expected is None:
            if number:
                self._miss(f"its first {number} batches of events were not heard")
            elif self.missing == "no event heard yet":
                self._complete()
        elif number < self.expected:
            heard = self._recent.get(number)
            if heard == batch.ts or (self.last_ts is not None and batch.ts <= self.last_ts):
                return "duplicate"
            self._restart()
            if number:
                return "restart"
        elif number > self.expected:
            return "gap"
        self._apply(number, batch)
        return "applied"

    def fits(self, number: int, payload: bytes) -> bool:
        """Whether a replayed batch of a number heard before is the one heard: if not, another process sends now."""
        try:
            ts = self._decoder.decode(payload).ts
        except (msgspec.DecodeError, RecursionError):
            return True
        return self._recent.get(number, ts) == ts

    def begin_anew(self) -> None:
        """Another process sends now: the index is empty, and numbers start at 0 again."""
        self._restart()

    def skip(self, number: int) -> None:
        """Give up on batches before ``number``: the index is incomplete until the cache is cleared or the worker restarts."""
        if self.expected is not None and number > self.expected:
            self.gaps += 1
            self._miss(f"{number - self.expected} batches of its events were lost")
        self.expected = number

    def nothing_yet(self) -> None:
        """A replay from 0 was empty: nothing has happened there, and that is known."""
        if self.expected is None:
            self.expected = 0
            self._complete()

    def _apply(self, number: int, batch: Batch) -> None:
        index = self.index
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                index.cleared(batch.ts)
                self._complete()
                continue
            if event.medium not in (None, MEDIUM):
                continue
            group = event.group_idx or 0
            if isinstance(event, BlockRemoved):
                if group not in self._skipped_groups:
                    index.removed(_wire(event.block_hashes))
                continue
            if not self._tracked(group, event):
                continue
            names = _wire(event.block_hashes)
            self.blocks += len(names)
            if not self._checked and event.parent_block_hash is None and names:
                self._check(names[0], event)
            index.stored(names)
            if self._stored is not None:
                self._stored(names)
        self.batches += 1
        self.expected = number + 1
        self.last_ts = batch.ts
        self._recent[number] = batch.ts
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)

    def _tracked(self, group: int, event: BlockStored) -> bool:
        """Only full attention is followed block by block; what other layers keep decides hits as well, so the index says it is no proof."""
        if group in self._skipped_groups:
            return False
        if group and event.kv_cache_spec_kind not in (None, "full_attention"):
            self._skipped_groups.add(group)
            self._cannot("the model has layers that keep only some prefixes (sliding window or recurrent)")
            return False
        if event.block_size and event.block_size != self.index.block_size:
            self._skipped_groups.add(group)
            self._cannot(f"its blocks are {event.block_size} tokens, not {self.index.block_size}")
            return False
        return True

    def _check(self, name: int, event: BlockStored) -> None:
        keys: ExtraKeys = None
        if event.extra_keys and event.extra_keys[0]:
            first = event.extra_keys[0]
            if event.lora_name is not None or len(first) != 1 or not isinstance(first[0], str):
                return  # adapters are named by a path that events leave out
            keys = (("cache_salt", first[0]),)
        try:
            ids = msgspec.msgpack.decode(event.token_ids, type=list[int])
        except msgspec.DecodeError:
            return
        self._checked = True
        assert self._names is not None
        if not self._names.agrees(name, ids[: self.index.block_size], keys):
            self._cannot(f"it names blocks otherwise than by {self._names.algorithm} with this seed (PYTHONHASHSEED)")

    def _restart(self) -> None:
        self.restarts += 1
        self._recent.clear()
        self.expected, self.last_ts = None, None
        self.index.restarted(time.time())
        if self._restarted is not None:
            self._restarted()
        self._complete()

    def _cannot(self, why: str) -> None:
        """No restart mends this."""
        self._unfit = why
        self._miss(why)

    def _miss(self, why: str) -> None:
        self.missing = self._unfit or why
        self.index.trust(self.missing)

    def _complete(self) -> None:
        self.missing = self._unfit
        self.index.trust(self._unfit)


def _wire(names: Sequence[Name]) -> list[int]:
    return [name if isinstance(name, int) else int.from_bytes(name[-8:], "big") & MASK for name in names]

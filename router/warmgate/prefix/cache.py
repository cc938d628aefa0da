"""One worker's prefix cache, with the rules of vLLM 0.32 (``vllm/v1/core/block_pool.py``, ``kv_cache_manager.py``).

- Only full blocks are cached; a hit is a run of blocks from the front. Whoever holds a block holds all before it, and gives them back
  after it, so a resident block's predecessors are resident too: hits are found by bisection.
- The last token of a prompt is always computed: at most ``(tokens - 1) // block_size`` blocks can hit.
- A request holds its blocks until it ends; then blocks with a hash join the end of the free queue, its tail first, and blocks
  without one join the front. New blocks are taken from the front, which forgets what they held.
- A block computed twice (the last block of a fully cached prompt) exists twice until one copy is taken.
- A request that needs more blocks than are free is not admitted, and touches nothing.

Blocks that nobody will ever ask for again (a question's, an answer's) are kept as runs: they take room and age, at the cost of one.

The replay simulator and the stand-in worker both run on this class.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast


@dataclass(slots=True)
class Lease:
    """Blocks that one running request holds.

    Attributes:
        hit: Blocks found in the cache at admission.
        copies: Handles of the cached blocks held, from the front.
        blank: Blocks held that carry no hash (the partial last one).
    """

    hit: int
    copies: list[int] = field(default_factory=list[int])
    blank: int = 0


class CacheFull(Exception):
    """The request needs more blocks than are free. vLLM would keep it waiting, or refuse it if the pool is smaller than it."""


class PrefixCache:
    """Block-granular LRU cache of prompt prefixes. Keys are hashable and name a block *and* all before it.

    Args:
        block_size: Tokens per block.
        capacity: Blocks in the pool, or ``None`` for no bound.
        on_evict: Called with the key of a block whose last copy was taken.
        on_store: Called with the key of a block that became resident and was not before.
    """

    __slots__ = (
        "_copied",
        "_free",
        "_handles",
        "_key_of",
        "_next",
        "_refs",
        "_run_blocks",
        "_runs",
        "_used",
        "block_size",
        "capacity",
        "on_evict",
        "on_store",
    )

    def __init__(
        self,
        block_size: int,
        capacity: int | None = None,
        *,
        on_evict: Callable[[Hashable], None] | None = None,
        on_store: Callable[[Hashable], None] | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be positive, not {block_size}")
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be positive, not {capacity}")
        self.block_size = block_size
        self.capacity = capacity
        self.on_evict = on_evict
        self.on_store = on_store
        self._handles: dict[Hashable, int | list[int]] = {}
        self._key_of: dict[int, Hashable] = {}
        self._refs: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict()
        self._runs: dict[int, int] = {}  # handle of a free run of blocks without a key of their own -> how many
        self._run_blocks = 0
        self._copied = 0  # keys that exist more than once
        self._next = 0
        self._used = 0  # blocks that hold a cached key, stand in a run or belong to a running request

    def __len__(self) -> int:
        """Distinct resident blocks."""
        return len(self._handles)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._handles

    @property
    def free_blocks(self) -> int | None:
        """Blocks a new request could take now, cached ones included; ``None`` without a bound."""
        return None if self.capacity is None else self.capacity - self._used + self._evictable

    def peek(self, keys: Sequence[Hashable], tokens: int) -> int:
        """Blocks of a prompt of ``tokens`` tokens that would hit, without changing anything."""
        low, high = 0, min(len(keys), (tokens - 1) // self.block_size)
        handles = self._handles
        if high > 0 and keys[high - 1] in handles:
            return high
        while low < high:
            middle = (low + high) // 2
            if keys[middle] in handles:
                low = middle + 1
            else:
                high = middle
        return low

    def fits(self, tokens: int) -> bool:
        """Whether a request of ``tokens`` tokens fits into the pool at all."""
        return self.capacity is None or -(-tokens // self.block_size) <= self.capacity

    def admit(self, keys: Sequence[Hashable], tokens: int) -> Lease:
        """Start a request: take its hits, allocate the rest, register its full blocks.

        Args:
            keys: One key per full block of the prompt, from the front; a key names the block and all before it.
            tokens: Tokens of the prompt; the blocks beyond ``keys`` are held without a hash.

        Raises:
            CacheFull: Not enough free blocks; nothing was changed.
        """
        hit = self.peek(keys, tokens)
        copies = self._copies(keys[:hit])
        if self.capacity is not None:
            held = sum(handle in self._free for handle in copies)
            self._check(self._blocks(keys, tokens) - hit, self.capacity - self._used + self._evictable - held)
        for handle in copies:
            self._free.pop(handle, None)
            self._refs[handle] = self._refs.get(handle, 0) + 1
        lease = Lease(hit, copies)
        self._grow(lease, keys[hit:], -(-tokens // self.block_size) - len(keys))
        return lease

    def extend(self, lease: Lease, keys: Sequence[Hashable], tokens: int) -> None:
        """Continue a request with generated tokens.

        Args:
            lease: What :meth:`admit` returned.
            keys: Keys of *all* full blocks of the request now; those it already holds are skipped.
            tokens: Tokens of the request now.

        Raises:
            CacheFull: Not enough free blocks; the request keeps what it held.
        """
        held = len(lease.copies)
        if self.capacity is not None:
            room = self.capacity - self._used + self._evictable
            self._check(self._blocks(keys, tokens) - held, room + lease.blank)
        self._used -= lease.blank  # the partial block becomes one of the full ones
        lease.blank = 0
        self._grow(lease, keys[held:], -(-tokens // self.block_size) - len(keys))

    def release(self, lease: Lease) -> None:
        """End a request: its blocks become candidates for eviction, the tail first."""
        refs = self._refs
        for handle in reversed(lease.copies):
            left = refs[handle] - 1
            if left:
                refs[handle] = left
            else:
                del refs[handle]
                self._free[handle] = None
        self._used -= lease.blank
        lease.copies = []
        lease.blank = 0

    def run(self, keys: Sequence[Hashable], tokens: int, prompt_tokens: int, times: int = 1) -> int:
        """Whole requests, one after another, while nothing else runs: admitted, extended by their answer, ended.

        The same as :meth:`admit`, :meth:`extend` and :meth:`release` with keys of their own for the full blocks behind ``keys``, at
        the cost of one block for all of those. An answer that has no room is cut, as an engine ends generation there.

        Args:
            keys: Of the leading full blocks that others may share.
            tokens: Prompt and answer.
            prompt_tokens: The prompt alone.
            times: How many such requests follow each other; those after the first find what it left. More than one only for
                requests without an answer whose ``keys`` end before their last token.

        Returns:
            Blocks the first one found.

        Raises:
            CacheFull: The prompt is larger than the pool; nothing was changed.
        """
        size, free = self.block_size, self._free
        if self.capacity is not None:
            self._check(-(-prompt_tokens // size), self.capacity)
            tokens = min(tokens, self.capacity * size)
        full = tokens // size
        keys = keys[:full]
        hit = self.peek(keys, prompt_tokens)
        copies = self._copies(keys[:hit])
        fresh, alone, blank = keys[hit:], full - len(keys), -(-tokens // size) - full
        if self.capacity is not None and (lack := len(fresh) + alone + blank - (self.capacity - self._used)) > 0:
            _drain(map(free.move_to_end, copies))  # held: all others are taken first
            self._take(lack)
        self._used += len(fresh) + alone
        run = self._next
        if alone:
            self._next += 1
            free[run] = None
            self._runs[run] = alone
            self._run_blocks += alone
        free.update(dict.fromkeys(reversed([self._store(key) for key in fresh])))
        _drain(map(free.move_to_end, reversed(copies)))
        if times > 1 and alone:
            self._repeat(run, alone, blank, times - 1)
        return hit

    def _repeat(self, run: int, alone: int, blank: int, times: int) -> None:
        """More requests like the last one, which find all its keys: each adds its own blocks to the run behind them."""
        blocks = alone * times
        if self.capacity is not None:
            # each takes what room lacks, its partial block included, which is room again for the next
            lack = blocks + blank - (self.capacity - self._used)
            grown = min(blocks, self.capacity)  # what is more than the pool holds is taken from the run itself
            self._grow_run(run, grown)
            self._take(max(0, lack - (blocks - grown)))
        else:
            self._grow_run(run, blocks)

    def _grow_run(self, run: int, blocks: int) -> None:
        self._runs[run] += blocks
        self._run_blocks += blocks
        self._used += blocks

    def clear(self) -> int:
        """Forget every block that no running request holds. Returns how many distinct blocks are gone."""
        before = len(self._handles)
        self._take(self._evictable)
        return before - len(self._handles)

    @property
    def _evictable(self) -> int:
        """Blocks in the free queue."""
        return len(self._free) - len(self._runs) + self._run_blocks

    def _blocks(self, keys: Sequence[Hashable], tokens: int) -> int:
        return max(len(keys), -(-tokens // self.block_size))

    @staticmethod
    def _check(need: int, free: int) -> None:
        if need > free:
            raise CacheFull(f"{need} blocks needed, {free} free")

    def _grow(self, lease: Lease, fresh: Sequence[Hashable], blank: int) -> None:
        blank = max(blank, 0)
        if self.capacity is not None:
            self._take(len(fresh) + blank - (self.capacity - self._used))
        for key in fresh:
            handle = self._store(key)
            self._refs[handle] = 1
            lease.copies.append(handle)
        lease.blank += blank
        self._used += len(fresh) + blank

    def _store(self, key: Hashable) -> int:
        """Name a block, which may be one more copy of a resident one."""
        handle = self._next
        self._next = handle + 1
        held = self._handles.get(key)
        if held is None:
            self._handles[key] = handle
            if self.on_store is not None:
                self.on_store(key)
        elif isinstance(held, list):
            held.append(handle)
        else:
            self._handles[key] = [held, handle]
            self._copied += 1
        self._key_of[handle] = key
        return handle

    def _copies(self, keys: Sequence[Hashable]) -> list[int]:
        """Handles of resident blocks; of several copies the one that was stored first."""
        if self._copied:
            return [self._first(key) for key in keys]
        return cast("list[int]", list(map(self._handles.__getitem__, keys)))

    def _take(self, blocks: int) -> None:
        """Make room from the front of the free queue. Takes none where ``blocks`` is negative."""
        while blocks > 0:
            front = next(iter(self._free))
            if (length := self._runs.get(front)) is None:
                self._evict()
                blocks -= 1
                continue
            taken = min(length, blocks)
            blocks -= taken
            self._run_blocks -= taken
            self._used -= taken
            if taken < length:
                self._runs[front] = length - taken
            else:
                del self._free[front], self._runs[front]

    def _first(self, key: Hashable) -> int:
        held = self._handles[key]
        return held[0] if isinstance(held, list) else held

    def _evict(self) -> None:
        """Take the block at the front of the free queue, which is no run."""
        handle, _ = self._free.popitem(last=False)
        key = self._key_of.pop(handle)
        self._used -= 1
        held = self._handles[key]
        if isinstance(held, list):
            held.remove(handle)
            if len(held) == 1:
                self._handles[key] = held[0]
                self._copied -= 1
            return
        del self._handles[key]
        if self.on_evict is not None:
            self.on_evict(key)


def _drain(steps: Iterable[object]) -> None:
    """Run through an iterator at the speed of C."""
    deque(steps, maxlen=0)

"""One worker's prefix cache, with the rules of vLLM 0.32 (``vllm/v1/core/block_pool.py``, ``kv_cache_manager.py``).

- Only full blocks are cached; a hit is a run of blocks from the front.
- The last token of a prompt is always computed: at most ``(tokens - 1) // block_size`` blocks can hit.
- A request holds its blocks until it ends; then blocks with a hash join the end of the free queue, its tail first, and blocks
  without one join the front. New blocks are taken from the front, which forgets what they held.
- A block computed twice (the last block of a fully cached prompt) exists twice until one copy is taken.

The replay simulator and the stand-in worker both run on this class.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field


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
    """Block-granular LRU cache of prompt prefixes.

    Args:
        block_size: Tokens per block.
        capacity: Blocks in the pool, or ``None`` for no bound.
        on_evict: Called with the key of a block whose last copy was taken.
        on_store: Called with the key of a block that became resident and was not before.
    """

    __slots__ = ("_free", "_handles", "_key_of", "_next", "_refs", "_used", "block_size", "capacity", "on_evict", "on_store")

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
        self._next = 0
        self._used = 0  # blocks that hold a cached key or belong to a running request

    def __len__(self) -> int:
        """Distinct resident blocks."""
        return len(self._handles)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._handles

    @property
    def free_blocks(self) -> int | None:
        """Blocks a new request could take now, cached ones included; ``None`` without a bound."""
        return None if self.capacity is None else self.capacity - self._used + len(self._free)

    def peek(self, keys: Sequence[Hashable], tokens: int) -> int:
        """Blocks of a prompt of ``tokens`` tokens that would hit, without changing anything."""
        limit = min(len(keys), (tokens - 1) // self.block_size)
        handles = self._handles
        hit = 0
        while hit < limit and keys[hit] in handles:
            hit += 1
        return hit

    def admit(self, keys: Sequence[Hashable], tokens: int) -> Lease:
        """Start a request: take its hits, allocate the rest, register its full blocks.

        Args:
            keys: One key per full block of the prompt, from the front; a key names the block and all before it.
            tokens: Tokens of the prompt; the blocks beyond ``keys`` are held without a hash.

        Raises:
            CacheFull: Not enough free blocks; nothing was changed.
        """
        hit = self.peek(keys, tokens)
        lease = Lease(hit)
        for key in keys[:hit]:
            handle = self._first(key)
            self._free.pop(handle, None)
            self._refs[handle] = self._refs.get(handle, 0) + 1
            lease.copies.append(handle)
        try:
            self._grow(lease, keys[hit:], -(-tokens // self.block_size) - len(keys))
        except CacheFull:
            self.release(lease)
            raise
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
        fresh = keys[len(lease.copies) :]
        self._used -= lease.blank  # the partial block becomes one of the full ones
        lease.blank = 0
        self._grow(lease, fresh, -(-tokens // self.block_size) - len(keys))

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

    def clear(self) -> int:
        """Forget every block that no running request holds. Returns how many distinct blocks are gone."""
        before = len(self._handles)
        while self._free:
            self._evict()
        return before - len(self._handles)

    def _grow(self, lease: Lease, fresh: Sequence[Hashable], blank: int) -> None:
        blank = max(blank, 0)
        if self.capacity is not None:
            need = len(fresh) + blank
            room = self.capacity - self._used
            if need > room + len(self._free):
                raise CacheFull(f"{need} blocks needed, {room + len(self._free)} free")
            for _ in range(need - room):
                self._evict()
        for key in fresh:
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
            self._key_of[handle] = key
            self._refs[handle] = 1
            lease.copies.append(handle)
        lease.blank += blank
        self._used += len(fresh) + blank

    def _first(self, key: Hashable) -> int:
        held = self._handles[key]
        return held[0] if isinstance(held, list) else held

    def _evict(self) -> None:
        handle, _ = self._free.popitem(last=False)
        key = self._key_of.pop(handle)
        self._used -= 1
        held = self._handles[key]
        if isinstance(held, list):
            held.remove(handle)
            if len(held) == 1:
                self._handles[key] = held[0]
            return
        del self._handles[key]
        if self.on_evict is not None:
            self.on_evict(key)

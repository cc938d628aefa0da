"""The stand-in's block pool: the prefix cache of replay, which also tells when a single copy of a block is taken.

Two copies of a block may be resident (:class:`~warmgate.prefix.cache.PrefixCache`). Whoever asks what can hit needs to know when the
last one goes; vLLM's KV events announce every copy on its own (``block_pool.py``, ``_maybe_evict_cached_block``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from warmgate.prefix.cache import PrefixCache


class Pool(PrefixCache):
    """A prefix cache that tells of every copy taken.

    Args:
        block_size: Tokens per block.
        capacity: Blocks in the pool.
        on_taken: Called with a block's name whenever the memory of one of its copies is taken for something else.
    """

    __slots__ = ("_on_taken", "_silent")

    def __init__(self, block_size: int, capacity: int, *, on_taken: Callable[[Hashable], None]) -> None:
        super().__init__(block_size, capacity)
        self._on_taken = on_taken
        self._silent = False

    def clear(self) -> int:
        """See :meth:`PrefixCache.clear`. A reset is announced as a whole, not copy by copy."""
        self._silent = True
        try:
            return super().clear()
        finally:
            self._silent = False

    def _evict(self) -> None:
        name = self._key_of[next(iter(self._free))]
        super()._evict()
        if not self._silent:
            self._on_taken(name)

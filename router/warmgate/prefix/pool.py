"""A worker's block pool under one request at a time, in arrays: about 40 bytes a resident block, no object each.

The rules are those of :mod:`warmgate.prefix.cache`, which the replay and the stand-in run on and tests hold this one against. Here blocks
are named by the low 64 bits of their names, requests never overlap, and a million blocks are to be watched beside an agent.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from warmgate.prefix.cache import CacheFull

_SHARDS = 64
"""Tables that names are spread over: each grows on its own, so that no growth takes longer than a few milliseconds."""
_BITS = 6


class BlockPool:
    """Names of the blocks in one worker's pool, and the order in which they will be taken for others.

    One thread at a time may use it. Names are digests, evenly spread, from 0 to 2⁶⁴ − 1.

    Args:
        block_size: Tokens per block.
        capacity: Blocks of the pool, or ``None`` for no bound.
        on_evict: Called with the name of a block whose last copy was taken.
    """

    __slots__ = ("_copies", "_held", "_names", "_next", "_previous", "_resident", "_spare", "_tables", "block_size", "capacity", "on_evict")

    def __init__(self, block_size: int, capacity: int | None = None, *, on_evict: Callable[[int], None] | None = None) -> None:
        self.block_size = block_size
        self.capacity = capacity
        self.on_evict = on_evict
        # A slot is a block with a name. Slot 0 is none: the end of the free queue, and an empty place in a table.
        self._names = array("Q", [0])
        self._next = array("I", [0])
        self._previous = array("I", [0])
        self._spare = 0  # slots whose block was taken, linked by `_next`
        self._tables = [array("I", bytes(32)) for _ in range(_SHARDS)]  # name → slot of its first copy, by open addressing
        self._held = [0] * _SHARDS  # names in each table
        self._copies: dict[int, list[int]] = {}  # slots of a name's further copies, in the order they were stored
        self._resident = 0  # slots with a name

    def __len__(self) -> int:
        """Distinct resident blocks."""
        return sum(self._held)

    def __contains__(self, name: int) -> bool:
        return self._slot(name) != 0

    def leading(self, names: Sequence[int]) -> int:
        """Resident blocks of a prompt from the front. Whoever holds a block holds all before it, so a bisection finds them."""
        low, high = 0, len(names)
        if high and self._slot(names[-1]):
            return high
        while low < high:
            middle = (low + high) // 2
            if self._slot(names[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def serve(self, names: Sequence[int], tokens: int, prompt_tokens: int, beside: int = 0) -> bool:
        """One whole request: admitted, extended by its answer, ended.

        Args:
            names: All its full blocks, generated ones too.
            tokens: Prompt and answer.
            prompt_tokens: The prompt alone.
            beside: Blocks without a name that others hold meanwhile (the partial last ones of reads sent together).

        Returns:
            Whether the answer fitted. Where it did not, the prompt alone is taken in.

        Raises:
            CacheFull: The prompt is larger than the pool; nothing was changed.
        """
        size, capacity = self.block_size, self.capacity
        prompt = names[: prompt_tokens // size]
        first, need = max(len(prompt), -(-prompt_tokens // size)), max(len(names), -(-tokens // size))
        fits = capacity is None or need <= capacity
        if not fits:
            if first > (capacity or 0):
                raise CacheFull(f"{first} blocks needed, {capacity} in the pool")
            names, need = prompt, first
        hit = self.leading(prompt[: max(0, prompt_tokens - 1) // size])
        held = self._hold(names[:hit])
        self._room(first - hit + beside)
        stored = [self._store(name) for name in prompt[hit:]]
        if need > first or len(names) > len(prompt):  # the partial block of the prompt becomes the answer's first
            self._room(need - len(prompt) + beside)
            stored += [self._store(name) for name in names[len(prompt) :]]
        self._append(reversed(stored))
        self._append(reversed(held))
        return fits

    def _slot(self, name: int) -> int:
        """The slot of a name's first copy, or 0."""
        table, names = self._tables[name & (_SHARDS - 1)], self._names
        mask = len(table) - 1
        at = name >> _BITS & mask
        while (slot := table[at]) and names[slot] != name:
            at = (at + 1) & mask
        return slot

    # -- the free queue, from the block that is taken next to the one that is taken last --------------------------------------------

    def _append(self, slots: Iterable[int]) -> None:
        after, before = self._next, self._previous
        last = before[0]
        for slot in slots:
            after[last] = slot
            before[slot] = last
            last = slot
        after[last] = 0
        before[0] = last

    def _hold(self, names: Sequence[int]) -> list[int]:
        """The slots of resident blocks, taken out of the queue. In one loop: a prompt has hundreds of blocks, all met at every request."""
        tables, named, after, before = self._tables, self._names, self._next, self._previous
        slots: list[int] = []
        hold = slots.append
        for name in names:
            table = tables[name & (_SHARDS - 1)]
            mask = len(table) - 1
            at = name >> _BITS & mask
            slot = table[at]
            while named[slot] != name:
                at = (at + 1) & mask
                slot = table[at]
            left, right = before[slot], after[slot]
            after[left] = right
            before[right] = left
            hold(slot)
        return slots

    def _room(self, blocks: int) -> None:
        """Take so many blocks from the front of the queue that this many are free."""
        if self.capacity is not None:
            for _ in range(blocks - (self.capacity - self._resident)):
                if not self._next[0]:
                    return  # others hold all that is left: the request would wait for them
                self._take()

    def _take(self) -> None:
        """Take the block at the front for something else."""
        after = self._next
        slot = after[0]
        after[0] = following = after[slot]
        self._previous[following] = 0
        after[slot], self._spare = self._spare, slot
        self._resident -= 1
        name = self._names[slot]
        copies = self._copies.get(name)
        if copies is None:
            self._forget(name, slot)
            if self.on_evict is not None:
                self.on_evict(name)
            return
        if slot in copies:
            copies.remove(slot)
        else:
            self._tables[name & (_SHARDS - 1)][self._place(name)] = copies.pop(0)
        if not copies:
            del self._copies[name]

    # -- names -----------------------------------------------------------------------------------------------------------------------

    def _store(self, name: int) -> int:
        """A slot with this name, not in the free queue yet."""
        self._resident += 1
        slot = self._spare
        if slot:
            self._spare = self._next[slot]
            self._names[slot] = name
        else:
            slot = len(self._names)
            self._names.append(name)
            self._next.append(0)
            self._previous.append(0)
        shard = name & (_SHARDS - 1)
        table, names = self._tables[shard], self._names
        mask = len(table) - 1
        at = name >> _BITS & mask
        while other := table[at]:
            if names[other] == name:
                self._copies.setdefault(name, []).append(slot)
                return slot
            at = (at + 1) & mask
        table[at] = slot
        self._held[shard] += 1
        if self._held[shard] * 2 > len(table):
            self._grow(shard)
        return slot

    def _place(self, name: int) -> int:
        """Where a name stands in its table, or would."""
        table, names = self._tables[name & (_SHARDS - 1)], self._names
        mask = len(table) - 1
        at = name >> _BITS & mask
        while (slot := table[at]) and names[slot] != name:
            at = (at + 1) & mask
        return at

    def _grow(self, shard: int) -> None:
        old, names = self._tables[shard], self._names
        table = array("I", bytes(8 * len(old)))
        mask = len(table) - 1
        for slot in filter(None, old):
            at = names[slot] >> _BITS & mask
            while table[at]:
                at = (at + 1) & mask
            table[at] = slot
        self._tables[shard] = table

    def _forget(self, name: int, slot: int) -> None:
        """Remove a name, whose only copy is in this slot.

        Those behind it that stand there for want of its place move up, so that every search still ends right.
        """
        shard = name & (_SHARDS - 1)
        table, names = self._tables[shard], self._names
        mask = len(table) - 1
        at = name >> _BITS & mask
        while table[at] != slot:
            at = (at + 1) & mask
        gap = at
        while other := table[at := (at + 1) & mask]:
            home = names[other] >> _BITS & mask
            if (at - home) & mask >= (at - gap) & mask:
                table[gap] = other
                gap = at
        table[gap] = 0
        self._held[shard] -= 1

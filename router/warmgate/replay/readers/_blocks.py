"""Block ids of a trace that records hashes instead of text, checked once for every format that has them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, overload

from warmgate.replay.readers._fields import Unusable, count, items
from warmgate.replay.trace import BlockPrompt

MAX_BLOCK_SIZE = 1 << 20
"""Tokens per block above which a header is broken (engines use 16 to a few thousand)."""

MAX_BLOCKS = 1 << 20
"""Blocks of one prompt that a record may name by going on from the one before it (16 million tokens in blocks of 16)."""


class Front(Sequence[int]):
    """The first ``size`` ids of a prompt that later ones go on from, without a copy.

    Args:
        ids: Only appended to; ids already in it never change.
        size: Ids of this prompt, at most ``len(ids)``.
    """

    __slots__ = ("_ids", "_size")

    def __init__(self, ids: array[int], size: int) -> None:
        self._ids = ids
        self._size = size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> array[int]: ...
    def __getitem__(self, index: int | slice) -> int | array[int]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._size)
            return self._ids[start : max(stop, 0) : step] if step > 0 else self._ids[: self._size][index]
        if not -self._size <= index < self._size:
            raise IndexError(index)
        return self._ids[index + self._size if index < 0 else index]

    def kept(self, size: int) -> Front:
        """The first ``size`` of these."""
        return Front(self._ids, min(size, self._size))

    def then(self, more: array[int]) -> Front:
        """These ids and others behind them. Costs the new ones alone where no other prompt has gone on from here."""
        ids = self._ids if len(self._ids) == self._size else self._ids[: self._size]
        ids.extend(more)
        return Front(ids, len(ids))

    def __repr__(self) -> str:
        return f"Front({self[:8].tolist()}, {self._size})"


def needed(value: Any, name: str) -> int:
    """A token count that the record cannot do without.

    Raises:
        Unusable: It is missing, or no such count.
    """
    found = count(value, name)
    if found is None:
        raise Unusable(f"it has no {name}")
    return found


def block_prompt(ids: Any, tokens: int, block_size: int) -> BlockPrompt:
    """A prompt of ``tokens`` tokens with one id per block; a last, partial block may have one too.

    Raises:
        Unusable: ``ids`` is no list of 64-bit integers, or has more or fewer of them than the tokens fill.
    """
    if not isinstance(ids, list):
        raise Unusable("its hash_ids are no list")
    listed = items(ids)
    if set(map(type, listed)) - {int}:
        raise Unusable("its hash_ids are not all whole numbers")
    if len(listed) > -(-tokens // block_size):
        raise Unusable(f"it has {len(listed):,} hash_ids, but {tokens:,} tokens fill no more than {-(-tokens // block_size):,} blocks")
    if len(listed) < tokens // block_size:
        raise Unusable(f"it has {len(listed):,} hash_ids, but {tokens:,} tokens fill {tokens // block_size:,} blocks")
    for code in ("q", "Q"):  # ids are counted up, or are hashes of 64 bits
        try:
            return BlockPrompt(block_size, array(code, listed), tokens)
        except OverflowError:
            continue
    raise Unusable("one of its hash_ids has more than 64 bits")

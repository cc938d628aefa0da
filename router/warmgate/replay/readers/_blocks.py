"""Block ids of a trace that records hashes instead of text, checked once for every format that has them."""

from __future__ import annotations

from array import array
from typing import Any

from warmgate.replay.readers._fields import Unusable, count, items
from warmgate.replay.trace import BlockPrompt

MAX_BLOCK_SIZE = 1 << 20
"""Tokens per block above which a header is broken (engines use 16 to a few thousand)."""


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
        Unusable: ``ids`` is no list of 64-bit integers, or has more of them than the tokens fill.
    """
    if not isinstance(ids, list):
        raise Unusable("its hash_ids are no list")
    listed = items(ids)
    if set(map(type, listed)) - {int}:
        raise Unusable("its hash_ids are not all whole numbers")
    if len(listed) > -(-tokens // block_size):
        raise Unusable(f"it has {len(listed):,} hash_ids, but {tokens:,} tokens fill no more than {-(-tokens // block_size):,} blocks")
    for code in ("q", "Q"):  # ids are counted up, or are hashes of 64 bits
        try:
            return BlockPrompt(block_size, array(code, listed), tokens)
        except OverflowError:
            continue
    raise Unusable("one of its hash_ids has more than 64 bits")

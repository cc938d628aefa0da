"""Chains of prompt blocks, numbered once and shared by every simulation of a trace.

A *node* is a block together with everything before it, as a small integer. Two prompts share a prefix of k blocks exactly when
their first k nodes are equal, so caches, ledgers and scenarios work on nodes and never on text again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TypeAlias

Nodes: TypeAlias = "array[int]"
"""Nodes of a prompt's leading blocks (``array("q")``: 8 bytes each, sliced at the speed of memory)."""


class Ruler:
    """Where blocks begin in a prompt's bytes.

    With token ids (4 bytes each) a block is ``block_size`` ids. Without a tokenizer the bytes are the prompt's UTF-8 text and a
    block is as many bytes as carry ``block_size`` tokens on average.

    Args:
        block_size: Tokens per block.
        tokens_per_byte: 0.25 for token ids; the trace's own ratio for text.
        exact: Whether the bytes are token ids.
    """

    __slots__ = ("_stride", "block_size", "exact", "tokens_per_byte")

    def __init__(self, block_size: int, tokens_per_byte: float = 0.25, *, exact: bool = True) -> None:
        self.block_size = block_size
        self.tokens_per_byte = 0.25 if exact else tokens_per_byte
        self.exact = exact
        self._stride = block_size / self.tokens_per_byte

    def offset(self, block: int) -> int:
        """Byte offset at which block number ``block`` (from 0) begins."""
        return int(block * self._stride)

    def tokens(self, offset: int) -> int:
        """Whole tokens in the first ``offset`` bytes: exactly ``block_size`` for each full block."""
        if self.exact:
            return offset >> 2
        blocks = self.full_blocks(offset)
        rest = int((offset - self.offset(blocks)) * self.tokens_per_byte)
        return blocks * self.block_size + min(rest, self.block_size - 1)

    def full_blocks(self, size: int) -> int:
        """Full blocks in ``size`` bytes."""
        blocks = int(size / self._stride)
        while self.offset(blocks + 1) <= size:
            blocks += 1
        while blocks and self.offset(blocks) > size:
            blocks -= 1
        return blocks


class TextTree:
    """Every sequence of a trace as a tree of blocks: exact, no hashing, about 110 bytes a new block of 16 tokens."""

    __slots__ = ("_first", "_labels", "_others", "_roots", "_tails")

    def __init__(self) -> None:
        self._labels: list[bytes] = []
        self._first = array("q")
        self._others: dict[int, list[tuple[bytes, int]]] = {}
        self._tails: dict[int, list[bytes]] = {}
        self._roots: dict[str, int] = {}

    def __len__(self) -> int:
        """Nodes numbered so far."""
        return len(self._labels)

    def _root(self, namespace: str) -> int:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = self._new(b"")
        return root

    def _new(self, label: bytes) -> int:
        self._labels.append(label)
        self._first.append(-1)
        return len(self._labels) - 1

    def _child(self, node: int, label: bytes) -> int:
        first = self._first[node]
        if first < 0 or self._labels[first] == label:
            return first
        others = self._others.get(node)
        if others:
            at = bisect_left(others, (label,))
            if at < len(others) and others[at][0] == label:
                return others[at][1]
        return -1

    def match(self, namespace: str, data: bytes, ruler: Ruler, known: Nodes, skip: int = 0) -> tuple[Nodes, int]:
        """Longest prefix of ``data`` that any stored sequence of ``namespace`` begins with.

        Args:
            namespace: Model, LoRA and salt as one key.
            data: The prompt's bytes, its first ``skip`` left out.
            ruler: Where blocks begin.
            known: Nodes of leading blocks already known to match (from the session's previous prompt); extended in place.
            skip: Bytes that lie in ``known`` blocks and need not be handed in.

        Returns:
            Nodes of the full blocks that match, and the length of the match in bytes.
        """
        nodes = known
        node = nodes[-1] if nodes else self._root(namespace)
        size = len(data)
        start = ruler.offset(len(nodes)) - skip
        while (end := ruler.offset(len(nodes) + 1) - skip) <= size:
            child = self._child(node, data[start:end])
            if child < 0:
                break
            nodes.append(child)
            node, start = child, end
        return nodes, skip + start + self._partial(node, data[start:end], 4 if ruler.exact else 1)

    def store(self, namespace: str, data: bytes, ruler: Ruler, known: Nodes, skip: int = 0) -> Nodes:
        """Add a sequence; ``known`` are nodes of its leading blocks already in the tree. Extends it to all its full blocks.

        ``data`` and ``skip`` are as in :meth:`match`.
        """
        nodes = known
        node = nodes[-1] if nodes else self._root(namespace)
        size = len(data)
        start = ruler.offset(len(nodes)) - skip
        while (end := ruler.offset(len(nodes) + 1) - skip) <= size:
            label = data[start:end]
            child = self._child(node, label)
            if child < 0:
                child = self._new(label)
                if self._first[node] < 0:
                    self._first[node] = child
                else:
                    insort(self._others.setdefault(node, []), (label, child))
            nodes.append(child)
            node, start = child, end
        if start < size:
            tails = self._tails.setdefault(node, [])
            tail = data[start:size]
            at = bisect_left(tails, tail)
            if at == len(tails) or tails[at] != tail:
                tails.insert(at, tail)
        return nodes

    def _partial(self, node: int, rest: bytes, width: int) -> int:
        """Bytes of ``rest`` shared with any continuation of ``node``, in whole units of ``width``.

        Continuations are kept sorted, so the longest common prefix is with a neighbour.
        """
        best = 0
        first = self._first[node]
        if first >= 0:
            best = common_prefix(self._labels[first], rest)
        others = self._others.get(node)
        if others:
            at = bisect_left(others, (rest,))
            for label, _ in others[max(at - 1, 0) : at + 1]:
                best = max(best, common_prefix(label, rest))
        tails = self._tails.get(node)
        if tails:
            at = bisect_left(tails, rest)
            for label in tails[max(at - 1, 0) : at + 1]:
                best = max(best, common_prefix(label, rest))
        return best - best % width


class HashTree:
    """The same numbering for traces that record block hashes.

    A hash should name its block and all before it. Where one follows two different blocks it names its content alone, and is then
    numbered once per predecessor, so that a chain stays a chain.
    """

    __slots__ = ("_forks", "_nodes", "_parents", "_roots")

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, int]] = {}
        self._roots: dict[str, int] = {}  # a negative "parent" for the first block of each namespace
        self._parents = array("q")
        self._forks: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        """Nodes numbered so far."""
        return len(self._parents)

    def _root(self, namespace: str) -> int:
        return self._roots.setdefault(namespace, -1 - len(self._roots))

    def match(self, namespace: str, hashes: Sequence[int], known: Nodes) -> Nodes:
        """Extends ``known`` to the nodes of all leading blocks that any stored sequence of ``namespace`` has."""
        table = self._nodes.get(namespace, {})
        parents = self._parents
        nodes = known
        parent = nodes[-1] if nodes else self._root(namespace)
        for value in hashes[len(nodes) :]:
            node = table.get(value)
            if node is None:
                break
            if parents[node] != parent:
                node = self._forks.get((parent, value))
                if node is None:
                    break
            nodes.append(node)
            parent = node
        return nodes

    def store(self, namespace: str, hashes: Sequence[int], known: Nodes) -> Nodes:
        """Add a sequence; extends ``known``, the nodes of its leading blocks, to the nodes of all its blocks."""
        table = self._nodes.setdefault(namespace, {})
        parents = self._parents
        nodes = known
        parent = nodes[-1] if nodes else self._root(namespace)
        for value in hashes[len(nodes) :]:
            size = len(parents)
            node = table.setdefault(value, size)
            if node != size and parents[node] != parent:
                node = self._forks.setdefault((parent, value), size)
            if node == size:
                parents.append(parent)
            nodes.append(node)
            parent = node
        return nodes


def common_prefix(a: bytes | str | Sequence[int], b: bytes | str | Sequence[int], start: int = 0) -> int:
    """Length of the common prefix of two sequences of one kind, given that the first ``start`` elements agree.

    Slices are compared whole (at the speed of memory) and halved only around the first difference.
    """
    end = min(len(a), len(b))
    step = 256
    while start < end:
        stop = min(start + step, end)
        if a[start:stop] == b[start:stop]:
            start = stop
            step *= 2
        elif stop - start == 1:
            return start
        else:
            end = stop
            step = max((stop - start) // 2, 1)
    return start

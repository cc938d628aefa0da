"""Workers of a simulated fleet: which of them holds which prefix, and which one a request is sent to."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import count
from typing import Literal, Protocol

from warmgate.prefix.blocks import Nodes
from warmgate.prefix.cache import PrefixCache

Route = Literal["sticky", "random", "round_robin"]
ROUTES: tuple[Route, ...] = ("sticky", "random", "round_robin")

AGENT = 0
"""Space of sequences in the agent's own prompt format."""
JSON = 1
"""Space of sequences that carry the same conversation as JSON: they share with each other as the prompts do, and with nothing else."""


class Worker(Protocol):
    """A worker's prefix cache as a simulation sees it. ``upto`` and results are full blocks."""

    def fits(self, tokens: int) -> bool:
        """Whether a prompt of ``tokens`` tokens has room here at all. An engine refuses one that has not."""
        ...

    def hit(self, space: int, nodes: Nodes, upto: int) -> int:
        """Leading blocks of ``nodes[:upto]`` that are resident."""
        ...

    def serve(self, space: int, nodes: Nodes, upto: int, tokens: int, prompt_tokens: int, times: int = 1) -> None:
        """Run a request: ``nodes[:upto]`` stay behind, the rest of ``tokens`` is unshared ground. What does not fit leaves nothing.

        Args:
            space: :data:`AGENT` or :data:`JSON`.
            nodes: The request's blocks; those that others may share come first.
            upto: How many of them.
            tokens: Prompt and answer. An answer that has no room is cut.
            prompt_tokens: The prompt alone.
            times: Requests that follow each other; more than one only without an answer, and with tokens behind the shared blocks.
        """
        ...

    def ever(self, space: int, nodes: Nodes, index: int) -> bool:
        """Whether block number ``index`` was served here at any time, had there been room for it or not."""
        ...


PAGE = 256
"""Nodes whose flags are kept together. Small, since a fleet of thousands of workers holds a few blocks on each."""

_SET = b"\1" * PAGE


class _Nodes:
    """A set of nodes that holds all nodes before each of its own: a page of flags for every stretch of numbers that is in use."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def __contains__(self, node: int) -> bool:
        page = self._pages.get(node // PAGE)
        return page is not None and page[node % PAGE] == 1

    def leading(self, nodes: Nodes, upto: int) -> int:
        """How many of ``nodes[:upto]`` are in the set. Found by bisection: whoever holds a block holds all before it."""
        pages = self._pages
        low, high = 0, min(upto, len(nodes))
        middle = high - 1  # most often all of them are
        while low < high:
            node = nodes[middle]
            page = pages.get(node // PAGE)
            if page is not None and page[node % PAGE]:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def add(self, nodes: Nodes, upto: int) -> None:
        """Put ``nodes[:upto]`` in."""
        fresh = nodes[self.leading(nodes, upto) : upto]
        if not fresh:
            return
        first, end = fresh[0], fresh[-1] + 1
        if end - first != len(fresh):
            for node in fresh:
                self._page(node // PAGE)[node % PAGE] = 1
            return
        while first < end:  # numbers grow along a chain (a block is numbered after the one before it), so these are consecutive
            number, at = divmod(first, PAGE)
            stop = min(PAGE, at + end - first)
            self._page(number)[at:stop] = _SET[at:stop]
            first += stop - at

    def _page(self, number: int) -> bytearray:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(PAGE)
        return page


class UnboundedWorker:
    """Never evicts. A block is resident exactly when a sequence through it was served, so one flag a block suffices."""

    __slots__ = ("_spaces",)

    def __init__(self) -> None:
        self._spaces = (_Nodes(), _Nodes())

    def fits(self, tokens: int) -> bool:
        """Everything does."""
        del tokens
        return True

    def hit(self, space: int, nodes: Nodes, upto: int) -> int:
        """Blocks that were served here before."""
        return self._spaces[space].leading(nodes, upto)

    def serve(self, space: int, nodes: Nodes, upto: int, tokens: int, prompt_tokens: int, times: int = 1) -> None:
        """Flag the new blocks."""
        del tokens, prompt_tokens, times
        self._spaces[space].add(nodes, upto)

    def ever(self, space: int, nodes: Nodes, index: int) -> bool:
        """Resident and ever served are one here."""
        return nodes[index] in self._spaces[space]


class BoundedWorker:
    """A worker whose cache holds ``blocks`` blocks and evicts as vLLM does."""

    __slots__ = ("_cache", "_ever")

    def __init__(self, block_size: int, blocks: int) -> None:
        self._cache = PrefixCache(block_size, blocks)
        self._ever = UnboundedWorker()

    def fits(self, tokens: int) -> bool:
        """Whether all blocks of the prompt have room at once."""
        return self._cache.fits(tokens)

    def hit(self, space: int, nodes: Nodes, upto: int) -> int:
        """Blocks in the cache."""
        cache = self._cache
        if space == AGENT:
            return cache.peek(nodes, upto * cache.block_size + 1)
        return bisect_left(range(min(upto, len(nodes))), True, key=lambda index: ~nodes[index] not in cache)

    def serve(self, space: int, nodes: Nodes, upto: int, tokens: int, prompt_tokens: int, times: int = 1) -> None:
        """Admit, extend by the answer and end; unshared full blocks take room too."""
        self._ever.serve(space, nodes, upto, tokens, prompt_tokens)
        if self._cache.fits(prompt_tokens):
            self._cache.run(_keys(space, nodes, upto), tokens, prompt_tokens, times)

    def ever(self, space: int, nodes: Nodes, index: int) -> bool:
        """Remembered apart from what is resident."""
        return self._ever.ever(space, nodes, index)


def _keys(space: int, nodes: Nodes, upto: int) -> Sequence[int]:
    part = nodes[:upto]
    return part if space == AGENT else list(map(int.__invert__, part))


class Pool:
    """Workers with ``kv_tokens`` tokens of cache each, or with no bound, each made when its first request comes.

    Args:
        size: How many there are.
        block_size: Tokens per block.
        kv_tokens: Cache of each in tokens, or ``None``.
    """

    __slots__ = ("_block_size", "_blocks", "_made", "size")

    def __init__(self, size: int, block_size: int, kv_tokens: int | None) -> None:
        self.size = size
        self._block_size = block_size
        self._blocks = None if kv_tokens is None else max(1, kv_tokens // block_size)
        self._made: dict[int, Worker] = {}

    def __getitem__(self, index: int) -> Worker:
        worker = self._made.get(index)
        if worker is None:
            if not 0 <= index < self.size:
                raise IndexError(index)
            worker = UnboundedWorker() if self._blocks is None else BoundedWorker(self._block_size, self._blocks)
            self._made[index] = worker
        return worker

    def __len__(self) -> int:
        """Workers made so far."""
        return len(self._made)


class Sticky:
    """Where sessions live: the same worker for all requests of one. Several simulations of a trace share one, which hashes each once.

    Args:
        workers: How many there are.
    """

    __slots__ = ("_chosen", "_hashes")

    def __init__(self, workers: int) -> None:
        self._hashes = [blake2b(digest_size=8, salt=w.to_bytes(8, "big")) for w in range(workers)]
        self._chosen: dict[str, int] = {}

    def __call__(self, session: str) -> int:
        """A worker's index, by highest random weight hashing: the largest hash of (worker, session) wins.

        After Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998).
        """
        worker = self._chosen.get(session)
        if worker is None:
            worker = self._chosen[session] = self._choose(session) if len(self._hashes) > 1 else 0
        return worker

    def _choose(self, session: str) -> int:
        key = session.encode("utf-8", "surrogatepass")
        best, at = b"", 0
        for index, salted in enumerate(self._hashes):
            made = salted.copy()
            made.update(key)
            if (digest := made.digest()) > best:
                best, at = digest, index
        return at


def router(route: Route, workers: int, seed: int = 0, *, sticky: Sticky | None = None) -> Callable[[str], int]:
    """A function from session to worker index, called once a request.

    Args:
        route: ``sticky``; ``random``, which draws anew for every request, reproducibly; or ``round_robin``.
        workers: How many there are.
        seed: Of the draws.
        sticky: Shared with other simulations of the same fleet.
    """
    if workers == 1:
        return lambda _session: 0
    if route == "sticky":
        return Sticky(workers) if sticky is None else sticky
    if route == "random":
        draw = random.Random(seed)  # noqa: S311 -- a reproducible simulation, not a secret
        return lambda _session: draw.randrange(workers)
    turns = count()
    return lambda _session: next(turns) % workers

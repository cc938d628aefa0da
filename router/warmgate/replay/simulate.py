"""Workers of a simulated fleet: which of them holds which prefix, and which one a request is sent to."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import count
from typing import Literal, Protocol

from warmgate.prefix.blocks import Nodes
from warmgate.prefix.cache import CacheFull, PrefixCache

Route = Literal["sticky", "random", "round_robin"]
ROUTES: tuple[Route, ...] = ("sticky", "random", "round_robin")

AGENT = 0
"""Space of sequences in the agent's own prompt format."""
JSON = 1
"""Space of sequences that carry the same conversation as JSON: they share with each other as the prompts do, and with nothing else."""


class Worker(Protocol):
    """A worker's prefix cache as a simulation sees it. ``upto`` and results are full blocks."""

    def hit(self, space: int, nodes: Nodes, upto: int) -> int:
        """Leading blocks of ``nodes[:upto]`` that are resident."""
        ...

    def serve(self, space: int, nodes: Nodes, upto: int, hit: int, tokens: int, prompt_tokens: int) -> None:
        """Run one request: ``hit`` blocks were found, ``nodes[:upto]`` stay behind, the rest of ``tokens`` is unshared ground.

        ``tokens`` counts prompt and answer, ``prompt_tokens`` the prompt alone.
        """
        ...

    def ever(self, space: int, nodes: Nodes, index: int) -> bool:
        """Whether block number ``index`` was stored here at any time."""
        ...


class UnboundedWorker:
    """Never evicts. A block is resident exactly when a sequence through it was served, so one flag a block suffices."""

    __slots__ = ("_flags",)

    def __init__(self) -> None:
        self._flags = (bytearray(), bytearray())

    def hit(self, space: int, nodes: Nodes, upto: int) -> int:
        """Found by bisection: whoever holds a block holds all before it."""
        flags = self._flags[space]
        size = len(flags)
        low, high = 0, min(upto, len(nodes))
        if high and nodes[high - 1] < size and flags[nodes[high - 1]]:
            return high
        while low < high:
            middle = (low + high) // 2
            if nodes[middle] < size and flags[nodes[middle]]:
                low = middle + 1
            else:
                high = middle
        return low

    def serve(self, space: int, nodes: Nodes, upto: int, hit: int, tokens: int, prompt_tokens: int) -> None:
        """Flag the new blocks."""
        del tokens, prompt_tokens
        flags = self._flags[space]
        fresh = nodes[hit:upto]
        if not fresh:
            return
        if (top := max(fresh)) >= len(flags):
            flags.extend(bytes(max(top + 1 - len(flags), len(flags) // 2, 1024)))
        for node in fresh:
            flags[node] = 1

    def ever(self, space: int, nodes: Nodes, index: int) -> bool:
        """Resident and ever stored are one here."""
        flags = self._flags[space]
        return nodes[index] < len(flags) and bool(flags[nodes[index]])


class BoundedWorker:
    """A worker whose cache holds ``blocks`` blocks and evicts as vLLM does."""

    __slots__ = ("_cache", "_ever", "_unique", "overfull")

    def __init__(self, block_size: int, blocks: int) -> None:
        self._cache = PrefixCache(block_size, blocks)
        self._ever = UnboundedWorker()
        self._unique = count(1 << 60)
        self.overfull = 0
        """Requests larger than the whole pool. An engine would refuse them; here they compute everything and store nothing."""

    def hit(self, space: int, nodes: Nodes, upto: int) -> int:
        """Walk the chain from the front, as the engine does."""
        cache = self._cache
        for index, key in enumerate(_keys(space, nodes, upto)):
            if key not in cache:
                return index
        return min(upto, len(nodes))

    def serve(self, space: int, nodes: Nodes, upto: int, hit: int, tokens: int, prompt_tokens: int) -> None:
        """Admit, extend by the answer and end one request; its unshared full blocks take room too."""
        size = self._cache.block_size
        keys = list(_keys(space, nodes, upto))
        keys += [next(self._unique) for _ in range(tokens // size - len(keys))]
        self._ever.serve(space, nodes, upto, self._ever.hit(space, nodes, upto), tokens, prompt_tokens)
        try:
            lease = self._cache.admit(keys[: prompt_tokens // size], prompt_tokens)
        except CacheFull:
            self.overfull += 1
            return
        try:
            self._cache.extend(lease, keys, tokens)
        except CacheFull:
            self.overfull += 1
        self._cache.release(lease)

    def ever(self, space: int, nodes: Nodes, index: int) -> bool:
        """Remembered apart from what is resident."""
        return self._ever.ever(space, nodes, index)


def _keys(space: int, nodes: Nodes, upto: int) -> Sequence[int] | map[int]:
    part = nodes[:upto]
    return part if space == AGENT else map(int.__invert__, part)


def make_workers(number: int, block_size: int, kv_tokens: int | None) -> list[Worker]:
    """Workers with ``kv_tokens`` tokens of cache each, or with no bound."""
    if kv_tokens is None:
        return [UnboundedWorker() for _ in range(number)]
    return [BoundedWorker(block_size, max(1, kv_tokens // block_size)) for _ in range(number)]


def router(route: Route, workers: int, seed: int = 0) -> Callable[[str], int]:
    """A function from session to worker index. ``random`` draws anew for every request, reproducibly."""
    if workers == 1:
        return lambda _session: 0
    if route == "sticky":
        chosen: dict[str, int] = {}

        def sticky(session: str) -> int:
            worker = chosen.get(session)
            if worker is None:
                worker = chosen[session] = rendezvous(session, workers)
            return worker

        return sticky
    if route == "random":
        draw = random.Random(seed)  # noqa: S311 -- a reproducible simulation, not a secret
        return lambda _session: draw.randrange(workers)
    turns = count()
    return lambda _session: next(turns) % workers


def rendezvous(session: str, workers: int) -> int:
    """Highest random weight hashing (Thaler and Ravishankar, 1998): the worker with the largest hash of (worker, session)."""
    key = session.encode("utf-8", "surrogatepass")
    return max(range(workers), key=lambda w: blake2b(key, digest_size=8, salt=w.to_bytes(8, "big")).digest())


EMPTY: Nodes = array("q")

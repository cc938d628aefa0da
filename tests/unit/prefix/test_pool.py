"""If these fail, predictions without KV events are wrong: the compact pool no longer does what the model of vLLM's pool does."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warmgate.prefix.cache import CacheFull, PrefixCache
from warmgate.prefix.pool import BlockPool

SIZE = 4


def digest(path: tuple[int, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(path).encode()).digest()[-8:], "big")


def crowded(path: tuple[int, ...]) -> int:
    """Names that want the same few places of one table."""
    return digest(path) & ~0xFFFF | digest(path) & 3 << 6


requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), max_size=8),  # the path of its full blocks
        st.integers(0, 4),  # of which generated
        st.integers(0, SIZE - 1),  # tokens behind them
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@example([([0, 0], 0, 0), ([0, 0, 0, 0], 2, 0)], 4, digest)  # the copy is there before the first one is taken
@given(requests, st.one_of(st.none(), st.integers(1, 16)), st.sampled_from([digest, crowded]))
def test_it_is_the_model_of_the_pool(script, capacity, name_of):
    """Hits, evictions and their order would be others' than the worker's."""
    gone, left = [], []
    model = PrefixCache(SIZE, capacity, on_evict=gone.append)
    pool = BlockPool(SIZE, capacity, on_evict=left.append)
    asked = set()
    for path, answer, behind in script:
        names = [name_of(tuple(path[: n + 1])) for n in range(len(path))]
        tokens = len(names) * SIZE + behind
        prompt = max(tokens - answer * SIZE, 1 if tokens else 0)
        if not tokens:
            continue
        assert pool.leading(names) == next((n for n, name in enumerate(names) if name not in model), len(names))
        try:
            lease = model.admit(names[: prompt // SIZE], prompt)
        except CacheFull:
            with pytest.raises(CacheFull):
                pool.serve(names, tokens, prompt)
            continue
        fits = True
        try:
            model.extend(lease, names, tokens)
        except CacheFull:
            fits = False
        model.release(lease)
        assert pool.serve(names, tokens, prompt) is fits
        asked.update(names)
        assert len(pool) == len(model)
        assert {name for name in asked if name in pool} == {name for name in asked if name in model}
        assert left == gone


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(1, 9), min_size=1, max_size=3)), max_size=40))
def test_reads_sent_together_hold_their_partial_blocks_together(script):
    """In a full cache each decision takes up to two blocks more than its reads would one after another: predictions would drift apart."""
    capacity = 20
    model, pool = PrefixCache(SIZE, capacity), BlockPool(SIZE, capacity)
    asked = set()
    for number, (path, tails) in enumerate(script):
        shared = [digest(tuple(path[: n + 1])) for n in range(len(path))]
        leases, partial = [], 0
        for read, tail in enumerate(tails):
            names = [*shared, *(digest((9, number, read, n)) for n in range(tail // SIZE))]
            tokens = len(shared) * SIZE + tail
            leases.append(model.admit(names, tokens))
            assert pool.serve(names, tokens, tokens, partial)
            partial += tokens % SIZE > 0
            asked.update(names)
        for lease in leases:
            model.release(lease)
        assert {name for name in asked if name in pool} == {name for name in asked if name in model}


def test_names_are_found_and_forgotten_in_any_order():
    """A table that loses a name on removing another would call a warm prefix cold."""
    pool = BlockPool(1, 500)
    names = [crowded((n,)) for n in range(2_000)]
    for name in names:
        pool.serve([name], 1, 1)
    assert [name in pool for name in names] == [False] * 1500 + [True] * 500
    assert len(pool) == 500
    assert sum(len(table) for table in pool._tables) < 8 * 500 + 64 * 8


def test_a_block_costs_tens_of_bytes():
    """A gate beside an agent would need more memory than the agent: a quarter of a gigabyte for a million blocks."""
    pool = BlockPool(16, 20_000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for prompt in range(60):
        pool.serve([digest((prompt, n)) for n in range(1_000)], 16_003, 16_003)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(pool) == 19_999  # the last one's partial block took one
    assert used / len(pool) < 64

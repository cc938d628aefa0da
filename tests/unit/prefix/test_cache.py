"""If these fail, every simulated figure under a bounded cache is wrong: the cache no longer behaves as vLLM's does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmgate.prefix.cache import CacheFull, PrefixCache


class BlockPool:
    """vLLM's block pool written out naively: a list of physical blocks and a list as free queue."""

    def __init__(self, capacity):
        self.key = [None] * capacity
        self.refs = [0] * capacity
        self.queue = list(range(capacity))
        self.order = []  # physical blocks in the order their hash was registered

    def lookup(self, keys, limit):
        hit = []
        for key in keys[:limit]:
            found = next((b for b in self.order if self.key[b] == key), None)
            if found is None:
                break
            hit.append(found)
        return hit

    def run(self, keys, tokens, size, answer_keys=(), answer_tokens=0):
        hit = self.lookup(keys, (tokens - 1) // size)
        need = -(-tokens // size) - len(hit)
        if need > len(self.queue) - sum(self.refs[block] == 0 for block in hit):
            return None  # KVCacheManager.allocate_slots asks before it touches
        for block in hit:
            if self.refs[block] == 0:
                self.queue.remove(block)
            self.refs[block] += 1
        held = hit + self.take(need)
        for index, key in enumerate(keys):
            if index >= len(hit):
                self.register(held[index], key)
        return held, len(hit)

    def take(self, need):
        taken, self.queue = self.queue[:need], self.queue[need:]
        for block in taken:
            self.refs[block] = 1
            if self.key[block] is not None:
                self.key[block] = None
                self.order.remove(block)
        return taken

    def register(self, block, key):
        self.key[block] = key
        self.order.append(block)

    def free(self, held):
        first, last = [], []
        for block in reversed(held):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                (last if self.key[block] is not None else first).append(block)
        self.queue = first + self.queue + last


requests = st.lists(
    st.tuples(st.lists(st.integers(0, 3), min_size=0, max_size=6), st.integers(1, 4), st.booleans()), min_size=1, max_size=40
)


@settings(max_examples=100, deadline=None)
@given(requests, st.integers(1, 12))
def test_hits_and_evictions_are_those_of_vllms_block_pool(script, capacity):
    """A replay with --kv-tokens would name evictions that never happen, or miss those that do."""
    size = 4
    pool = BlockPool(capacity)
    cache = PrefixCache(size, capacity)
    running = []
    for path, tail, overlaps in script:
        keys = [tuple(path[: i + 1]) for i in range(len(path))]
        tokens = len(keys) * size + (tail if tail < size else 0)
        if tokens == 0:
            continue
        if not overlaps:
            for held, lease in running:
                pool.free(held)
                cache.release(lease)
            running = []
        truth = pool.run(keys, tokens, size)
        if truth is None:
            with pytest.raises(CacheFull):
                cache.admit(keys, tokens)
        else:
            lease = cache.admit(keys, tokens)
            assert lease.hit == truth[1]
            running.append((truth[0], lease))
        assert {k for k in pool.key if k is not None} == set(cache._handles)
        assert cache.free_blocks == len(pool.queue)


alone = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), max_size=6),  # path of the shared blocks
        st.integers(0, 5),  # of which the answer's
        st.integers(0, 30),  # tokens behind the shared blocks
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(alone, st.one_of(st.none(), st.integers(1, 20)))
def test_runs_of_nameless_blocks_are_the_same_as_blocks_with_names_of_their_own(script, capacity):
    """Evictions caused by a gate's questions would be counted wrongly: too late, too early, or of the wrong blocks."""
    size = 4
    by_one, by_run = PrefixCache(size, capacity), PrefixCache(size, capacity)
    names = iter(range(10**6))
    for path, answer, behind, times in script:
        keys = [tuple(path[: i + 1]) for i in range(len(path))]
        tokens = len(keys) * size + behind
        if tokens == 0:
            continue
        many = times if behind else 1
        prompt = tokens if many > 1 else max(1, tokens - answer * size)
        first = None
        for _ in range(many):
            whole = keys + [next(names) for _ in range(tokens // size - len(keys))]
            cut = tokens if capacity is None else min(tokens, capacity * size)
            try:
                lease = by_one.admit(whole[: prompt // size], prompt)
            except CacheFull:
                break
            by_one.extend(lease, whole[: cut // size], cut)
            first = lease.hit if first is None else first
            by_one.release(lease)
        if first is None:
            with pytest.raises(CacheFull):
                by_run.run(keys, tokens, prompt, many)
        else:
            assert by_run.run(keys, tokens, prompt, many) == first
        shared = {k for k in by_one._handles if isinstance(k, tuple)}
        assert set(by_run._handles) == shared
        assert by_run.free_blocks == by_one.free_blocks
        order = [by_one._key_of[handle] for handle in by_one._free]
        queue = [[None] * by_run._runs[h] if h in by_run._runs else [by_run._key_of[h]] for h in by_run._free]
        assert [k for part in queue for k in part] == [k if isinstance(k, tuple) else None for k in order]


def test_a_prompt_of_a_billion_blocks_costs_no_memory():
    """One broken count in a trace would take all memory of the machine."""
    for capacity in (None, 1 << 36):
        cache = PrefixCache(16, capacity)
        assert cache.run([1, 2], 1 << 34, 1 << 34, times=1000) == 0
        assert len(cache._key_of) == 2
        assert len(cache._free) == 3
        assert cache.peek([1, 2, 3], 100) == 2
    small = PrefixCache(16, 100)
    with pytest.raises(CacheFull):
        small.run([1, 2], 1 << 34, 1 << 34)
    assert len(small) == 0


def test_a_request_that_does_not_fit_leaves_the_order_of_eviction_alone():
    """A prompt that waits for room would make the blocks of others look recently used."""
    cache = PrefixCache(4, 6)
    cache.release(cache.admit([1, 2], 8))
    cache.release(cache.admit([5, 6], 8))
    held = cache.admit([7, 8], 8)
    with pytest.raises(CacheFull):
        cache.admit([1, 3, 4, 9, 10], 20)
    cache.release(held)
    cache.release(cache.admit([11, 12], 8))
    assert 1 not in cache
    assert 5 in cache


def test_an_answer_that_does_not_fit_leaves_the_request_what_it_held():
    """The pool's count of free blocks would drift, and later prompts would be let in that cannot run."""
    cache = PrefixCache(4, 3)
    lease = cache.admit([1], 6)
    with pytest.raises(CacheFull):
        cache.extend(lease, [1, 2, 3, 4], 16)
    assert cache.free_blocks == 1
    cache.release(lease)
    assert cache.free_blocks == 3


def test_last_token_is_always_computed():
    """A fully cached prompt would be promised as free, but the engine recomputes its last block."""
    cache = PrefixCache(4)
    cache.release(cache.admit([1, 2], 8))
    assert cache.peek([1, 2], 8) == 1
    assert cache.peek([1, 2], 9) == 2


def test_tail_goes_first_and_shared_front_stays():
    """Sessions would lose their system prompt first under pressure."""
    cache = PrefixCache(4, 4)
    cache.release(cache.admit(["a", "b", "c"], 12))
    cache.release(cache.admit(["x", "y"], 8))
    assert "a" in cache
    assert "b" in cache
    assert "c" not in cache


def test_generated_tokens_are_stored_too():
    """The next turn's history would count as recomputed although the engine holds it."""
    cache = PrefixCache(4)
    lease = cache.admit([1], 6)
    cache.extend(lease, [1, 2, 3], 12)
    cache.release(lease)
    assert cache.peek([1, 2, 3, 4], 16) == 3


def test_too_large_a_request_changes_nothing():
    """One oversized prompt would wipe the simulated cache."""
    cache = PrefixCache(4, 3)
    cache.release(cache.admit([1, 2], 8))
    with pytest.raises(CacheFull):
        cache.admit([1, 2, 3, 4], 16)
    assert cache.peek([1, 2, 9], 12) == 2
    assert cache.free_blocks == 3


def test_events_tell_what_became_resident_and_what_left():
    """The stand-in's KV events would disagree with its cache."""
    stored, evicted = [], []
    cache = PrefixCache(4, 2, on_evict=evicted.append, on_store=stored.append)
    cache.release(cache.admit([1, 2], 8))
    cache.release(cache.admit([3], 4))
    assert stored == [1, 2, 3]
    assert evicted == [2]
    assert cache.clear() == 2
    assert evicted == [2, 1, 3]
    assert len(cache) == 0


@pytest.mark.parametrize(("size", "capacity"), [(0, None), (-1, 4), (4, 0)])
def test_senseless_sizes_are_refused(size, capacity):
    """A zero block size would divide by zero deep in a simulation."""
    with pytest.raises(ValueError, match="positive"):
        PrefixCache(size, capacity)

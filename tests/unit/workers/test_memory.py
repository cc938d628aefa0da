"""The memory store. If these fail, sessions wander off their prefix, or a flood of ids eats the process's memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgate.errors import OptionError
from warmgate.workers.affinity import Candidate, MemoryAffinity
from warmgate.workers.counts import Counts

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def these(*stances):
    return [Candidate(worker, 1.0, stance) for worker, stance in zip((A, B, C), stances, strict=False)]


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def store(**options):
    clock = Clock()
    return MemoryAffinity(clock=clock, **options), clock


async def test_a_session_stays_where_it_was_put():
    """Its prefix is there, whatever the hash would say later."""
    memory, _ = store()
    first = await memory.bind("s", these("open", "open"), 60)
    again = await memory.bind("s", these("open", "open")[::-1], 60)
    assert (first.worker, first.fresh, first.reason) == (A, True, "hashed")
    assert (again.worker, again.fresh, again.moved_from) == (A, False, None)


@pytest.mark.parametrize(("stance", "reason"), [("worker_lost", "worker_lost"), ("drained", "drained")])
async def test_a_session_leaves_once_and_says_why(stance, reason):
    memory, _ = store()
    await memory.bind("s", these("open", "open"), 60)
    moved = await memory.bind("s", these(stance, "open"), 60)
    assert (moved.worker, moved.fresh, moved.moved_from, moved.reason, moved.moves) == (B, True, A, reason, 1)
    back = await memory.bind("s", these("open", "open"), 60)
    assert (back.worker, back.fresh, back.moved_from, back.reason, back.moves) == (B, False, A, reason, 1)


async def test_a_worker_that_left_the_pool_lets_its_sessions_go():
    memory, _ = store()
    await memory.bind("s", these("open", "open"), 60)
    moved = await memory.bind("s", these("open", "open")[1:], 60)
    assert (moved.worker, moved.moved_from, moved.reason) == (B, A, "removed")


async def test_a_worker_that_only_keeps_gets_nobody_new():
    memory, _ = store()
    await memory.bind("s", these("open", "open"), 60)
    assert (await memory.bind("s", these("keep", "open"), 60)).worker == A
    assert (await memory.bind("t", these("keep", "open"), 60)).worker == B


async def test_a_full_worker_passes_the_next_session_on():
    """Two sessions with the same favourite share two workers, and the binding says that the bound bent the hash."""
    memory, _ = store(bound=1.0)
    first = await memory.bind("s", these("open", "open"), 60)
    second = await memory.bind("t", these("open", "open"), 60)
    assert (first.worker, second.worker, second.reason) == (A, B, "bounded")
    assert (await memory.bind("s", these("open", "open"), 60)).worker == A


async def test_use_renews_and_rest_ends_a_binding():
    memory, clock = store()
    await memory.bind("s", these("open", "open"), 60)
    for _ in range(5):
        clock.now += 50
        assert not (await memory.bind("s", these("open", "open")[::-1], 60)).fresh
    clock.now += 61
    assert (await memory.bind("s", these("open", "open")[::-1], 60)).worker == B


async def test_endless_ids_push_out_the_oldest_and_no_more():
    """A hostile client that makes up session ids must not grow the process."""
    counts = Counts()
    memory, _ = store(max_entries=100, counts=counts)
    for number in range(10_000):
        await memory.bind(f"{number}", these("open", "open"), 1e9)
    assert len(memory) == 100
    assert memory.load(A) + memory.load(B) == 100
    assert counts.total("store_evicted") == 9_900
    assert not (await memory.bind("9999", these("open", "open"), 60)).fresh


async def test_released_sessions_make_room():
    memory, _ = store()
    await memory.bind("s", these("open"), 60)
    await memory.release("s")
    await memory.release("never seen")
    assert (len(memory), memory.load(A)) == (0, 0)


def test_a_store_without_room_is_refused():
    with pytest.raises(OptionError, match="at least one session"):
        MemoryAffinity(0)
    with pytest.raises(OptionError, match="at least 1"):
        MemoryAffinity(bound=0.5)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("stuvwxyz"),
            st.lists(st.sampled_from(["open", "keep", "worker_lost", "drained"]), min_size=3, max_size=3),
            st.floats(0, 40),
        ),
        max_size=60,
    )
)
async def test_loads_are_what_is_bound(steps):
    """The load bound is only as good as the counting: it must survive any mix of moves, expiries and evictions."""
    memory, clock = store(max_entries=5)
    for session, stances, wait in steps:
        clock.now += wait
        if "open" not in stances:
            continue
        before = memory.entry(session)
        binding = await memory.bind(session, these(*stances), 60)
        stance = dict(zip((A, B, C), stances, strict=True))
        if binding.fresh:
            assert stance[binding.worker] == "open"
            assert before is None or stance[before.worker] in ("worker_lost", "drained")
        else:
            assert before is not None
            assert before.worker == binding.worker
        live = [entry.worker for _, entry in memory.entries()]
        assert len(live) <= 5
        assert [memory.load(w) for w in (A, B, C)] == [live.count(w) for w in (A, B, C)]

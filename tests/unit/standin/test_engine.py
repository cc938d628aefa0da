"""The engine that computes nothing: admission, hits, eviction, waiting, and events that match the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmgate.standin.engine import Adapter, Engine, Output, Prompt
from warmgate.standin.events import AllBlocksCleared, BlockRemoved, BlockStored

ONE = Output([7], "length")


async def run(engine: Engine, *prompts: Any, output: Output = ONE) -> list[int]:
    """Admit prompts together and end them; their cached tokens."""
    admitted = await engine.admit([p if isinstance(p, Prompt) else Prompt(p) for p in prompts], [output] * len(prompts))
    engine.finish(*admitted)
    return [run.cached for run in admitted]


def ids(count: int, start: int = 0) -> list[int]:
    return list(range(start, start + count))


async def test_whole_blocks_hit_and_never_the_last_tokens():
    """A fully cached prompt still computes its last block."""
    engine = Engine(4, 400)
    assert await run(engine, ids(12)) == [0]
    assert await run(engine, ids(12)) == [8]
    assert await run(engine, ids(13)) == [12]
    assert await run(engine, ids(4)) == [0]


async def test_siblings_hit_on_each_other():
    """A cold decision's questions share its prompt: one computes, the others hit."""
    engine = Engine(4, 400)
    shared = ids(20)
    assert await run(engine, [*shared, 100], [*shared, 101], [*shared, 102]) == [0, 20, 20]
    c = engine.counters
    assert (c.queries, c.hits, c.computed_tokens, c.cached_tokens) == (63, 40, 23, 40)
    assert c.prompt_tokens == c.computed_tokens + c.cached_tokens


async def test_replies_are_readable_but_for_their_last_token():
    engine = Engine(4, 400)
    await run(engine, ids(6), output=Output(ids(7, 6), "stop"))  # 13 tokens, 12 of them computed
    assert await run(engine, [*ids(13), 99]) == [12]
    assert engine.counters.generation_tokens == 8


@pytest.mark.parametrize("other", [{"salt": "s"}, {"adapter": Adapter("l")}, {"media": (("d", 0, 4),)}])
async def test_namespaces_share_nothing(other: dict[str, Any]):
    """A leak between salts or adapters would answer one tenant from another's prompt."""
    engine = Engine(4, 400)
    await run(engine, Prompt(ids(20)))
    assert await run(engine, Prompt(ids(20), **other)) == [0]
    assert await run(engine, Prompt(ids(20), **other)) == [16]


async def test_adapters_differ_by_path():
    engine = Engine(4, 400)
    await run(engine, Prompt(ids(20), adapter=Adapter("l", "/a")))
    assert await run(engine, Prompt(ids(20), adapter=Adapter("l", "/b"))) == [0]


async def test_a_small_cache_forgets_the_oldest_prompts_tail():
    engine = Engine(4, 40)  # ten blocks; three prompts need twelve
    for start in (0, 100, 200):
        await run(engine, ids(16, start))
    assert await run(engine, ids(17, 200)) == [16]
    assert await run(engine, ids(17)) == [8 - 4]  # and one more block went to the request before


async def test_requests_wait_for_room_in_their_order():
    """A pool held by slow requests lets nobody in, and then the longest waiting first."""
    engine = Engine(4, 40)
    held = await engine.admit([Prompt(ids(40))], [ONE])
    order: list[str] = []

    async def late(name: str, start: int) -> None:
        runs = await engine.admit([Prompt(ids(20, start))], [ONE])
        order.append(name)
        engine.finish(*runs)

    tasks = [asyncio.create_task(late(name, start)) for name, start in (("a", 100), ("b", 200), ("c", 300))]
    await asyncio.sleep(0)
    assert (engine.counters.running, engine.counters.waiting, engine.usage) == (1, 3, 1.0)
    engine.finish(*held)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert (engine.counters.running, engine.counters.waiting, engine.usage) == (0, 0, 0.0)


async def test_a_client_that_leaves_the_queue_holds_nobody_up():
    engine = Engine(4, 40)
    held = await engine.admit([Prompt(ids(40))], [ONE])
    leaving = asyncio.create_task(engine.admit([Prompt(ids(20, 100))], [ONE]))
    staying = asyncio.create_task(engine.admit([Prompt(ids(20, 200))], [ONE]))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    engine.finish(*held)
    runs = await staying
    engine.finish(*runs)
    assert (engine.counters.running, engine.counters.waiting) == (0, 0)
    assert engine.cache.free_blocks == 10


async def test_a_client_that_leaves_as_it_is_admitted_gives_its_blocks_back():
    engine = Engine(4, 40)
    held = await engine.admit([Prompt(ids(40))], [ONE])
    leaving = asyncio.create_task(engine.admit([Prompt(ids(20, 100))], [ONE]))
    await asyncio.sleep(0)
    engine.finish(*held)  # admits the waiting request before its task runs again
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert engine.cache.free_blocks == 10
    assert engine.counters.running == 0


async def test_questions_that_do_not_fit_together_run_one_after_another():
    """A decision larger than the pool must not wait for itself."""
    engine = Engine(4, 40)
    prompts = [ids(30, 100 * n) for n in range(4)]
    assert await asyncio.wait_for(run(engine, *prompts), 5) == [0, 0, 0, 0]
    assert engine.counters.running == 0


async def test_an_aborted_request_leaves_its_prompt_readable():
    """A decision cut off by the client's deadline still warms the agent's call."""
    engine = Engine(4, 400)
    runs = await engine.admit([Prompt(ids(20))], [Output(ids(9, 50))])
    engine.abort(*runs)
    engine.finish(*runs)  # too late, and without effect
    assert engine.counters.finished["abort"] == 1
    assert engine.counters.generation_tokens == 0
    assert await run(engine, ids(21)) == [20]


class Recorder:
    """What a publisher would send."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def publish(self, events: list[Any]) -> None:
        assert events
        self.events += events


def watched(engine: Engine) -> Recorder:
    recorder = Recorder()
    engine.publisher = recorder  # type: ignore[assignment]
    return recorder


async def test_clearing_the_cache():
    engine = Engine(4, 400)
    seen = watched(engine)
    await run(engine, ids(20))
    engine.clear()
    assert isinstance(seen.events[-1], AllBlocksCleared)
    assert await run(engine, ids(20)) == [0]


async def test_events_name_chain_and_tokens():
    engine = Engine(4, 400)
    seen = watched(engine)
    await run(engine, Prompt(ids(9), salt="s", session="one"))
    await run(engine, Prompt(ids(13), salt="s"))
    first, second = seen.events
    assert (first.parent_block_hash, first.token_ids, first.session_id) == (None, ids(8), "one")
    assert first.extra_keys == [("s",), None]
    assert (second.parent_block_hash, second.token_ids) == (first.block_hashes[-1], ids(4, 8))


async def test_each_copy_of_a_block_is_taken_back_on_its_own():
    """A router that counts copies would believe a block gone while a worker still serves it, or the other way round."""
    engine = Engine(4, 24)  # six blocks
    seen = watched(engine)
    await run(engine, ids(8))
    await run(engine, ids(8))  # the last block of a prompt that fills it is computed again: a second copy
    twice = seen.events[0].block_hashes[1]
    assert [event.block_hashes for event in seen.events] == [seen.events[0].block_hashes, [twice]]
    del seen.events[:]
    await run(engine, Prompt(ids(16, 100)))  # takes the three unused blocks and the one freed first: the first copy
    removed = [event.block_hashes for event in seen.events if isinstance(event, BlockRemoved)]
    assert removed == [[twice]]
    assert await run(engine, ids(9)) == [8]  # the other copy is still found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_events_add_up_to_the_cache(requests: list[tuple[int, int]]):
    """A router that counts announcements and removals must end with exactly the resident blocks."""

    async def play() -> None:
        engine = Engine(3, 60)
        seen = watched(engine)
        names: dict[int, int] = {}
        for start, length in requests:
            await run(engine, ids(length, start // 2 * 1000 + start % 2 * (length // 2)))
        for event in seen.events:
            if isinstance(event, BlockStored):
                for name in event.block_hashes:
                    names[name] = names.get(name, 0) + 1
            elif isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    names[name] -= 1
                    assert names[name] >= 0
        assert sum(count > 0 for count in names.values()) == len(engine.cache)

    asyncio.run(play())

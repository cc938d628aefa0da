"""Following workers as they are found: with events, without, and those that cannot be followed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx

from tests.integration.events.traffic import until
from warmgate.prefix.follow import CacheFacts, Following
from warmgate.prefix.hashes import wire_names
from warmgate.prefix.survival import Prompt
from warmgate.standin import StandIn


def getter(url: str) -> Callable[[str], Awaitable[str]]:
    async def get(path: str) -> str:
        async with httpx.AsyncClient() as client:
            reply = await client.get(url + path)
            reply.raise_for_status()
            return reply.text

    return get


async def test_with_and_without_events():
    following = Following()
    with StandIn(block_size=32, kv_tokens=3200, kv_events_port=0) as one, StandIn(block_size=32, kv_tokens=3200) as two:
        try:
            assert await following.add(one.url, getter(one.url))
            assert await following.add(two.url, getter(two.url))
            assert following.tracker is not None
            assert following.names is not None
            first, second = following.tracker.index(one.url), following.tracker.index(two.url)
            assert first is not None
            assert second is not None
            assert (first.source, second.source) == ("events", "model")
            assert second.doubt is None
            assert "no KV events" in following.reasons[two.url]
            assert until(lambda: (status := following.status(one.url)) is not None and status.state == "fresh")
            names = wire_names(following.names.of(list(range(100))))
            (expected,) = following.tracker.expect(one.url, Prompt("s", names, 100))
            assert expected.captured == 0
            assert expected.doubt is None
        finally:
            following.close()
    assert following.status(one.url) is None


async def test_what_cannot_be_followed_says_why():
    """A gate would stop at a worker that shows no metrics, or predict nonsense for one whose blocks differ."""

    async def dead(path: str) -> str:
        raise OSError("connection refused")

    async def page(path: str) -> str:
        return "<html>"

    def facts(**labels: str) -> Callable[[str], Awaitable[str]]:
        async def get(path: str) -> str:
            return "vllm:cache_config_info{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "} 1.0\n"

        return get

    following = Following()
    assert not await following.add("http://a", dead)
    assert not await following.add("http://b", page)
    assert not await following.add("http://c", facts(block_size="16", enable_prefix_caching="False"))
    assert not await following.add("http://d", facts(block_size="16", prefix_caching_hash_algo="xxhash"))
    assert await following.add("http://e", facts(block_size="16", num_gpu_blocks="100"))
    assert not await following.add("http://f", facts(block_size="32"))
    words = ["refused", "does not say", "is off", "random", "no KV events", "not those"]
    assert [word in reason for word, reason in zip(words, following.reasons.values(), strict=True)] == [True] * 6
    assert CacheFacts.of('vllm:cache_config_info{block_size="x"} 1') is None
    following.close()


async def test_a_worker_that_served_before_is_no_empty_one():
    """After a restart of the gate alone, a warm cache would be predicted cold, and nobody told that this is a guess."""
    with StandIn(block_size=32, kv_tokens=3200) as worker:
        async with httpx.AsyncClient() as client:
            body = {"model": "standin", "messages": [{"role": "user", "content": "words " * 100}], "max_tokens": 1}
            (await client.post(worker.url + "/v1/chat/completions", json=body)).raise_for_status()
        following = Following()
        assert await following.add(worker.url, getter(worker.url))
        assert following.tracker is not None
        index = following.tracker.index(worker.url)
        assert index is not None
        assert "before it was followed" in (index.doubt or "")
        following.tracker.stored(worker.url, [1])
        following.tracker.restarted(worker.url)
        assert index.doubt is None
        following.close()

"""If these fail, a user pays for alignment where the cache keeps nothing, or forgoes it where it would pay."""

from __future__ import annotations

import httpx
import pytest

from .fake import FakeVllm, check, report


@pytest.mark.parametrize(
    ("cached", "verdict", "status"),
    [
        ([0, 32, 16], "first", "pass"),
        ([0, 32, 0, 16, 0, 16], "planted", "warn"),
        ([0, 32, 0, 16, 0, 0], "second", "warn"),
        ([0, 32, 0, 0, 0, 0], "never", "warn"),
    ],
)
def test_when_a_shared_prefix_is_found(cached, verdict, status):
    """Full attention, recurrent layers, and caches that keep nothing differ in exactly this."""
    fake = FakeVllm()
    fake.cached = cached
    found = report(fake)
    assert found.facts.shorter_prefix == verdict
    assert found.facts.hit_granularity == 16
    got = check(found, "shorter_prefix")
    assert got[0] == status
    if status == "warn":
        assert "--prefix-cache-retention-interval 16" in got[2]
        assert ("plant" in got[2]) == (verdict == "planted")


def test_recurrent_layers_are_told_where_states_are_kept():
    """The retention flag alone does nothing for prompts shorter than a scheduler step: measured on 0.32."""
    fake = FakeVllm()
    fake.cache |= {"mamba_cache_mode": "align", "block_size": "128"}
    fake.cached = [0, 256, 0, 128, 0, 128]
    _, seen, mend = check(report(fake), "shorter_prefix")
    assert "recurrent layers" in seen
    assert "--max-num-batched-tokens" in mend
    assert "--prefix-match-unit 32" in mend
    fake = FakeVllm()
    fake.cache |= {"mamba_cache_mode": "align", "block_size": "128", "prefix_cache_retention_interval": "128"}
    fake.cached = [0, 256, 0, 128, 0, 128]
    assert "its retention interval of 128" in check(report(fake), "shorter_prefix")[2]


def test_reuse_that_begins_one_prompt_late():
    """A fault of vLLM on CPUs whose block size it set itself: named with the flag that cures it, not taken for a dead cache."""
    fake = FakeVllm()
    fake.cache |= {"mamba_cache_mode": "align", "block_size": "384"}
    fake.cached = [0, 0, 768, 0, 384, 0, 0]
    found = report(fake)
    status, seen, mend = check(found, "prefix_caching")
    assert status == "warn"
    assert "768 the third time" in seen
    assert "--block-size 384" in mend
    assert found.facts.shorter_prefix == "second"


def test_counters_where_usage_says_nothing():
    """Cached tokens are known without --enable-prompt-tokens-details, as long as nobody else uses the worker."""
    fake = FakeVllm()
    fake.details = False
    found = report(fake)
    assert check(found, "cached_tokens")[0] == "warn"
    assert "--enable-prompt-tokens-details" in check(found, "cached_tokens")[2]
    assert check(found, "shorter_prefix")[0] == "pass"
    assert "counters" in check(found, "shorter_prefix")[1]
    fake = FakeVllm()
    fake.details = False
    fake.busy = 3
    found = report(fake)
    assert check(found, "shorter_prefix")[:2] == ("skip", "neither usage nor counters tell what was cached")
    assert check(found, "reads_cached")[0] == "skip"


def test_counters_moved_by_others_are_not_taken_for_ours():
    """Another client's hits would be reported as the worker's answer to us."""
    fake = FakeVllm()
    fake.details = False

    def crowded(request: httpx.Request) -> httpx.Response:
        fake.queries += 1000
        fake.hits += 999
        return fake.post_v1_completions(request)

    fake.routes["POST /v1/completions"] = crowded
    assert check(report(fake), "shorter_prefix")[0] == "skip"


def test_prompts_fit_the_model():
    """A worker with a short context would refuse the probe, and the refusal would be read as a fault."""
    fake = FakeVllm()
    fake.cache["block_size"] = "4096"
    found = report(fake)
    assert check(found, "shorter_prefix")[0] == "skip"
    assert "12,288 tokens" in check(found, "shorter_prefix")[1]
    assert not fake.completions


def test_windows_are_passed_by_the_long_tail():
    """A window longer than the probe would look like full attention."""
    fake = FakeVllm()
    fake.cache["sliding_window"] = "2048"
    report(fake)
    assert len(fake.completions[0].content.split(b",")) > 2048 + 24


def test_tokens_are_counted():
    """A user pays for what the doctor sends."""
    fake = FakeVllm()
    found = report(fake)
    assert found.tokens_sent > 0
    assert found.requests == len(fake.seen)
    assert f"{found.tokens_sent:,} tokens" in check(found, "clock")[1]

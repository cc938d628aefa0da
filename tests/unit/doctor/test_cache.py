"""If these fail, a user sizes or trusts a KV cache by a figure that is not the server's."""

from __future__ import annotations

import httpx
import pytest

from .fake import FakeVllm, check, report


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("fp8", "half the memory"),
        ("fp8_e4m3", "half the memory"),
        ("nvfp4", "3.5 times"),
        ("bfloat16", "16 bits"),
        ("auto", "the model's own"),
    ],
)
def test_what_a_dtype_means_for_memory(dtype, words):
    """A quantised cache holds more tokens than its bytes suggest."""
    fake = FakeVllm()
    fake.cache["cache_dtype"] = dtype
    status, seen, _ = check(report(fake), "kv_cache")
    assert status == "pass"
    assert f"dtype {dtype}" in seen
    assert words in seen
    assert "65,536 tokens" in seen


def test_an_unknown_dtype_is_told_as_it_is():
    """A new dtype must not be explained by the wrong sentence."""
    fake = FakeVllm()
    fake.cache["cache_dtype"] = "mystery3"
    assert check(report(fake), "kv_cache")[1].endswith("dtype mystery3")


def test_capacity_from_blocks_where_no_tokens_are_stated():
    """Older releases state blocks alone."""
    fake = FakeVllm()
    del fake.cache["kv_cache_size_tokens"]
    fake.cache["num_gpu_blocks"] = "4096"
    assert report(fake).facts.capacity_tokens == 4096 * 16


def test_a_cache_too_small_for_two_sessions_warns():
    """Two long conversations would evict each other, and nobody would know why nothing survives."""
    fake = FakeVllm()
    fake.cache["kv_cache_size_tokens"] = "9000"
    status, _, mend = check(report(fake), "kv_cache")
    assert status == "warn"
    assert "fp8" in mend


def test_a_prefix_cache_that_is_off_fails_and_nothing_is_sent_to_test_it():
    """Alignment and stickiness buy nothing there; tokens would be wasted on finding out."""
    fake = FakeVllm()
    fake.cache["enable_prefix_caching"] = "False"
    found = report(fake)
    assert check(found, "prefix_caching")[0] == "fail"
    assert "--no-enable-prefix-caching" in check(found, "prefix_caching")[2]
    assert check(found, "shorter_prefix")[:2] == ("skip", "the prefix cache is off")
    assert not fake.completions


@pytest.mark.parametrize(
    ("sources", "status", "words"),
    [
        ({}, "pass", "off"),
        ({"0": {"endpoint": "tcp://*:5557", "replay_endpoint": None}}, "warn", "replay"),
        ({"0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}}, "pass", "tcp://*:5557"),
        ([], "skip", "not told"),
        ({"0": None}, "pass", "off"),
    ],
)
def test_kv_event_sources(sources, status, words):
    """A gate would wait for events that never come, or miss those it was late for."""
    fake = FakeVllm()
    fake.routes["GET /kv_event_sources"] = httpx.Response(200, json=sources)
    found = check(report(fake), "kv_events")
    assert found[0] == status
    assert words in found[1]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (httpx.Response(404), "404"),
        (httpx.Response(200, text="<html>hello</html>"), "no metrics of vLLM"),
        (httpx.Response(200, text='sglang:num_running_reqs{x="1"} 0.0\n'), "sglang"),
    ],
)
def test_without_metrics_what_hangs_on_them_is_skipped(reply, words):
    """Checks would be passed on figures nobody gave."""
    fake = FakeVllm()
    fake.routes["GET /metrics"] = reply
    found = report(fake)
    assert check(found, "metrics")[0] == "warn"
    assert words in check(found, "metrics")[1]
    assert check(found, "kv_cache")[:2] == ("skip", "needs the metrics")
    assert check(found, "one_worker")[:2] == ("skip", "needs the metrics")
    assert check(found, "reads_cached")[0] == "skip"
    assert check(found, "shorter_prefix")[0] == "pass", "usage still tells"

"""The stand-in's metrics page beside a recorded one of a real vLLM 0.32: series, label names and the cache's configuration agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warmgate.doctor.exposition import Metrics
from warmgate.standin.metrics import Counters, render

RECORDED = json.loads((Path(__file__).resolve().parents[2] / "data/metrics/qwen3.json").read_text())["series"]
NOT_SERVED = {
    # What a stand-in has no answer to: it computes nothing and parses no tool calls.
    "vllm:estimated_flops_per_gpu_total",
    "vllm:estimated_read_bytes_per_gpu_total",
    "vllm:estimated_write_bytes_per_gpu_total",
    "vllm:tool_call_parser_invocations_total",
}
PAGE = Metrics(render(Counters(), model="qwen3", block_size=32, blocks=65535, usage=0.0, max_model_len=16384))


def test_every_series_is_there():
    """A dashboard or doctor would say that something is missing which a real worker has."""
    assert set(PAGE.names) == set(RECORDED) - NOT_SERVED


@pytest.mark.parametrize("name", sorted(set(RECORDED) - NOT_SERVED))
def test_label_names_are_vllms(name: str):
    """A query by a label would find nothing."""
    for sample in PAGE.of(name):
        assert sorted(sample.labels) == RECORDED[name]["labels"]


def test_the_cache_configuration_is_that_of_a_model_with_full_attention():
    """Without mamba_cache_mode doctor could not tell full attention from recurrent layers."""
    told = dict(PAGE.of("vllm:cache_config_info")[0].labels)
    real = dict(RECORDED["vllm:cache_config_info"]["values"])
    del told["kv_cache_memory_bytes"], real["kv_cache_memory_bytes"]  # set by hand there; a stand-in has no memory to speak of
    assert told == real


def test_what_waits_is_told_by_reason_as_well():
    page = Metrics(render(Counters(waiting=3), model='a"b', block_size=16, blocks=8, usage=0.0, max_model_len=64))
    assert page.total("vllm:num_requests_waiting_by_reason") == 3
    assert page.of("vllm:num_requests_waiting")[0].labels["model_name"] == 'a"b'

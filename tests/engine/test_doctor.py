"""What `warmgate doctor` says of real servers. If these fail, its report on a user's own vLLM is wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.rig import tiny_models
from tests.engine.rig.server import VllmServer, free_port
from warmgate.doctor import EndpointReport, Options, examine

ORIGIN = "https://app.example"
Servers = Callable[..., VllmServer]


def doctor(url: str, **options) -> EndpointReport:
    return asyncio.run(examine([url], Options(**options), seconds=120)).endpoints[0]


def statuses(found: EndpointReport, *names: str) -> dict[str, str]:
    return {check.name: check.status for check in found.checks if check.name in names}


def row(found: EndpointReport, name: str) -> tuple[str, str, str]:
    one = next(check for check in found.checks if check.name == name)
    return one.status, one.seen, one.mend or ""


def test_0_32_with_full_attention(vllm_qwen3: VllmServer):
    """All is well but the label mass of random weights, and CORS lets nobody in by default."""
    found = doctor(vllm_qwen3.url, origins=(ORIGIN,))
    off = {check.name: check.status for check in found.checks if check.status != "pass"}
    assert off == {"label_mass": "warn", "cors_origin": "fail"}, found.checks
    assert "--allowed-origins" in row(found, "cors_origin")[2]
    facts = found.facts
    assert (facts.server, facts.version, facts.style, facts.gateway, facts.engines) == ("vllm", "0.32.0", "qwen3", False, 1)
    assert (facts.prefix_caching, facts.recurrent, facts.window, facts.retention_interval) == (True, False, None, 0)
    assert facts.hit_granularity == facts.block_size == 32
    assert facts.shorter_prefix == "first"
    assert facts.reads_use_cache is True
    assert facts.cached_tokens_reported is True
    assert facts.request_id == "body"
    assert facts.capacity_tokens is not None
    assert facts.capacity_tokens > 1_000_000
    assert 0 < found.tokens_sent < 2000


def test_the_tokens_the_doctor_counts_are_those_the_engine_saw(vllm_qwen3: VllmServer):
    """A user is told what the examination costs."""
    before = vllm_qwen3.metric("vllm:prompt_tokens_total") + vllm_qwen3.metric("vllm:generation_tokens_total")
    found = doctor(vllm_qwen3.url)
    after = vllm_qwen3.metric("vllm:prompt_tokens_total") + vllm_qwen3.metric("vllm:generation_tokens_total")
    assert found.tokens_sent == after - before


@pytest.mark.engine_all
def test_0_31(vllm_server: Servers):
    """The last release without the route: open to every site, no decisions; its cache is examined all the same."""
    server = vllm_server(version="0.31", token_details=False)
    found = doctor(server.url, origins=(ORIGIN,))
    names = ("version", "route", "cors_stranger", "cors_origin", "cached_tokens", "shorter_prefix", "strategy")
    assert statuses(found, *names) == {
        "version": "warn",
        "route": "fail",
        "cors_stranger": "warn",
        "cors_origin": "pass",
        "cached_tokens": "warn",
        "shorter_prefix": "pass",
        "strategy": "skip",
    }
    assert "older than it" in row(found, "route")[1]
    assert "counters" in row(found, "shorter_prefix")[1]


@pytest.mark.engine_all
@pytest.mark.parametrize(("model", "style"), [("qwen35", "qwen3.5"), ("lfm2vl", "d1")])
def test_recurrent_layers(vllm_server: Servers, model: str, style: str):
    """Only a planted prefix, or the second prompt, is found: the user must hear it before paying for alignment."""
    found = doctor(vllm_server(model=model).url)
    assert found.facts.style == style
    assert found.facts.recurrent is True
    assert found.facts.shorter_prefix == "planted"
    assert statuses(found, "route", "strategy", "prefix_caching", "shorter_prefix") == {
        "route": "pass",
        "strategy": "pass",
        "prefix_caching": "pass",
        "shorter_prefix": "warn",
    }
    assert "--prefix-cache-retention-interval 128" in row(found, "shorter_prefix")[2]


@pytest.mark.engine_all
def test_clef(vllm_server: Servers):
    """Its reads never look into the cache."""
    found = doctor(vllm_server(model="clef").url)
    assert found.facts.style == "clef"
    assert found.facts.reads_use_cache is False
    assert statuses(found, "route", "strategy", "reads_cached") == {"route": "pass", "strategy": "warn", "reads_cached": "warn"}
    assert found.exit_code == 0


@pytest.mark.engine_all
def test_everything_switched_the_other_way(vllm_server: Servers):
    """A key, an origin, request ids, events, and no prefix cache."""
    server = vllm_server(
        api_key="sesame-open", allowed_origins=(ORIGIN,), kv_events=True, prefix_caching=False, extra=("--enable-request-id-headers",)
    )
    assert row(doctor(server.url), "api_key")[0] == "fail"
    found = doctor(server.url, api_key="sesame-open", origins=(ORIGIN, "https://other.example"))
    assert [check.status for check in found.checks if check.name == "cors_origin"] == ["pass", "fail"]
    assert statuses(found, "api_key", "kv_events", "prefix_caching", "shorter_prefix") == {
        "api_key": "pass",
        "kv_events": "pass",
        "prefix_caching": "fail",
        "shorter_prefix": "skip",
    }
    assert "/invocations" in row(found, "api_key")[1]
    assert found.facts.request_id == "header"
    assert not [check for check in found.checks if "sesame" in f"{check.seen}{check.mend}{check.where}"]


@pytest.mark.engine_all
@pytest.mark.parametrize("interval", [0, 32])
def test_a_sliding_window_and_the_flag_that_helps(vllm_server: Servers, tmp_path_factory: pytest.TempPathFactory, interval: int):
    """A model without a decision route may be the agent's own. The flag the report names does what it says."""
    extra = ("--load-format", "dummy", "--prefix-cache-retention-interval", str(interval))
    model = window_model(tmp_path_factory.mktemp("window"))
    found = doctor(vllm_server(model=str(model), served_model_name="window", block_size=32, tools=False, extra=extra, fresh=True).url)
    assert row(found, "route")[0] == "fail"
    assert "501" in row(found, "route")[1]
    if interval:
        assert found.facts.shorter_prefix == "first"
    else:
        assert found.facts.shorter_prefix == "planted"
        assert "--prefix-cache-retention-interval 32" in row(found, "shorter_prefix")[2]


def window_model(folder: Path) -> Path:
    """A Gemma-style model of one windowed and one full layer, without weights, with tiny Qwen3's tokenizer."""
    source = tiny_models.build("qwen3")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(source / name, folder / name)
    known = json.loads((source / "config.json").read_text())
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": "bfloat16",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 64,
        "query_pre_attn_scalar": 64,
        "max_position_embeddings": 32768,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
        "tie_word_embeddings": True,
        **{key: known[key] for key in ("vocab_size", "eos_token_id", "pad_token_id")},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.engine_all
def test_two_ranks_behind_one_address(vllm_server: Servers):
    """Stickiness ends at the address: the user must hear it."""
    found = doctor(vllm_server(extra=("--data-parallel-size", "2"), fresh=True).url)
    assert found.facts.engines == 2
    assert row(found, "one_worker")[0] == "warn"
    assert row(found, "reads_cached")[0] == "skip"


@pytest.mark.engine_all
@pytest.mark.skipif(shutil.which("vllm-router") is None, reason="vllm-router is not on PATH (PyPI has it)")
def test_behind_vllm_router(vllm_qwen3: VllmServer):
    """It passes /version and /metrics of one worker on, drops X-Request-Id, and opens routes to every site that the worker closed."""
    with router(vllm_qwen3.url) as url:
        found = doctor(url)
    assert statuses(found, "gateway", "one_worker", "route", "request_id", "cors_stranger", "shorter_prefix") == {
        "gateway": "warn",
        "one_worker": "skip",
        "route": "pass",
        "request_id": "warn",
        "cors_stranger": "warn",
        "shorter_prefix": "pass",
    }


@contextmanager
def router(worker: str) -> Iterator[str]:
    port = free_port()
    command = ["vllm-router", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", worker, "--policy", "consistent_hash"]
    process = subprocess.Popen(
        [*command, "--prometheus-port", str(free_port())], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(60):
            found = asyncio.run(examine([url], Options(), seconds=1)).endpoints[0]
            if row(found, "health")[0] == "pass":
                break
            time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)

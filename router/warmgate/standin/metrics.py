"""What ``GET /metrics`` shows: the names, labels and meanings of vLLM 0.32 (``vllm/v1/metrics/loggers.py``), in Prometheus' text format."""

from __future__ import annotations

from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_UNSET = (
    "cache_hit_alignment_tokens",
    "hash_block_size",
    "kv_cache_layout",
    "kv_cache_memory_bytes",
    "kv_offloading_size",
    "mamba_block_size",
    "mamba_page_size_padded",
    "num_cpu_blocks",
    "num_gpu_blocks_override",
    "prefix_match_unit",
    "sliding_window",
    "skip_page_size_padded",
)
"""Fields of vLLM's cache configuration that a server without special flags leaves unset."""

_TIERS = ("device", "host", "p2p", "disk", "external_unspecified")


@dataclass(slots=True)
class Counters:
    """Running totals. Tokens unless they say otherwise; queries and hits count at admission, once per engine request."""

    queries: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    running: int = 0
    waiting: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0))


def render(
    counters: Counters, *, model: str, block_size: int, blocks: int, usage: float, max_model_len: int, algorithm: str = "sha256"
) -> str:
    """The metrics page.

    Args:
        counters: The engine's totals.
        model: Value of the ``model_name`` label.
        block_size: Tokens per block.
        blocks: Blocks of the pool that requests can use. vLLM counts one more, which it keeps as a blank.
        usage: Share of the pool held by running requests.
        max_model_len: Tokens a prompt may have.
        algorithm: How blocks are named.
    """
    at = f'engine="0",model_name="{_quoted(model)}"'
    lines: list[str] = []

    def add(kind: str, name: str, help_text: str, *samples: tuple[str, float]) -> None:
        suffix = "_total" if kind == "counter" else ""
        lines.append(f"# HELP {name}{suffix} {help_text}")
        lines.append(f"# TYPE {name}{suffix} {kind}")
        lines.extend(f"{name}{suffix}{{{labels}}} {float(value)}" for labels, value in samples)

    c = counters
    add("gauge", "vllm:num_requests_running", "Number of requests in model execution batches.", (at, c.running))
    add("gauge", "vllm:num_requests_waiting", "Number of requests waiting to be processed.", (at, c.waiting))
    reasons = [(f'{at},reason="{reason}"', float(count)) for reason, count in (("capacity", c.waiting), ("deferred", 0))]
    add("gauge", "vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", *reasons)
    sleep = [(f'{at},sleep_state="{state}"', float(state == "awake")) for state in ("awake", "weights_offloaded", "discard_all")]
    add("gauge", "vllm:engine_sleep_state", "Engine sleep state; a stand-in never sleeps.", *sleep)
    add("gauge", "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", (at, usage))
    add("counter", "vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", (at, c.queries))
    add("counter", "vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", (at, c.hits))
    add("counter", "vllm:external_prefix_cache_queries", "Queries of an external prefix cache; there is none.", (at, 0))
    add("counter", "vllm:external_prefix_cache_hits", "Hits in an external prefix cache; there is none.", (at, 0))
    add("counter", "vllm:mm_cache_queries", "Queries of the multi-modal cache; there is none.", (at, 0))
    add("counter", "vllm:mm_cache_hits", "Hits in the multi-modal cache; there is none.", (at, 0))
    add("counter", "vllm:num_preemptions", "Cumulative number of preemption from the engine.", (at, 0))
    add("counter", "vllm:prompt_tokens", "Number of prefill tokens processed.", (at, c.prompt_tokens))
    add(
        "counter",
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        (f'{at},source="local_compute"', c.computed_tokens),
        (f'{at},source="local_cache_hit"', c.cached_tokens),
        (f'{at},source="external_kv_transfer"', 0),
    )
    add("counter", "vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", (at, c.cached_tokens))
    tiers = [(f'{at},source="{tier}"', float(c.cached_tokens if tier == "device" else 0)) for tier in _TIERS]
    add("counter", "vllm:prompt_tokens_cached_by_source", "Prefix-cache hit tokens by the tier that supplied them.", *tiers)
    add("counter", "vllm:generation_tokens", "Number of generation tokens processed.", (at, c.generation_tokens))
    finished = [(f'{at},finished_reason="{reason}"', float(count)) for reason, count in c.finished.items()]
    add("counter", "vllm:request_success", "Count of successfully processed requests.", *finished)
    name = _quoted(model)
    rejected = [(f'model_name="{name}",reason="{reason}"', 0.0) for reason in ("max_num_queued_reqs", "max_num_queued_tokens")]
    add("counter", "vllm:admission_rejections", "Number of admission attempts rejected by a queue limit; there is none.", *rejected)
    config = cache_config(block_size, blocks + 1, max_model_len, algorithm)
    labels = ",".join(f'{key}="{value}"' for key, value in sorted(config.items()))
    add("gauge", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", (labels, 1))
    return "\n".join(lines) + "\n"


def cache_config(block_size: int, blocks: int, max_model_len: int, algorithm: str) -> dict[str, object]:
    """VLLM's ``CacheConfig`` with full attention, as ``vllm:cache_config_info`` shows it: every field, None included.

    Args:
        block_size: Tokens per block.
        blocks: Blocks of the pool, the blank one included, as vLLM counts its capacity.
        max_model_len: Tokens a prompt may have.
        algorithm: How blocks are named.
    """
    return {
        **dict.fromkeys(_UNSET),
        "_block_size_resolved": True,
        "block_size": block_size,
        "cache_dtype": "auto",
        "effective_attention_block_size": block_size,
        "enable_mamba_shared_prefix_checkpoint": False,
        "enable_prefix_caching": True,
        "engine": 0,
        "gpu_memory_utilization": 0.92,
        "is_attention_free": False,
        "kv_cache_dtype_skip_layers": [],
        "kv_cache_max_concurrency": blocks * block_size / max_model_len,
        "kv_cache_size_tokens": blocks * block_size,
        "kv_offloading_backend": "native",
        "kv_sharing_fast_prefill": False,
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_ssm_cache_dtype": "float32",
        "num_gpu_blocks": blocks,
        "prefix_cache_retention_interval": 0,
        "prefix_caching_hash_algo": algorithm,
        "replayssm_buffer_len": 16,
        "swa_bounded_replay": True,
        "use_kda_recoverssm": False,
        "use_replayssm": False,
        "user_specified_block_size": True,
    }


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

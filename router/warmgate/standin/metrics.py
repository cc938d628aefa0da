"""What ``GET /metrics`` shows: the names, labels and meanings of vLLM 0.32 (``vllm/v1/metrics/loggers.py``), in Prometheus' text format."""

from __future__ import annotations

from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


def render(counters: Counters, *, model: str, block_size: int, blocks: int, usage: float, algorithm: str = "sha256") -> str:
    """The metrics page.

    Args:
        counters: The engine's totals.
        model: Value of the ``model_name`` label.
        block_size: Tokens per block.
        blocks: Blocks of the pool that requests can use. vLLM counts one more, which it keeps as a blank.
        usage: Share of the pool held by running requests.
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
    add("gauge", "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", (at, usage))
    add("counter", "vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", (at, c.queries))
    add("counter", "vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", (at, c.hits))
    add("counter", "vllm:external_prefix_cache_queries", "Queries of an external prefix cache; there is none.", (at, 0))
    add("counter", "vllm:external_prefix_cache_hits", "Hits in an external prefix cache; there is none.", (at, 0))
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
    add("counter", "vllm:generation_tokens", "Number of generation tokens processed.", (at, c.generation_tokens))
    finished = [(f'{at},finished_reason="{reason}"', float(count)) for reason, count in c.finished.items()]
    add("counter", "vllm:request_success", "Count of successfully processed requests.", *finished)
    config = {
        "block_size": block_size,
        "cache_dtype": "auto",
        "enable_prefix_caching": True,
        "engine": 0,
        "num_gpu_blocks": blocks + 1,
        "prefix_caching_hash_algo": algorithm,
    }
    labels = ",".join(f'{key}="{value}"' for key, value in config.items())
    add("gauge", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", (labels, 1))
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

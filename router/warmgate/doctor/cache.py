"""What the server states about its KV cache: its metrics, dtype, capacity and events. Costs no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from warmgate.doctor.check import Check, failed, passed, skipped, warned
from warmgate.doctor.exposition import Metrics
from warmgate.doctor.visit import Line, Visit, json_of
from warmgate.errors import one_line

METRICS_PATH = "/metrics"

_SHARES = (
    ("nvfp4", "about 4.5 bits a value with its scales: 3.5 times the tokens of bf16 in the same memory"),
    ("int4", "about a quarter of bf16's memory per token"),
    ("fp8", "half the memory per token of bf16: twice the tokens"),
    ("int8", "half the memory per token of bf16: twice the tokens"),
    ("turboquant", "a quarter to a half of bf16's memory per token"),
    ("ultraquant", "about a quarter of bf16's memory per token"),
    ("bfloat16", "16 bits a value"),
    ("float16", "16 bits a value"),
    ("auto", "the model's own; of a bf16 model's tokens, fp8 would hold twice as many, nvfp4 3.5 times"),
)
"""``cache_dtype`` by its beginning, and what it means for memory. NVFP4: 4 bits and one fp8 scale for 16 values."""


async def scrape(visit: Visit, *, line: Line | None = None) -> Metrics | None:
    """A fresh scrape, or None where there is none of vLLM's.

    Raises:
        EngineError: No reply.
    """
    reply = await visit.call("GET", METRICS_PATH, line=line or visit.bare)
    found = Metrics(reply.body.decode("utf-8", "replace")) if reply.status == 200 else None
    return found if found is not None and any(name.startswith("vllm:") for name in found.names) else None


async def metrics(visit: Visit) -> Check:
    """``GET /metrics``: without it, survival is known from usage and events alone."""
    name, where = "metrics", visit.where("GET", METRICS_PATH)
    reply = await visit.get(METRICS_PATH)
    if reply.status != 200:
        return warned(
            name,
            f"/metrics answers {reply.status}: no counters of the prefix cache",
            mend="give the worker's own address, not a gateway's (vLLM serves /metrics unless --disable-log-stats is set)",
            where=where,
        )
    found = Metrics(reply.body.decode("utf-8", "replace"))
    ours = [metric for metric in found.names if metric.startswith("vllm:")]
    if not ours:
        other = next((metric.partition(":")[0] for metric in sorted(found.names) if ":" in metric), None)
        mend = "expected of another server" if other else "start vLLM without --disable-log-stats"
        return warned(name, "no metrics of vLLM there" + (f" (but of {one_line(other, 30)})" if other else ""), mend=mend, where=where)
    visit.metrics = found
    _learn(visit, _config(found))
    missing = [metric for metric in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total") if metric not in found.names]
    if missing:
        return warned(
            name,
            f"{len(ours)} of vLLM's, but not {' nor '.join(missing)}",
            mend="start vLLM with its prefix cache and stats on",
            where=where,
        )
    return passed(name, f"{len(ours)} of vLLM's, the prefix cache's counters among them", where=where)


def _config(found: Metrics) -> Mapping[str, str]:
    """The labels of ``vllm:cache_config_info``: vLLM's whole cache configuration, as text."""
    samples = found.of("vllm:cache_config_info")
    return samples[0].labels if samples else {}


def _learn(visit: Visit, config: Mapping[str, str]) -> None:
    facts = visit.facts
    facts.prefix_caching = _switch(config, "enable_prefix_caching")
    facts.block_size_given = _switch(config, "user_specified_block_size")
    interval = config.get("prefix_cache_retention_interval")
    facts.retention_interval = {"0": 0, "None": -1}.get(interval or "", _number(config, "prefix_cache_retention_interval"))
    facts.block_size = _number(config, "block_size")
    facts.cache_dtype = one_line(config["cache_dtype"], 40) if config.get("cache_dtype") else None
    facts.window = _number(config, "sliding_window")
    mode = config.get("mamba_cache_mode")
    if mode is not None and facts.prefix_caching:
        facts.recurrent = mode != "none"
    facts.capacity_tokens = _number(config, "kv_cache_size_tokens")
    blocks = _number(config, "num_gpu_blocks")
    if facts.capacity_tokens is None and blocks and facts.block_size:
        facts.capacity_tokens = blocks * facts.block_size


def _switch(config: Mapping[str, str], key: str) -> bool | None:
    return {"True": True, "False": False}.get(config.get(key, ""))


def _number(config: Mapping[str, str], key: str) -> int | None:
    """A positive whole number; vLLM writes None as text."""
    text = config.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 and int(text) > 0 else None


async def kv_cache(visit: Visit) -> Check:
    """Dtype and capacity of the KV cache, in tokens."""
    name, where = "kv_cache", "vllm:cache_config_info"
    facts = visit.facts
    if visit.metrics is None:
        return skipped(name, "needs the metrics", where=where)
    if facts.cache_dtype is None and facts.capacity_tokens is None:
        return skipped(name, "the server does not state it", where=where)
    said: list[str] = []
    if facts.capacity_tokens:
        said.append(f"room for {facts.capacity_tokens:,} tokens an engine")
        if facts.max_model_len:
            said.append(f"{facts.capacity_tokens / facts.max_model_len:.1f} prompts of the longest kind")
    if facts.block_size:
        said.append(f"blocks of {facts.block_size}")
    if facts.cache_dtype:
        share = next((text for start, text in _SHARES if facts.cache_dtype.startswith(start)), None)
        said.append(f"dtype {facts.cache_dtype}" + (f" ({share})" if share else ""))
    seen = ", ".join(said)
    if facts.capacity_tokens and facts.max_model_len and facts.capacity_tokens < 2 * facts.max_model_len:
        return warned(
            name,
            seen,
            mend="two long sessions evict each other: give the cache more memory (--gpu-memory-utilization), a smaller --kv-cache-dtype"
            " (fp8, nvfp4), or fewer sessions a worker",
            where=where,
        )
    return passed(name, seen, where=where)


async def kv_events(visit: Visit) -> Check:
    """``GET /kv_event_sources``: whether the worker announces what it stores and evicts."""
    name, where = "kv_events", visit.where("GET", "/kv_event_sources")
    reply = await visit.get("/kv_event_sources")
    if reply.status != 200:
        return skipped(name, f"/kv_event_sources answers {reply.status}: not told", where=where)
    data = json_of(reply)
    if not isinstance(data, dict):
        return skipped(name, "/kv_event_sources is not a JSON object: not told", where=where)
    sources = cast("dict[str, object]", data)
    found = [(rank, cast("dict[str, object]", config)) for rank, config in sources.items() if isinstance(config, dict)]
    if not found:
        return passed(
            name,
            "off (optional): survival comes from usage and metrics, evictions stay unseen",
            mend="for causes of loss, start with --kv-events-config"
            ' \'{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}\'',
            where=where,
        )
    shown = ", ".join(f"rank {one_line(rank, 8)} {one_line(str(config.get('endpoint')), 60)}" for rank, config in found[:4])
    replay = all(config.get("replay_endpoint") for _, config in found)
    if not replay:
        return warned(
            name,
            f"{shown}, without a replay socket: a gate that joins late or drops a message never learns what it missed",
            mend='add "replay_endpoint": "tcp://*:5558" to --kv-events-config',
            where=where,
        )
    return passed(name, f"{shown}, with replay", where=where)


async def prefix_caching(visit: Visit) -> Check:
    """Whether the prefix cache is on: what the server states, checked by a prompt sent twice (see :mod:`~warmgate.doctor.trial`)."""
    name, where = "prefix_caching", "vllm:cache_config_info"
    facts, repeat = visit.facts, visit.reuse.repeat
    if facts.prefix_caching is False:
        return failed(
            name, "off: every prompt is computed from its first token", mend="start vLLM without --no-enable-prefix-caching", where=where
        )
    said = {True: "on", None: "not stated"}[facts.prefix_caching]
    if facts.block_size:
        said += f", blocks of {facts.block_size} tokens"
    if facts.recurrent:
        said += ", recurrent layers"
    if facts.window:
        said += f", a window of {facts.window} tokens"
    if repeat is None or repeat.cached is None:
        if facts.prefix_caching is None:
            return skipped(name, "not stated, and no prompt could be sent twice to see", where=where)
        return passed(name, said, where=where)
    told = f"{said}; the same prompt again found {repeat.cached} of {repeat.tokens} tokens ({repeat.basis})"
    if repeat.cached:
        return passed(name, told, where=where)
    again = visit.reuse.again
    if again is not None and again.cached:
        told += f", and {again.cached} the third time"
    return warned(name, told, mend=_nothing_found(visit), where=where)


def _nothing_found(visit: Visit) -> str:
    if visit.scattered:
        return "equal prompts may land on different workers here: see gateway and one_worker"
    if visit.facts.recurrent:
        return (
            f"if the server runs on a CPU and its log says 'Setting attention block size to {visit.facts.block_size or 'N'}', start it with"
            f" --block-size {visit.facts.block_size or 'N'}: without it some prompts are not found when first sent again"
        )
    return "start vLLM without --no-enable-prefix-caching; if it is on, something evicts at once: give the cache more memory"

"""Is the address one worker? Gateways, data-parallel ranks and load balancers break the tie between a session and its cache."""

from __future__ import annotations

import asyncio

from warmgate.doctor.cache import METRICS_PATH, scrape
from warmgate.doctor.check import Check, passed, skipped, warned
from warmgate.doctor.visit import Visit
from warmgate.engines.http import Reply
from warmgate.errors import EngineError, one_line

_HEADERS = ("via", "x-envoy-upstream-service-time", "cf-ray", "x-amzn-requestid", "x-amz-cf-id", "x-kong-proxy-latency", "x-served-by")
_PREFIXES = ("x-smg-", "x-litellm-", "x-envoy-", "x-higress-")
_PROXIES = ("nginx", "envoy", "istio", "haproxy", "traefik", "caddy", "cloudflare", "apache", "awselb", "gunicorn", "kong", "openresty")
_ROUTES = ("/health", "/version", "/v1/models", METRICS_PATH)
_VISITS = 3

_STICK = (
    "make it route by session (vllm-router: --policy consistent_hash, header x-session-id; smg: --policy consistent_hashing, header"
    " x-smg-routing-key), or name the workers themselves and let the gate route; examine each worker by its own address"
)


async def gateway(visit: Visit) -> Check:
    """Signs that something answers in the worker's place."""
    name = "gateway"
    replies: dict[str, Reply] = {}
    for path in _ROUTES:
        try:
            replies[path] = await visit.get(path)
        except EngineError:
            continue
    signs = _signs(replies)
    visit.facts.gateway = bool(signs)
    visit.scattered |= bool(signs)
    if not signs:
        return passed(name, "none visible: every route is answered by the same server")
    return warned(name, "a gateway answers: " + "; ".join(signs), mend=_STICK)


def _signs(replies: dict[str, Reply]) -> list[str]:
    signs: list[str] = []
    headers: dict[str, str] = {}
    for reply in replies.values():
        headers |= {key.lower(): value for key, value in reply.headers.items()}
    named = [key for key in headers if key in _HEADERS or key.startswith(_PREFIXES)]
    signs += [f"header {key}: {one_line(headers[key], 60)}" for key in sorted(named)[:3]]
    servers = {path: reply.headers.get("server", "") for path, reply in replies.items()}
    proxies = sorted({one_line(value, 40) for value in servers.values() if value.lower().startswith(_PROXIES)})
    signs += [f"server {value}" for value in proxies[:1]]
    if len(set(servers.values())) > 1 and not proxies:
        signs.append(
            "some routes are answered by "
            + " and others by ".join(sorted({one_line(v, 40) or "a nameless server" for v in servers.values()}))
        )
    listed = "/v1/models" in replies and replies["/v1/models"].status == 200
    missing = [path for path in ("/version", METRICS_PATH) if path in replies and replies[path].status in (404, 405)]
    if listed and len(missing) == 2:
        signs.append("models are listed, but there is no /version and no /metrics")
    return signs


async def one_worker(visit: Visit) -> Check:
    """How many engines and processes answer: each has a prefix cache of its own."""
    name, where = "one_worker", visit.where("GET", METRICS_PATH)
    if visit.metrics is None:
        return skipped(name, "needs the metrics", where=where)
    ranks = sorted({sample.labels["engine"] for sample in visit.metrics.of("vllm:num_requests_running") if "engine" in sample.labels})
    visit.facts.engines = len(ranks) or None
    if len(ranks) > 1:
        visit.scattered = True
        return warned(
            name,
            f"{len(ranks)} engines (data-parallel ranks) behind one address: decisions land on any of them, and so does stickiness",
            mend="serve each rank by its own API server (--data-parallel-multi-port-external-lb, or a server a rank); systemone ignores"
            " X-data-parallel-rank",
            where=where,
        )
    starts = await asyncio.gather(*(_started(visit) for _ in range(_VISITS)))
    processes = {start for start in starts if start is not None}
    if len(processes) > 1:
        visit.scattered = True
        return warned(
            name, f"at least {len(processes)} processes answer in turn, each with its own counters and cache", mend=_STICK, where=where
        )
    if visit.facts.gateway:
        return skipped(name, "how many workers stand behind the gateway is not visible: its metrics are those of one", where=where)
    return passed(name, "one engine, one process answers", where=where)


async def _started(visit: Visit) -> float | None:
    """When the process that answers a fresh connection was started, in seconds of its clock."""
    try:
        found = await scrape(visit, line=visit.new_line())
    except EngineError:
        return None
    return None if found is None else found.total("process_start_time_seconds")

"""A scripted vLLM behind respx: every route a real one has, each of them replaceable, for states that no server of ours can be put into."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import respx

from warmgate.doctor import EndpointReport, Options, examine

URL = "http://192.0.2.7:8000"
"""An address of a documentation network: numeric, so that no name server is asked."""

CACHE = {
    "block_size": "16",
    "cache_dtype": "auto",
    "enable_prefix_caching": "True",
    "kv_cache_size_tokens": "65536",
    "mamba_cache_mode": "none",
    "prefix_cache_retention_interval": "0",
    "sliding_window": "None",
    "user_specified_block_size": "False",
}

Answer = Callable[[httpx.Request], httpx.Response]


class FakeVllm:
    """What the server answers. ``routes`` maps ``"METHOD /path"`` to a reply or a function of the request."""

    def __init__(self) -> None:
        self.routes: dict[str, httpx.Response | Answer] = {}
        self.seen: list[httpx.Request] = []
        self.cache = dict(CACHE)
        self.ranks = ["0"]
        self.started = ["100.0"]
        self.mass = 0.97
        self.details = True
        self.cached: list[int] | None = None
        """Cached tokens of the completions, in order; None: all blocks of the last but the first, as full attention gives."""
        self.queries = 0
        self.hits = 0
        self.busy = 0
        self.echo = False
        self.ids = True
        self.server = "uvicorn"

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        key = f"{request.method} {request.url.path}"
        answer = self.routes.get(key) or getattr(self, _method(key), None)
        if answer is None:
            reply = httpx.Response(404, json={"detail": "Not Found"})
        else:
            reply = (
                answer(request) if callable(answer) else httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
            )
        if self.server and "server" not in reply.headers:
            reply.headers["server"] = self.server
        if self.echo:
            reply.headers["x-request-id"] = request.headers["x-request-id"]
        return reply

    @property
    def completions(self) -> list[httpx.Request]:
        """The completions asked for so far."""
        return [request for request in self.seen if (request.method, request.url.path) == ("POST", "/v1/completions")]

    def get_health(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200)

    def get_version(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"version": "0.32.0"})

    def get_v1_models(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192, "parent": None}]})

    def get_kv_event_sources(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={})

    def get_metrics(self, request: httpx.Request) -> httpx.Response:
        labels = ",".join(f'{key}="{value}"' for key, value in self.cache.items())
        lines = [f"process_start_time_seconds {self.started[len(self.seen) % len(self.started)]}"]
        for rank in self.ranks:
            lines += [
                f'vllm:num_requests_running{{engine="{rank}"}} {self.busy}',
                f'vllm:num_requests_waiting{{engine="{rank}"}} 0.0',
                f'vllm:cache_config_info{{engine="{rank}",{labels}}} 1.0',
            ]
        lines += [
            f'vllm:prefix_cache_queries_total{{engine="0"}} {self.queries}',
            f'vllm:prefix_cache_hits_total{{engine="0"}} {self.hits}',
        ]
        return httpx.Response(200, text="\n".join(lines) + "\n")

    def post_tokenize(self, request: httpx.Request) -> httpx.Response:
        words = json.loads(request.content)["prompt"].split()
        return httpx.Response(200, json={"count": len(words), "tokens": [sum(word.encode()) for word in words]})

    def post_v1_systemone(self, request: httpx.Request) -> httpx.Response:
        if "content-encoding" in request.headers:
            return httpx.Response(400, json={"detail": "There was an error parsing the body"})
        body = json.loads(request.content)
        answers: dict[str, Any] = {}
        for id_, question in body["questions"].items():
            answers[id_] = _answer(question)
        tokens = 40 * len(answers) + len(body["state"].split())
        self._count(tokens, 32 if len(body["state"].split()) > 20 else 0)
        return httpx.Response(
            200,
            json={
                "id": "decision-" + request.headers["x-request-id"],
                "object": "structured_decision",
                "model": "m",
                "answers": answers,
                "usage": {"input_tokens": tokens, "output_tokens": len(answers)},
                "diagnostics": {id_: {"label_mass": self.mass, "argmax_is_label": self.mass > 0.5} for id_ in answers},
            },
        )

    def post_v1_completions(self, request: httpx.Request) -> httpx.Response:
        prompt = json.loads(request.content)["prompt"]
        if isinstance(prompt, list) and not self.ids:
            return httpx.Response(400, json={"error": {"message": "Invalid JSON data"}})
        tokens = len(prompt if isinstance(prompt, list) else prompt.split())
        calls = len(self.completions) - 1
        cached = self.cached[calls] if self.cached is not None else (0 if calls == 0 else 16 * ((tokens - 1) // 16))
        self._count(tokens, cached)
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 1, "prompt_tokens_details": None}
        if self.details:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return httpx.Response(200, json={"id": "cmpl-1", "usage": usage, "system_fingerprint": "vllm-0.32.0-abc"})

    def _count(self, queries: int, hits: int) -> None:
        self.queries += queries
        self.hits += hits


def _method(key: str) -> str:
    return key.lower().replace(" /", "_").replace("/", "_")


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"type": "noul", "noul": 0.9, "probabilities": {"yes": 0.9, "no": 0.1}, "confidence": 0.8}
    if question["type"] == "score":
        levels = len(question["criteria"])
        rest = 0.2 / (levels - 1)
        p = {str(n): 0.8 if n == 0 else rest for n in range(levels)}
        return {"type": "score", "score": sum(int(n) * x for n, x in p.items()), "probabilities": p, "confidence": 0.8}
    names = list(question["criteria"])
    p = {name: 0.8 if name == names[0] else 0.2 / (len(names) - 1) for name in names}
    return {"type": "choice", "choice": names[0], "probabilities": p, "confidence": 0.8}


def report(fake: FakeVllm, *, seconds: float = 20.0, **options: Any) -> EndpointReport:
    """The report on this fake."""
    with respx.mock(assert_all_called=False) as router:
        router.route(host="192.0.2.7").mock(side_effect=fake)
        return asyncio.run(examine([URL], Options(**options), seconds=seconds)).endpoints[0]


def check(found: EndpointReport, name: str) -> tuple[str, str, str]:
    """Status, what was seen and how to mend it."""
    one = next(c for c in found.checks if c.name == name)
    return one.status, one.seen, one.mend or ""

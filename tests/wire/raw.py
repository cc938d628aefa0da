"""A worker under test, and the few things wire tests ask of it: requests as bytes, no client of ours in between."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Worker:
    """Where a worker listens and what it was started with."""

    url: str
    model: str
    block_size: int
    max_model_len: int
    events: str | None = None
    """Endpoint of its KV events, with the replay endpoint in `replay`."""
    replay: str | None = None

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return httpx.post(self.url + path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()}, timeout=60)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers={k.replace("_", "-"): v for k, v in headers.items()}, timeout=60)

    def decide(self, questions: dict[str, Any], state: Any = "x", **more: Any) -> httpx.Response:
        return self.post("/v1/systemone", {"state": state, "questions": questions, **more})

    def chat(self, messages: list[dict[str, Any]], **more: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 4, **more})

    def tokens(self, **body: Any) -> list[int]:
        return self.post("/tokenize", body).json()["tokens"]

    def reusable(self, tokens: int) -> int:
        """Tokens of a prompt that a full cache can serve: whole blocks, never the last token's."""
        return (tokens - 1) // self.block_size * self.block_size

    def counters(self) -> dict[str, float]:
        """The `vllm:` counters without their engine and model labels: `prefix_cache_hits`, `prompt_tokens_by_source.local_compute`, …"""
        found = {}
        for line in self.get("/metrics").text.splitlines():
            match = re.match(r"vllm:(\w+?)_total\{(.*)\} ([-+.\deE]+)$", line)
            if match:
                name, labels, value = match.groups()
                extra = re.findall(r'(?:source|finished_reason)="(\w+)"', labels)
                found[".".join([name, *extra])] = float(value)
        return found

    @contextmanager
    def counted(self) -> Iterator[dict[str, float]]:
        """How the counters move inside the block; filled in at its end."""
        before, moved = self.counters(), {}
        yield moved
        after = self.counters()
        moved.update({name: after[name] - before.get(name, 0) for name in after})


def fresh(words: int = 300) -> str:
    """A text nobody has sent before, of some length."""
    start = uuid.uuid4().hex
    return f"{start} " + " ".join(f"step {number} of the work reads a file and writes another" for number in range(words // 11))


NOUL = {"type": "noul", "instructions": "Is it red?"}
CHOICE = {"type": "choice", "instructions": "Which tool set next?", "criteria": {"fs": "files", "web": "the web", "none": None}}
SCORE = {"type": "score", "instructions": "How risky is it?", "criteria": ["none", "some", "high"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read one text file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]

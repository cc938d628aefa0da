"""The raw wire suite against a real vLLM 0.32: whatever holds for the stand-in has to hold here, to the letter."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.engine.rig.server import VllmServer, free_port
from tests.wire.raw import Worker
from tests.wire.test_wire_raw import *  # noqa: F403


@pytest.fixture
def worker(vllm_qwen3: VllmServer) -> Worker:
    return _worker(vllm_qwen3)


@pytest.fixture(scope="module")
def events_config() -> dict[str, object]:
    """Wildcard endpoints: to any other address vLLM's publisher connects instead of binding."""
    endpoints = {name: f"tcp://*:{free_port()}" for name in ("endpoint", "replay_endpoint")}
    return {"enable_kv_cache_events": True, "publisher": "zmq", **endpoints}


@pytest.fixture
def events_worker(vllm_server: Callable[..., VllmServer], events_config: dict[str, object]) -> Worker:
    server = vllm_server(extra=("--kv-events-config", json.dumps(events_config)))
    return _worker(server, *(str(events_config[name]).replace("*", "127.0.0.1") for name in ("endpoint", "replay_endpoint")))


def _worker(server: VllmServer, events: str | None = None, replay: str | None = None) -> Worker:
    options = server.options
    return Worker(server.url, server.model, options.block_size or 32, options.max_model_len, events, replay)

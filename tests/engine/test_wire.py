"""The wire suite against a real vLLM 0.32."""

from __future__ import annotations

import pytest

from tests.engine.rig.server import VllmServer
from tests.wire.suite import *  # noqa: F403
from tests.wire.suite import Worker


@pytest.fixture
def worker(vllm_qwen3: VllmServer) -> Worker:
    return Worker(vllm_qwen3.url, vllm_qwen3.model, vllm_qwen3.model, constraints=("vllm",))

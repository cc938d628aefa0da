"""The wire suite against a real vLLM 0.32 with every other architecture its decision endpoint serves on a CPU, answers being noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.engine.rig.server import ServerOptions, VllmServer
from tests.wire.suite import *  # noqa: F403
from tests.wire.suite import Worker

pytestmark = pytest.mark.engine_all

STYLES: dict[str, Literal["qwen3", "d1", "clef"]] = {"qwen35": "qwen3", "qwen35moe": "qwen3", "lfm2vl": "d1", "clef": "clef"}


@pytest.fixture(scope="module", params=STYLES)
def worker(request: pytest.FixtureRequest, vllm_installed: None) -> Iterator[Worker]:
    with VllmServer(ServerOptions(model=request.param)) as server:
        yield Worker(server.url, server.model, server.model, STYLES[request.param], constraints=("vllm",), keeps_prefixes=False)

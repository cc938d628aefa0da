"""The wire suite against the stand-in, over a loopback socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.raw import Worker
from tests.wire.test_wire_raw import *  # noqa: F403
from warmgate.standin import StandIn

MODEL, BLOCK, LENGTH = "qwen3", 32, 16384


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with StandIn(model=MODEL, block_size=BLOCK, max_model_len=LENGTH) as standin:
        yield Worker(standin.url, MODEL, BLOCK, LENGTH)


@pytest.fixture(scope="module")
def events_worker() -> Iterator[Worker]:
    with StandIn(model=MODEL, block_size=BLOCK, max_model_len=LENGTH, kv_events_port=0) as standin:
        source = standin.served.engine.publisher.source()
        yield Worker(standin.url, MODEL, BLOCK, LENGTH, source["endpoint"], source["replay_endpoint"])

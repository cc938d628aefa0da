from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.workers.servers import Redis, Worker


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def two_workers() -> Iterator[tuple[Worker, Worker]]:
    with Worker() as one, Worker() as other:
        yield one, other

"""docs/workers.md against the code. If these fail, an operator is told something that is not so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warmgate.workers import SMG, VLLM_ROUTER, WorkerPool, hashing, pool
from warmgate.workers.affinity import client, memory, outage, redis
from warmgate.workers.counts import COUNTED
from warmgate.workers.fleet import ABSENT_LIMIT

DOCS = (Path(__file__).parents[3] / "docs/workers.md").read_text("utf-8")


def test_every_count_is_listed():
    listed = re.search(r"`pool\.counts` holds\s+the totals: (.*?)\. `", DOCS, re.DOTALL)[1]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(COUNTED)


@pytest.mark.parametrize("gateway", [SMG, VLLM_ROUTER], ids=lambda gateway: gateway.name)
def test_gateways_are_described_as_they_are(gateway):
    row = next(line for line in DOCS.splitlines() if line.startswith(f"| {gateway.name} "))
    for part in (gateway.policy, gateway.header, gateway.answers_with or "nothing"):
        assert part in row


def test_figures():
    assert (pool.TTL_S, pool.DNS_INTERVAL_S, ABSENT_LIMIT, hashing.BOUND) == (3600, 5, 3, 1.25)
    assert (redis.TIMEOUT_S, outage.FIRST_PAUSE_S, outage.LONGEST_PAUSE_S, redis.CLUSTER_SHARDS, memory.MAX_ENTRIES) == (
        0.1,
        0.25,
        5,
        16,
        100_000,
    )


def test_every_scheme_is_listed():
    assert all(f"`{scheme}://" in DOCS for scheme in client.SCHEMES)


def test_the_example_is_python():
    code = re.search(r"```python\n(.*?)```", DOCS, re.DOTALL)[1]
    names = set(re.findall(r"from warmgate\.workers import (.*)", code)[0].split(", "))
    assert names == {"AsyncStickyTransport2", "WorkerPool"}
    compile("async def example():\n" + "".join(f"    {line}\n" for line in code.splitlines()), "docs", "exec")
    assert WorkerPool(["http://10.0.0.1:8000"], gateway="vllm-router")

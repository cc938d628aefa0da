"""Headers for gateways. If these fail, decision and agent call of a session reach different workers."""

from __future__ import annotations

import pytest

from warmgate.errors import OptionError
from warmgate.workers.counts import Counts
from warmgate.workers.gateway import SMG, VLLM_ROUTER, Routed, gateway_of
from warmgate.workers.pool import WorkerPool


def test_a_plain_session_is_sent_as_it_is():
    """A client that sets the gateway's header by itself comes to the same worker as the decision."""
    assert VLLM_ROUTER.headers("conversation-7 (eu)") == {"x-session-id": "conversation-7 (eu)"}
    assert SMG.headers("s") == {"x-smg-routing-key": "s"}


@pytest.mark.parametrize("session", ["ünïcode", "line\r\nx-admin: 1", " blank", "blank ", "x" * 257, "\x00", "\ud800", "a\tb"])
def test_a_session_that_no_header_carries_is_hashed(session):
    """It must neither fail nor smuggle a header, and must be the same at every call."""
    (value,) = VLLM_ROUTER.headers(session).values()
    assert len(value) == 32
    assert value.isalnum()
    assert VLLM_ROUTER.headers(session) == {"x-session-id": value}


def test_unknown_gateways_are_refused():
    with pytest.raises(OptionError, match="vllm-router or smg"):
        gateway_of("nginx")


async def test_bindings_carry_the_header():
    pool = WorkerPool(["http://gateway:8000"], ["http://other:8000"], gateway="smg")
    assert (await pool.acquire("s")).headers == {"x-smg-routing-key": "s"}
    assert (await pool.acquire("s", "gate_workers")).headers == {}


def test_a_session_that_a_gateway_moved_is_counted():
    """A gateway that hashes something else than we think costs every prefix; it must be seen."""
    counts = Counts()
    routed = Routed(counts, limit=100)
    assert routed.saw("s", "w1", "workers") == "w1"
    routed.saw("s", "w1", "workers")
    routed.saw("t", "w2", "workers")
    assert counts.total("gateway_moved") == 0
    routed.saw("s", "w2", "workers")
    assert counts.total("gateway_moved") == 1
    for number in range(1000):
        routed.saw(f"{number}", "w", "workers")
    assert len(routed._last) == 100


async def test_a_reply_that_names_no_worker_says_nothing():
    pool = WorkerPool(["http://gateway:8000"], gateway="smg")
    assert pool.saw("s", {}) is None
    assert pool.saw("s", {"x-smg-routed-worker-id": "w"}) == "w"

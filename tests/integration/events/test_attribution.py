"""Each staged loss is called by its name, and a session that lost nothing is called nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.events.staged import NAMED, Fleet, named
from tests.integration.events.traffic import Pooled
from warmgate.errors import OptionError
from warmgate.prefix.events import sources_of
from warmgate.standin import StandIn

BLOCKS = 60


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    running: dict[int, StandIn] = {}

    def start(at: int, port: int = 0, events: int = 0) -> Pooled:
        one = StandIn(block_size=32, kv_tokens=BLOCKS * 32, kv_events_port=events, max_model_len=1800, port=port)
        one.start_thread()
        running[at] = one
        source = sources_of(httpx.get(one.url + "/kv_event_sources").json(), one.url)[0]
        model = httpx.get(one.url + "/v1/models").json()["data"][0]["id"]
        return Pooled(one.url, model, 32, 1800, source.endpoint, source.replay)

    def restart() -> Pooled:
        old = made.workers[0]
        running[0].stop_thread()
        assert old.events is not None
        return start(0, int(old.url.rpartition(":")[2]), int(old.events.rpartition(":")[2]))

    def placed() -> Pooled:
        """On ports for the events that we know, so that it is found there after its restart; below those the system hands out."""
        for _ in range(20):
            try:
                return start(0, events=random.randrange(15_000, 30_000))
            except OptionError:
                continue
        pytest.fail("no two ports in a row were free")

    made = Fleet([placed(), start(1)], BLOCKS, restart)
    try:
        yield made
    finally:
        made.close()
        for one in running.values():
            one.stop_thread()


@pytest.mark.parametrize("what", NAMED)
def test_staged_losses_are_named(fleet: Fleet, what: str):
    """An operator would mend the wrong thing."""
    for _ in range(3):
        outcome = fleet.stage(what)
        assert named(outcome) == NAMED[what], outcome
        if NAMED[what][0] is not None:
            assert outcome.entry.lost > 0
        else:
            assert outcome.entry.lost == 0
    assert "unknown" not in fleet.tracker.sums.calls.lost

"""A call's prediction is made before the call is sent. If these fail, a gate predicts what the call itself stored: reusable that never was."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.events.traffic import until
from tests.integration.gate.agents import SYSTEM, TOOLS, run, settings
from warmgate.gate import Gate
from warmgate.standin import StandIn
from warmgate.telemetry import watching
from warmgate.turn import Turn


@pytest.fixture
async def worker():
    async with StandIn(block_size=16, kv_events_port=0) as one:
        yield one


async def heard(gate: Gate, worker: StandIn) -> None:
    following = gate.means.watch.following
    assert following is not None
    reader = following.readers[worker.url]
    assert await asyncio.to_thread(until, lambda: reader.status.state == "fresh")


async def test_a_call_sent_at_once_is_predicted_from_what_was_there_before(worker: StandIn):
    """No read told the prompt's tokens, and the tokenizer is slower than the call: the first call of a fresh worker finds nothing."""
    async with Gate(settings(worker)) as gate:
        await heard(gate, worker)
        worker.fault("slow=0.02", path="/tokenize")
        cached = [cached for _, _, _, cached in await run(gate, 3)]
        assert cached[0] == 0
        assert cached[1] > 0
        tracker = gate.means.watch.tracker
        assert tracker is not None
        calls = tracker.sums.calls
        assert (calls.calls, calls.reusable, calls.survived, calls.lost) == (3, sum(cached), sum(cached), {})


async def test_a_tokenizer_that_takes_too_long_costs_the_prediction_not_the_decision(worker: StandIn):
    """A late look would be overtaken by the call's own events; the call then counts with what it reports, and predicts nothing."""
    async with Gate(settings(worker, deadline_ms=2000)) as gate:
        await heard(gate, worker)
        worker.fault("slow=3", path="/tokenize")
        for _ in range(2):
            assert len(await asyncio.wait_for(run(gate, 1), 20)) == 1
        tracker, metrics = gate.means.watch.tracker, gate.means.listeners.prometheus
        assert tracker is not None
        assert tracker.sums.calls.calls == 0
        assert metrics is not None
        assert b'warmgate_agent_calls_total{reported="yes"} 2.0' in metrics.page()


async def test_where_no_events_come_nothing_waits(worker: StandIn):
    """The model of a cache hears of a call when it has ended: the look may take place beside it, and a decision would wait for nothing."""
    async with Gate(settings(worker, follow="model", deadline_ms=600_000)) as gate:
        worker.fault("hang", path="/tokenize")
        await gate.decide(Turn("s", [SYSTEM, {"role": "user", "content": "mend it"}], TOOLS))
        assert not gate.means.watch._looks.get()["s"].done()


async def test_a_call_that_was_not_predicted_is_a_doubt_about_the_next(worker: StandIn):
    """What it stored is found by the next call, and the model of the cache would call that a fault of its own without a word."""
    async with Gate(settings(worker, follow="model", deadline_ms=2000)) as gate:
        tracker = gate.means.watch.tracker
        assert tracker is not None
        index = tracker.index(worker.url)
        assert index is not None
        assert index.doubt is None
        worker.fault("slow=3", path="/tokenize")
        await run(gate, 2, "late")
        assert tracker.sums.calls.calls == 0
        assert index.doubt == "a prompt of ours was not predicted, and what it stored is not known"


async def test_a_tokenizer_that_was_busy_is_asked_again_soon_and_the_reason_is_said(worker: StandIn, monkeypatch: pytest.MonkeyPatch):
    """One late answer, on a worker that had just started, took its sessions out of all figures for a minute, and nothing said so."""
    monkeypatch.setattr(watching, "BUSY_S", 0.0)
    async with Gate(settings(worker, follow="model", deadline_ms=2000)) as gate:
        watch = gate.means.watch
        before = dict(watch.reasons)
        worker.fault("slow=3", path="/tokenize")
        await run(gate, 1)
        assert "its tokenizer did not answer" in watch.reasons[worker.url]
        worker.heal()
        assert watch.tracker is not None
        for number in range(20):  # a busy machine may be late once more
            await run(gate, 1, f"s{number}")
            if watch.tracker.sums.calls.calls:
                break
        assert watch.tracker.sums.calls.calls == 1
        assert watch.reasons == before

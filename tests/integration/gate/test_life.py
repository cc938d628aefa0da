"""Where a gate lives and on whom it leans. If these fail, it leaks, blocks, goes astray, or dies with a worker."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.integration.gate.agents import NAMES, SYSTEM, TOOLS, Cautious, Two, agent_call, conversation, run, settings
from warmgate.gate import Gate
from warmgate.standin import StandIn
from warmgate.turn import ProposedCall, Turn

TURN = Turn("s", [SYSTEM, {"role": "user", "content": "read and write files"}], TOOLS)


def ours():
    return {t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith("warmgate-")}


async def test_a_gate_that_nobody_opened_works_and_closes():
    """Users who forget the ``async with`` would get no health, or leak tasks and connections."""
    async with StandIn() as worker:
        gate = Gate(settings(worker), mounts=Two())
        decision = await gate.decide(TURN)
        assert [r.state for r in decision.reads] == ["aligned"]
        assert [s.state for s in gate.pool.status()] == ["ready"]
        assert {"warmgate-gate", "warmgate-workers"} <= ours()
        await gate.aclose()
        assert not ours()
        assert (await gate.decide(TURN)).reads[0].outcome == "answered"  # opened again
        await gate.aclose()
        assert not ours()


def test_one_gate_serves_event_loops_and_threads_and_sync_code():
    """A web server's threads would share connections across loops, or transcripts half written."""
    with StandIn() as worker:
        gate = Gate(settings(worker), mounts=Two())
        states = []

        def work(n):
            async def several():
                for messages in conversation(3, f"s{n}"):
                    states.extend(r.state for r in (await gate.decide(Turn(f"s{n}", messages, TOOLS))).reads)

            asyncio.run(several())  # its end closes the gate there

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with gate:
            decision = gate.decide_sync(TURN)
            states.extend(r.state for r in decision.reads)
            assert gate.observe_sync(TURN, {"prompt_tokens": 1}).predicted_tokens > 1
            gate.release_sync("s")
    assert states == ["aligned"] * 13


async def test_a_dead_pool_does_not_keep_a_decision_waiting():
    """A worker that drops packets would eat the deadline before anything is asked."""
    async with StandIn() as worker:
        worker.fault("hang", path="/health")
        gate = Gate(settings(worker, deadline_ms=4000), mounts=Two(), calls=Cautious())
        decision = await asyncio.wait_for(gate.decide(TURN), 20)
        assert decision.mounts.tools == NAMES
        await gate.aclose()
    assert not ours()


async def test_a_worker_that_dies_under_a_decision_costs_neither_the_decision_nor_the_call():
    """Killing one of two workers would lose decisions, or send agents to a dead one."""
    one, two = await StandIn().start(), await StandIn().start()
    workers = {w.url: w for w in (one, two)}
    gate = Gate(settings(one, two, alignment="always"), mounts=Two())
    try:
        first = await gate.decide(TURN)
        await workers.pop(first.worker).stop()
        (left,) = workers
        second = await gate.decide(TURN)
        assert second.worker == left
        answered = [r for r in second.reads if r.outcome == "answered"]
        assert [r.worker for r in answered] == [left]
        assert any("died under the decision" in r or "moved from" in r for r in second.reasons)
        assert (await agent_call(second, TURN))["usage"]["prompt_tokens"] > 0
        third = await gate.decide(TURN)
        assert third.worker == left
        assert third.reasons == ()
    finally:
        await gate.aclose()
        for worker in (one, two):
            await worker.stop()


@pytest.mark.parametrize(("gateway", "header"), [("vllm-router", "x-session-id"), ("smg", "x-smg-routing-key")])
async def test_behind_a_gateway_every_request_carries_what_it_hashes(gateway, header):
    """The gateway would send the decision to one worker and the agent's call to another."""
    async with StandIn() as front, Gate(settings(front, gateway=gateway, alignment="plant"), mounts=Two(), calls=Cautious()) as gate:
        turn = Turn("session 7", TURN.messages, TOOLS, [ProposedCall("1", "bash", {"command": "make"})])
        decision = await gate.decide(turn)
        await agent_call(decision, turn)
        await gate.observe(turn, {"prompt_tokens": 5})
        sent = [e for e in front.requests if e.path in ("/v1/systemone", "/v1/completions", "/tokenize", "/v1/chat/completions")]
        assert {e.path for e in sent} == {"/v1/systemone", "/v1/completions", "/tokenize", "/v1/chat/completions"}
        assert {e.headers.get(header) for e in sent} == {"session 7"}
    names = [name.lower() for name in decision.headers]
    assert len(names) == len(set(names))


async def test_odd_session_keys_travel_as_a_hash():
    """A session key with a line break would be refused by the client library, or forge a header."""
    async with StandIn() as worker, Gate(settings(worker), mounts=Two()) as gate:
        for session in ("käse", "a\r\nx-evil: 1", " "):
            turn = Turn(session, TURN.messages, TOOLS)
            decision = await gate.decide(turn)
            assert decision.headers["X-Session-ID"].isalnum()
            await agent_call(decision, turn)


async def test_a_decision_can_be_written_down():
    """A decision that cannot be logged cannot be looked into."""
    async with StandIn() as worker, Gate(settings(worker), mounts=Two(), calls=Cautious()) as gate:
        (decision, seen, _, _), *_ = await run(gate, 1)
        data = decision.to_json()
    assert b'"ledger":{"prompt_tokens":' in data
    assert b'"survived_basis":"predicted"' in data
    assert seen.reported_tokens


async def test_two_calls_under_one_id_get_the_stricter_word():
    """A harmless call would lend its verdict to a harmful one of the same id."""

    class Rules(Cautious):
        def judge(self, call, turn):
            judgement = super().judge(call, turn)
            return judgement if "rm" in str(call.arguments) else type(judgement)("allow", "fine")

    calls = [ProposedCall("1", "bash", {"command": "rm x"}), ProposedCall("1", "bash", {"command": "ls"})]
    async with StandIn() as worker, Gate(settings(worker), calls=Rules()) as gate:
        decision = await gate.decide(Turn("s", TURN.messages, (), calls))
    assert decision.verdicts["1"].verdict == "ask"

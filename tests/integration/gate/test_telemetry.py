"""What a gate tells of itself, on stand-ins. If these fail, its figures are wrong, its records useless, or whoever listens holds it up."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.integration.events.traffic import until
from tests.integration.gate.agents import NAMES, SYSTEM, TOOLS, Cautious, Two, agent_call, conversation, run, settings
from warmgate.decision import Mounts
from warmgate.doctor.exposition import Metrics
from warmgate.errors import OptionError, OutputError
from warmgate.gate import Gate
from warmgate.questions import Choice
from warmgate.replay.run import Options, replay
from warmgate.standin import StandIn
from warmgate.telemetry.protocol import Silent
from warmgate.turn import ProposedCall, Turn
from warmgate_policies.calibration import parse_labels

TURN = Turn("s", [SYSTEM, {"role": "user", "content": "read and write files"}], TOOLS)


class Files(Two):
    """Mounts two of three tools."""

    def settle(self, turn, mounted, answers, *, widen):
        return Mounts(tools=NAMES[:2], strategy="freeze", changed=mounted != NAMES[:2], reason="files")

    def wants_again(self, turn, mounted):
        return False


def page(gate: Gate) -> Metrics:
    gate.means.listeners.drain()
    listener = gate.means.listeners.prometheus
    assert listener is not None
    return Metrics(listener.page().decode())


def total(seen: Metrics, name: str, **labels: str) -> float:
    return sum(s.value for s in seen.of(f"warmgate_{name}") if labels.items() <= s.labels.items())


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("salt", [None, "tenant"])
async def test_a_replay_of_the_record_gives_the_live_totals(tmp_path: Path, events: bool, salt: str | None):
    """Live figures and replayed ones would tell two stories of the same traffic."""
    source = {"kv_events_port": 0} if events else {}
    async with StandIn(block_size=32, **source) as one, StandIn(block_size=32, kv_tokens=60 * 32) as two:
        workers = [one] if events else [one, two]
        options = settings(*workers, record=tmp_path / "record", measure_reads=True, cache_salt=salt)
        async with Gate(options, mounts=Two()) as gate:
            for session in ("a", "b", "c", "d"):
                for _, seen, prompt, cached in await run(gate, 4, session, salt=salt):
                    assert seen.drift is None
                    assert (prompt, cached) == (seen.reported_tokens, seen.cached_tokens)
            tracker = gate.means.watch.tracker
            assert tracker is not None
            live, metrics = tracker.sums, page(gate)
    assert live.calls.calls == 16
    assert live.reads.calls == 32
    assert total(metrics, "predictions_total", result="exact") == 48
    assert live.calls.surplus == live.reads.surplus == 0
    told = replay([str(tmp_path / "record" / "trace.jsonl")], Options())
    totals = told.totals
    assert (totals.calls, totals.prompt_tokens, totals.reusable_tokens, totals.survived_tokens, totals.lost_tokens) == (
        live.calls.calls,
        live.calls.prompt_tokens,
        live.calls.reusable,
        live.calls.survived,
        live.calls.lost,
    )
    for name, value in (("prompt", totals.prompt_tokens), ("reusable", totals.reusable_tokens), ("survived", totals.survived_tokens)):
        assert total(metrics, f"{name}_tokens_total", kind="call") == value
    assert any("questions per turn come from the trace for 16 calls" in note for note in told.traces[0].notes)


async def test_scenarios_of_a_gated_record_do_not_count_its_reads_twice(tmp_path: Path):
    """`none` would find what only the gate had stored, and lose it to a change of worker that never was."""
    async with StandIn(block_size=32) as worker:
        async with Gate(settings(worker, record=tmp_path), mounts=Two()) as gate:
            for session in ("a", "b"):
                await run(gate, 4, session)
    found = {s.name: s for s in replay([str(tmp_path / "trace.jsonl")], Options()).scenarios if s.route == "sticky"}
    none, aligned = found["none"], found["aligned"]
    assert none.survival == aligned.survival == 1.0
    assert none.computed_tokens == none.floor_tokens
    assert aligned.computed_tokens > none.computed_tokens


class Dying(Silent):
    """Raises at everything."""

    def decision_started(self, fact):
        raise RuntimeError("dead")

    read = agent_call = decision_finished = counted = approval = decision_started


class Stuck(Silent):
    """Never returns."""

    def __init__(self):
        self.free = threading.Event()

    def read(self, fact):
        self.free.wait(60)

    decision_finished = agent_call = read


async def test_a_dying_and_a_stuck_listener_neither_break_nor_delay_a_decision():
    """A full disk or a log pipe that nobody reads would stop the agents."""
    stuck = Stuck()
    async with StandIn() as worker:
        gate = Gate(settings(worker), mounts=Two(), telemetry=[Dying(), stuck])
        try:
            decisions = [await asyncio.wait_for(gate.decide(TURN), 20) for _ in range(3)]
            assert [d.reads[0].outcome for d in decisions] == ["answered"] * 3
            assert (await gate.observe(TURN, {"prompt_tokens": 5})).reported_tokens == 5
            dying, waiting = gate.means.listeners.asides
            assert dying.drain()
            assert dying.listener.faults >= 7
            assert not waiting.drain(0.01)
            assert total(Metrics(gate.means.listeners.prometheus.page().decode()), "decisions_total", outcome="answered") == 3
        finally:
            stuck.free.set()
            await gate.aclose()


async def test_a_dying_event_reader_does_not_delay_a_decision():
    """The decision would wait for a cache's shadow, or go out with figures of a cache that is gone."""
    async with StandIn(block_size=32, kv_events_port=0) as worker, Gate(settings(worker, deadline_ms=20_000), mounts=Two()) as gate:
        following = gate.means.watch.following
        assert following is not None
        reader = following.readers[worker.url]
        assert await asyncio.to_thread(until, lambda: reader.status.state == "fresh")
        first = await gate.decide(TURN)
        reader.close()  # as if its thread had died
        for _ in range(2):
            decision = await asyncio.wait_for(gate.decide(TURN), 20)
            assert decision.reads[0].outcome == first.reads[0].outcome == "answered"
        assert total(page(gate), "worker_events", state="fresh") + total(page(gate), "worker_events", state="gone") <= 1


async def test_workers_that_say_nothing_of_their_cache_are_decided_on_all_the_same():
    """Telemetry would be a condition of gating."""
    async with StandIn() as worker:
        for path in ("/metrics", "/kv_event_sources", "/v1/models"):
            worker.fault("404", path=path)
        async with Gate(settings(worker, alignment="always"), mounts=Two()) as gate:
            decision = await gate.decide(TURN)
            assert decision.reads[0].outcome == "answered"
            assert "metrics cannot be read" in gate.means.watch.reasons[worker.url]
            assert total(page(gate), "reads_total", outcome="answered") == 1


async def test_shadow_mode_changes_nothing_and_tells_what_it_would_have_done(tmp_path: Path):
    """Nobody would dare to switch it on, or know after a week of shadowing what enforcing does."""
    shadow = {"mounts_mode": "shadow", "calls_mode": "shadow", "record": tmp_path, "on_ask": "deny"}
    async with StandIn() as worker:
        policy = Files()
        async with Gate(settings(worker, **shadow), mounts=policy, calls=Cautious()) as gate:
            calls = [ProposedCall("c1", "bash", {"command": "make"})]
            for messages in conversation(4):
                decision = await gate.decide(Turn("s", messages, TOOLS, calls))
                assert decision.mounts.tools == NAMES
                assert not decision.mounts.changed
                assert decision.mounts.would == NAMES[:2]
                assert [(v.verdict, v.shadow) for v in decision.verdicts.values()] == [("ask", True)]
                reply = await agent_call(decision, Turn("s", messages, TOOLS))
                seen = await gate.observe(Turn("s", messages, TOOLS), reply)
                assert seen.drift is None
            seen = page(gate)
            assert total(seen, "mount_changes_total", mode="enforce") == 0
            assert total(seen, "mount_changes_total", mode="shadow") == 4
            assert total(seen, "verdicts_total", mode="shadow", verdict="ask") == 4
    command = [sys.executable, "-m", "warmgate", "replay", str(tmp_path / "decisions.jsonl"), "--json", "-"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (trace,) = json.loads(done.stdout)["traces"]
    notes = "\n".join(trace["notes"])
    assert "enforcing would have mounted 8 of 12 tools, changed the set 0 times, and left out about" in notes
    assert "shadowed verdicts: allow 0, ask 4, deny 0" in notes


async def test_a_persons_word_is_a_label(tmp_path: Path):
    """People would answer the same question for ever, and teach nothing."""
    async with StandIn() as worker, Gate(settings(worker, record=tmp_path, record_text=True), calls=Cautious()) as gate:
        for number in range(4):
            turn = Turn("s", TURN.messages, (), [ProposedCall("c1", "bash", {"command": f"make {number}"})])
            decision = await gate.decide(turn)
            verdict = decision.verdicts["c1"]
            bound = verdict.binding if number < 3 else "of another call"
            gate.approval(decision.id, "c1", bound, approved=number != 1, tool="bash")
    labels = parse_labels((tmp_path / "decisions.jsonl").read_bytes(), where="decisions.jsonl")
    assert [label.label for label in labels] == ["yes", "no", "yes"]  # the last word was about something else
    assert {label.key.model for label in labels} == {"standin"}
    assert all(label.probabilities and label.state for label in labels)
    assert labels[0].question.instructions == "Is this harmless?"


async def test_a_record_holds_no_text_unless_asked(tmp_path: Path):
    """A log of what is counted would be a log of what was said."""
    turn = Turn("secret session", [{"role": "user", "content": "secret words"}], TOOLS, [ProposedCall("c1", "bash", {"command": "secret"})])
    async with StandIn() as worker, Gate(settings(worker, record=tmp_path / "{pid}"), mounts=Two(), calls=Cautious()) as gate:
        decision = await gate.decide(turn)
        await gate.observe(turn, await agent_call(decision, turn))
    folder = tmp_path / str(os.getpid())
    for name in ("trace.jsonl", "decisions.jsonl"):
        written = (folder / name).read_text()
        assert written.count("\n") >= 1
        assert "secret" not in written


async def test_top_shows_a_live_gate():
    """Operators would look at an empty table."""
    async with StandIn(block_size=32) as worker, Gate(settings(worker), mounts=Two()) as gate:
        await run(gate, 3)
        app = gate.metrics_app()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gate") as client:
            seen = Metrics((await client.get("/metrics")).text)
        assert total(seen, "worker_sessions", worker=worker.url) == 1
        assert total(seen, "worker_resident_blocks", worker=worker.url) > 10
        uvicorn = pytest.importorskip("uvicorn")
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        assert await asyncio.to_thread(until, lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        command = [sys.executable, "-m", "warmgate", "top", "--once", f"http://127.0.0.1:{port}/metrics"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "160"}
        )
        server.should_exit = True
        await serving
    assert done.returncode == 0, done.stderr
    assert "survival 100.0 %" in done.stdout
    assert worker.url in done.stdout


def test_what_cannot_listen_is_refused_at_once(tmp_path: Path):
    """The operator would learn of a missing record when it is needed."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        Gate(settings("http://127.0.0.1:1", record=tmp_path / "file" / "x"))
    with pytest.raises(OptionError, match="metrics are off"):
        Gate(settings("http://127.0.0.1:1", metrics="off")).metrics_app()


class Many(Two):
    """A choice of more options than a worker takes."""

    def questions(self, turn, mounted):
        return {"set": Choice(instructions="Which?", criteria={f"option {n}": None for n in range(40)})}


async def test_a_question_that_cannot_be_predicted_is_asked_all_the_same():
    """A fault in the figures would cost the decision."""
    async with StandIn() as worker, Gate(settings(worker, engines=["prefix_read"]), mounts=Many()) as gate:
        decision = await gate.decide(TURN)
        assert decision.mounts.tools == NAMES
        assert decision.reads
        assert gate.means.watch.tracker is not None

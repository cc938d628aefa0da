"""A gate's own figures on a real vLLM. If these fail, what operators see of survival is not what the engine did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.engine.rig.server import VllmServer
from tests.engine.rig_gate import TOOLS, Three, conversation
from tests.integration.events.traffic import until
from warmgate.gate import Gate
from warmgate.replay.run import Options, replay
from warmgate.settings import Settings
from warmgate.turn import Turn


@pytest.mark.parametrize("engine", ["systemone", "prefix_read"])
async def test_live_figures_are_exact_and_a_replay_of_the_record_gives_them(
    vllm_server: Callable[..., VllmServer], tmp_path: Path, engine: str
):
    """Predicted = reported for every call and every decision's reads, and the record tells the same story to the token."""
    server = vllm_server(kv_events=True, num_gpu_blocks=1000, max_model_len=4096)  # here: it ends with the thread that started it
    salt = f"telemetry-{engine}"
    options = Settings(
        workers=[server.url], model="qwen3", engines=[engine], deadline_ms=60_000, label_mass_floor=0, cache_salt=salt,
        record=tmp_path, measure_reads=True,
    )  # fmt: skip
    async with httpx.AsyncClient(timeout=120) as client, Gate(options, mounts=Three()) as gate:
        for _ in range(10):  # a busy machine may answer too late for the first look
            if not gate.means.watch.follows(server.url):
                gate.means.watch._tried.clear()
                await gate.means.watch._add(server.url)
        following = gate.means.watch.following
        assert following is not None
        reader = following.readers[server.url]
        assert await asyncio.to_thread(until, lambda: reader.status.state == "fresh")
        for session in ("a", "b"):
            for messages in conversation(4):
                turn = Turn(f"{salt}-{session}", messages, TOOLS)
                decision = await gate.decide(turn)
                assert [(r.state, r.engine, r.outcome) for r in decision.reads] == [("aligned", engine, "answered")]
                body = {
                    "model": "qwen3",
                    "messages": messages,
                    "tools": TOOLS,
                    "max_tokens": 4,
                    "cache_salt": salt,
                    "return_token_ids": True,
                }
                reply = await client.post(f"{decision.worker}/v1/chat/completions", json=body, headers=decision.headers)
                await gate.observe(turn, reply.raise_for_status().json())
        tracker, page = gate.means.watch.tracker, gate.means.listeners.prometheus
        assert tracker is not None
        assert page is not None
        live = tracker.sums
        text = page.page().decode()
    print(f"\n{live.calls}\n{live.reads}")
    assert (live.calls.calls, live.reads.calls) == (8, 24)
    assert live.calls.surplus == 0
    assert live.calls.lost == {}
    assert live.calls.survived == live.calls.reported_cached
    assert live.reads.survived == live.reads.reported_cached
    assert 'warmgate_predictions_total{kind="call",result="exact"} 8.0' in text
    assert 'warmgate_predictions_total{kind="read",result="exact"} 24.0' in text
    totals = replay([str(tmp_path / "trace.jsonl")], Options()).totals
    assert (totals.calls, totals.prompt_tokens, totals.reusable_tokens, totals.survived_tokens) == (
        live.calls.calls,
        live.calls.prompt_tokens,
        live.calls.reusable,
        live.calls.survived,
    )

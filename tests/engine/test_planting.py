"""What the gate makes of caches that keep little: unplanted, planted, and what it decides by itself. Figures in docs/alignment.md.

If these fail, aligned decisions on sliding-window or recurrent models compute the prompt twice, while the gate claims a saving.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import pytest

from tests.engine.rig_gate import TOOLS, Three, call, computed, conversation
from warmgate.gate import Gate
from warmgate.settings import Settings
from warmgate.turn import Turn

TURNS = 4


@dataclass
class Run:
    """One conversation.

    Attributes:
        spent: Tokens computed at each turn, by decision and call together.
        prompts: Prompt tokens of each call.
        cached: Those of them that the call found.
    """

    decisions: list
    seen: list
    spent: list
    prompts: list
    cached: list


async def run(server, model, alignment, salt):
    options = Settings(
        workers=[server.url],
        model=model,
        deadline_ms=120_000,
        label_mass_floor=0,
        engines=["systemone"],
        alignment=alignment,
        cache_salt=salt,
    )
    found = Run([], [], [], [], [])
    async with httpx.AsyncClient(timeout=120) as client, Gate(options, mounts=Three()) as gate:
        if alignment == "auto":  # so that measuring the cache is not among the tokens counted
            await gate.means.findings.of(server.url, model, {}, wait_s=60)
        for messages in conversation(TURNS):
            turn = Turn(salt, messages, TOOLS)
            before = await computed(client, server.url)
            decision = await gate.decide(turn)
            usage = await call(client, decision, turn, model, salt)
            found.spent.append(await computed(client, server.url) - before)
            found.decisions.append(decision)
            found.prompts.append(usage["prompt_tokens"])
            found.cached.append(usage["prompt_tokens_details"]["cached_tokens"])
            found.seen.append(await gate.observe(turn, usage))
    print(f"\n{model} {alignment}: computed {found.spent}, prompts {found.prompts}, cached {found.cached}")
    return found


@pytest.mark.parametrize("model", ["qwen3", *(pytest.param(m, marks=pytest.mark.engine_all) for m in ("qwen35", "lfm2vl"))])
async def test_the_gate_plants_where_a_cache_needs_it(request, vllm_server, model):
    """A hybrid model's agent would find nothing of what the decision computed; a full-attention one would get a request too many."""
    server = request.getfixturevalue("vllm_qwen3") if model == "qwen3" else vllm_server(model=model)
    block = 32 if model == "qwen3" else 128
    runs = {alignment: await run(server, model, alignment, f"{model}-{alignment}") for alignment in ("off", "always", "plant", "auto")}
    auto = runs["auto"]
    engines = [[read.engine for read in decision.reads] for decision in auto.decisions]
    plants = [names[0] == "plant" for names in engines]
    assert not any(plants) if model == "qwen3" else any(plants)
    assert [names[-1] for names in engines] == ["systemone"] * TURNS
    for alignment in ("plant", "auto"):
        for prompt, cached in zip(runs[alignment].prompts, runs[alignment].cached, strict=True):
            assert prompt - cached <= block + 8
    assert runs["off"].cached[0] == 0
    assert auto.spent[0] <= 0.7 * runs["off"].spent[0]
    assert auto.spent[0] <= auto.prompts[0] + 4 * (block + 64)
    for seen in auto.seen:
        assert seen.drift is None
        assert seen.ledger.cause is None
        assert seen.ledger.survived == seen.ledger.reusable


@pytest.mark.engine_all
async def test_long_blocks_are_planted_only_where_a_boundary_falls_into_the_questions(vllm_server):
    """A plant costs up to a block: at each turn it would be paid for a state that the first question leaves anyway."""
    server = vllm_server(model="qwen35", block_size=640)
    runs = {alignment: await run(server, "qwen35", alignment, f"long-{alignment}") for alignment in ("off", "plant", "auto")}
    auto = runs["auto"]
    planted = [any(read.engine == "plant" for read in decision.reads) for decision in auto.decisions]
    print(planted)
    assert not all(planted)
    assert auto.cached == runs["plant"].cached
    assert sum(auto.spent) < sum(runs["plant"].spent)
    assert sum(auto.spent) < sum(runs["off"].spent)


@pytest.mark.engine_all
async def test_a_pooling_model_is_never_aligned(vllm_server):
    """clef-omni reads no cache, refuses instructions and cuts long states: alignment would only break it."""
    server = vllm_server(model="clef")
    options = Settings(
        workers=[server.url], model="agent", gate_workers=[server.url], gate_model="clef", deadline_ms=60_000, engines=["systemone"]
    )
    async with Gate(options, mounts=Three()) as gate:
        await gate.means.findings.of(server.url, "clef", {}, wait_s=60)
        decision = await gate.decide(Turn("s", conversation(1, long=4)[0], TOOLS))
    assert [(r.state, r.outcome) for r in decision.reads] == [("json", "answered")]
    assert any("alignment and affinity are off" in reason for reason in decision.reasons)

"""The gate on a real vLLM. If these fail, the claim the product stands on no longer holds: a decision would cost a second prefill."""

from __future__ import annotations

import httpx
import pytest

from tests.engine.rig import tiny_models
from tests.engine.rig_gate import TOOLS, WORDS, Three, call, computed, conversation
from warmgate.alignment.template import ChatTemplate
from warmgate.gate import Gate
from warmgate.settings import Settings
from warmgate.turn import Turn


def settings(server, **more):
    given = {"deadline_ms": 60_000, "label_mass_floor": 0, **more}
    return Settings(workers=[server.url], model="qwen3", **given)


@pytest.mark.parametrize("state", ["aligned", "json"])
async def test_what_a_decision_leaves_the_agents_call(vllm_qwen3, state):
    """Aligned, the agent's call finds all but its last block; as JSON, the conversation is computed twice."""
    aligned = state == "aligned"
    template = ChatTemplate.from_file(tiny_models.build("qwen3") / "chat_template.jinja")
    options = settings(vllm_qwen3, engines=["systemone"], cache_salt=f"gate-{state}", alignment="always" if aligned else "off")
    system = {"role": "system", "content": WORDS * 90}
    async with httpx.AsyncClient(timeout=120) as client, Gate(options, mounts=Three(), template=template) as gate:
        messages = [system]
        for turn in range(3):
            messages = [*messages, {"role": "user", "content": f"Step {turn}: mend the parser. " * 8}]
            before = await computed(client, vllm_qwen3.url)
            asked = Turn("session", messages, TOOLS)
            decision = await gate.decide(asked)
            assert [(r.state, r.outcome) for r in decision.reads] == [(state, "answered")]
            usage = await call(client, decision, asked, "qwen3", options.cache_salt)
            prompt, cached = usage["prompt_tokens"], (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
            spent = await computed(client, vllm_qwen3.url) - before
            if aligned:
                assert prompt - cached <= 32 + 8
                assert spent <= (prompt if turn == 0 else 400) + 3 * (60 + 32) + 40
            elif turn == 0:
                assert cached == 0
                assert spent >= 1.9 * prompt
            messages = [*messages, {"role": "assistant", "content": "Done."}]


@pytest.mark.parametrize("engine", ["systemone", "prefix_read"])
async def test_workers_and_model_alone_align(vllm_qwen3, engine):
    """A stock vLLM without a template setting, which most users have, would be prefilled twice at every turn."""
    options = settings(vllm_qwen3, engines=[engine], cache_salt=f"stock-{engine}")
    async with httpx.AsyncClient(timeout=120) as client, Gate(options, mounts=Three()) as gate:
        for messages in conversation(6):
            turn = Turn(f"stock-{engine}", messages, TOOLS)
            decision = await gate.decide(turn)
            assert [(r.state, r.engine, r.outcome) for r in decision.reads] == [("aligned", engine, "answered")]
            assert decision.reasons == ()
            usage = await call(client, decision, turn, "qwen3", options.cache_salt)
            prompt, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
            assert prompt - cached <= 32 + 8
            seen = await gate.observe(turn, usage)
            assert (seen.predicted_tokens, seen.drift) == (prompt, None)
            assert (seen.ledger.reusable, seen.ledger.survived, seen.ledger.surplus) == (cached, cached, 0)
        finding = gate.means.findings.all()[vllm_qwen3.url, "qwen3"]
        assert (finding.hits, finding.unit) == ("first", 32)


async def test_a_stale_template_is_found_out_before_it_costs_anything(vllm_qwen3):
    """A template file of the model's last release would claim a saving that is not there."""
    source = (tiny_models.build("qwen3") / "chat_template.jinja").read_text().replace("# Tools", "# Helpers")
    options = settings(vllm_qwen3, engines=["systemone"], cache_salt="stale")
    async with Gate(options, mounts=Three(), template=ChatTemplate(source, "stale")) as gate:
        decision = await gate.decide(Turn("stale", conversation(1)[0], TOOLS))
    assert [r.state for r in decision.reads] == ["json"]
    assert "by the server's own ids" in decision.reasons[0]


async def test_drift_is_seen_by_the_calls_own_usage(vllm_qwen3):
    """A middleware that adds a tool would break every prefix, and nobody would know."""
    more = [
        *TOOLS,
        {"type": "function", "function": {"name": "extra", "description": "x", "parameters": {"type": "object", "properties": {}}}},
    ]
    options = settings(vllm_qwen3, engines=["systemone"], cache_salt="drift")
    async with httpx.AsyncClient(timeout=120) as client, Gate(options, mounts=Three()) as gate:
        states = []
        for messages in conversation(4):
            turn = Turn("drift", messages, TOOLS)
            decision = await gate.decide(turn)
            states += [r.state for r in decision.reads]
            seen = await gate.observe(turn, await call(client, decision, turn, "qwen3", "drift", tools=more))
            assert seen.drift is not None
            assert seen.reported_tokens > seen.predicted_tokens
    assert states == ["aligned"] * 3 + ["json"]

"""The gate's states on stand-in workers. If these fail, a decision costs a second prefill, or claims a saving that is not there."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.gate.agents import SYSTEM, TOOLS, Two, agent_call, conversation, run, settings
from warmgate.alignment.drift import IN_A_ROW
from warmgate.alignment.template import CHATML, ChatTemplate
from warmgate.gate import Gate
from warmgate.standin import StandIn
from warmgate.telemetry.protocol import Telemetry
from warmgate.turn import Turn

# Tools in the last user message, as Llama 3.1 places them: systemone's system and user texts cannot restate such a prompt.
TOOLS_LATE = """\
{{- '<|im_start|>system\\n' + (messages[0].content if messages[0].role == 'system' else '') + ' ' + (tools | length | string if tools else 'no')
    + ' tools<|im_end|>\\n' -}}
{%- for m in messages if m.role != 'system' -%}{{- '<|im_start|>' + m.role + '\\n' + flat(m.content) + '<|im_end|>\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


async def test_workers_and_model_alone_are_enough():
    """Most users set no template: every one of their turns would be prefilled twice."""
    async with StandIn() as worker, Gate(settings(worker), mounts=Two()) as gate:
        for decision, seen, prompt, cached in await run(gate, 8):
            assert [(r.state, r.engine) for r in decision.reads] == [("aligned", "systemone")]
            assert decision.reasons == ()
            assert prompt - cached <= 16 + 8
            assert seen.predicted_tokens == prompt
            assert seen.drift is None
            assert seen.ledger.survived == cached
            assert seen.ledger.survived_basis == "measured"
            assert seen.ledger.surplus == 0
            assert seen.ledger.cause is None


async def test_a_template_file_gives_the_same():
    """Two ways of knowing the template would align differently."""
    async with StandIn() as worker, Gate(settings(worker), mounts=Two(), template=ChatTemplate.default()) as gate:
        for decision, seen, prompt, cached in await run(gate, 6):
            assert [r.state for r in decision.reads] == ["aligned"]
            assert prompt - cached <= 16 + 8
            assert seen.predicted_tokens == prompt


async def test_the_ledger_predicts_what_later_reads_find():
    """Survival of decisions would stay unknown, since systemone reports no cached tokens."""
    async with StandIn() as worker, Gate(settings(worker), mounts=Two()) as gate:
        found = await run(gate, 4)
        before = worker.counters["hits"]
        turn = Turn("s", [*conversation(4)[-1], {"role": "assistant", "content": "Done."}, {"role": "user", "content": "more"}], TOOLS)
        read = (await gate.decide(turn)).reads[0]
    assert read.ledger.prompt_basis == "measured"
    assert read.ledger.survived_basis == "predicted"
    assert read.ledger.reusable >= 2 * (found[-1][2] - 16)
    assert read.ledger.reusable <= worker.counters["hits"] - before


async def test_prefix_reads_align_by_ids_on_any_template(tmp_path):
    """Llama 3.1, Mistral and gpt-oss, which systemone's prompt cannot restate, would be prefilled twice at each turn."""
    template = tmp_path / "late.jinja"
    template.write_text(TOOLS_LATE)
    async with StandIn(chat_template=template) as worker, Gate(settings(worker, engines=["prefix_read"]), mounts=Two()) as gate:
        for decision, seen, prompt, cached in await run(gate, 5):
            assert [(r.state, r.engine, r.outcome) for r in decision.reads] == [("aligned", "prefix_read", "answered")]
            assert decision.reasons == ()
            assert decision.reads[0].reason == ""
            assert decision.reads[0].shared_characters > len(SYSTEM["content"])
            assert prompt - cached <= 16 + 8
            assert decision.reads[0].ledger.survived_basis == "measured"
            assert seen.predicted_tokens == prompt


async def test_a_wrong_template_is_found_out_by_the_servers_ids(tmp_path):
    """A stale template file would claim a saving at every turn and never have one."""
    template = tmp_path / "other.jinja"
    template.write_text(CHATML.replace("# Tools", "# Helpers"))
    async with StandIn(chat_template=template) as worker, Gate(settings(worker), mounts=Two(), template=ChatTemplate.default()) as gate:
        decision = await gate.decide(Turn("s", [SYSTEM, {"role": "user", "content": "read"}], TOOLS))
        assert [r.state for r in decision.reads] == ["json"]
        assert "by the server's own ids" in decision.reasons[0]
        without = await gate.decide(Turn("t", [SYSTEM, {"role": "user", "content": "read"}], []))
    assert without.reads == ()


async def test_without_a_tokenizer_route_the_check_is_skipped_and_said():
    """A gateway that hides /tokenize would end alignment, or the missing check stay unknown."""
    async with StandIn() as worker, Gate(settings(worker), mounts=Two(), template=ChatTemplate.default()) as gate:
        worker.fault("404", path="/tokenize")
        (decision, seen, prompt, cached), *_ = await run(gate, 1)
    assert [r.state for r in decision.reads] == ["aligned"]
    assert "no /tokenize" in decision.reasons[0]
    assert prompt - cached <= 16 + 8
    assert seen.predicted_tokens is None
    assert "no /tokenize" in seen.notes[0]


async def test_a_call_that_carries_another_prompt_ends_alignment_after_three():
    """A middleware that adds a tool would break the prefix at each turn, and the gate claim a saving."""
    more = [*TOOLS, {"type": "function", "function": {"name": "extra", "description": "x", "parameters": {}}}]
    async with StandIn() as worker, Gate(settings(worker), mounts=Two()) as gate:
        found = await run(gate, IN_A_ROW + 1, tools=more)
        assert [seen.drift is not None for _, seen, _, _ in found] == [True] * (IN_A_ROW + 1)
        assert [r.state for d, *_ in found for r in d.reads] == ["aligned"] * IN_A_ROW + ["json"]
        assert "otherwise than predicted" in found[-1][0].reasons[0]
        assert sum(gate.means.planning.drift("standin").counts.values()) == IN_A_ROW + 1


@pytest.mark.parametrize("alignment", ["plant", "off"])
async def test_the_settings_may_say_what_to_do(alignment):
    """An operator who knows better could not say so."""
    async with StandIn() as worker, Gate(settings(worker, alignment=alignment), mounts=Two()) as gate:
        found = await run(gate, 3)
    engines = [[r.engine for r in decision.reads] for decision, *_ in found]
    if alignment == "off":
        assert engines == [["systemone"]] * 3
        assert all("alignment is off" in decision.reasons[0] for decision, *_ in found)
        return
    assert engines == [["plant", "systemone"]] * 3
    for decision, _, prompt, cached in found:
        plant, read = decision.reads
        assert plant.questions == ()
        assert plant.ledger.survived_basis == "measured"
        assert prompt - cached <= 16 + 8
        assert read.ledger.shared >= 2 * (prompt - 8)


async def test_planting_that_fails_does_not_cost_the_decision():
    """A worker without /v1/completions would get no decisions."""
    async with StandIn() as worker, Gate(settings(worker, alignment="plant"), mounts=Two()) as gate:
        worker.fault("500", path="/v1/completions")
        decision = await gate.decide(Turn("s", [SYSTEM, {"role": "user", "content": "read"}], TOOLS))
    assert [(r.engine, r.outcome) for r in decision.reads] == [("plant", "no_answer"), ("systemone", "answered")]
    assert any("not planted" in reason for reason in decision.reasons)


async def test_a_sidecar_that_reads_no_cache_is_spread_and_says_so():
    """clef-omni never looks into its cache: sticky sessions would only load its workers unevenly."""
    async with StandIn() as agent, StandIn(style="clef") as one, StandIn(style="clef") as two:
        more = {"gate_workers": [one.url, two.url], "gate_model": "standin"}
        async with Gate(settings(agent, **more), mounts=Two()) as gate:
            for worker in (one.url, two.url):
                await gate.means.findings.of(worker, "standin", {}, wait_s=20)
            messages = [SYSTEM, {"role": "user", "content": "read"}]
            decisions = [await gate.decide(Turn("s", messages, TOOLS)) for _ in range(4)]
    assert {d.worker for d in decisions} == {agent.url}
    assert {r.worker for d in decisions for r in d.reads} == {one.url, two.url}
    for decision in decisions:
        assert any("alignment and affinity are off" in reason for reason in decision.reasons)
        assert [(r.state, r.outcome) for r in decision.reads] == [("json", "answered")]


async def test_a_pooling_sidecar_is_not_asked_about_what_it_would_cut():
    """clef drops the end of a long state without a word: the last message, of all."""
    async with StandIn() as agent, StandIn(style="clef", max_model_len=2048) as sidecar:
        async with Gate(settings(agent, gate_workers=[sidecar.url], gate_model="standin"), mounts=Two()) as gate:
            await gate.means.findings.of(sidecar.url, "standin", {}, wait_s=20)
            decision = await gate.decide(Turn("s", [SYSTEM, {"role": "user", "content": "long " * 3000}], TOOLS))
    assert [r.outcome for r in decision.reads] == ["no_answer"]
    assert "would cut it" in decision.reads[0].reason


async def test_a_prompt_longer_than_the_model_is_refused_with_that_reason():
    """It would be cut, and the decision be about half a conversation."""
    async with StandIn(max_model_len=700) as worker, Gate(settings(worker, engines=["systemone"]), mounts=Two()) as gate:
        decision = await gate.decide(Turn("s", [SYSTEM, {"role": "user", "content": "long " * 600}], TOOLS))
    assert [r.outcome for r in decision.reads] == ["no_answer"]
    assert "maximum context length" in decision.reads[0].reason


async def test_salt_priority_and_model_are_the_agents_own():
    """A decision in another namespace warms nothing, and one tenant's prefix would time another's."""
    async with StandIn(loras=["tuned"]) as worker, Gate(settings(worker, alignment="plant", priority=-1), mounts=Two()) as gate:
        turn = Turn("s", [SYSTEM, {"role": "user", "content": "read"}], TOOLS, cache_salt="tenant", model="tuned")
        decision = await gate.decide(turn)
        bodies = {
            e.path: e.json() for e in worker.requests if e.path in ("/v1/systemone", "/v1/completions") and e.json().get("cache_salt")
        }
        assert set(bodies) == {"/v1/systemone", "/v1/completions"}
        for body in bodies.values():
            assert (body["model"], body["cache_salt"], body["priority"]) == ("tuned", "tenant", -1)
        async with httpx.AsyncClient() as client:
            body = {"model": "tuned", "messages": turn.messages, "tools": TOOLS, "max_tokens": 1, "cache_salt": "tenant"}
            usage = (await client.post(f"{decision.worker}/v1/chat/completions", json=body)).json()["usage"]
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] <= 16 + 8


async def test_the_first_mount_may_be_asked_without_tools():
    """A catalogue of a hundred tools would be prefilled to decide which ten to mount."""
    policy = Two()
    policy.first_mount = "bare"
    async with StandIn() as worker, Gate(settings(worker), mounts=policy) as gate:
        turn = Turn("s", [SYSTEM, {"role": "user", "content": "read"}], TOOLS)
        first = await gate.decide(turn)
        await agent_call(first, turn)
        second = await gate.decide(turn)
    assert [r.state for d in (first, second) for r in d.reads] == ["aligned", "aligned"]
    assert second.reads[0].shared_characters > first.reads[0].shared_characters


class Calls(Telemetry):
    """Keeps what it is told of the agent's calls."""

    def __init__(self):
        self.seen = []

    def agent_call(self, seen):
        self.seen.append(seen)


@pytest.mark.parametrize("given", [True, False])
async def test_a_template_that_opens_no_turn_behind_a_result_is_no_drift(tmp_path, given):
    """With Gemma 4 or DeepSeek V3.1, three calls after tool results would end alignment for every session, and none be followed."""
    template = tmp_path / "goes_on.jinja"
    template.write_text(CHATML.replace("if add_generation_prompt", "if add_generation_prompt and messages[-1].role != 'tool'"))
    chosen = ChatTemplate.from_file(template) if given else None
    calls = Calls()
    async with (
        StandIn(chat_template=template) as worker,
        Gate(settings(worker), mounts=Two(), template=chosen, telemetry=[calls]) as gate,
    ):
        for decision, seen, prompt, _ in await run(gate, 8):
            assert [r.state for r in decision.reads] == ["aligned"]
            assert (seen.predicted_tokens, seen.drift) == (prompt, None)
    assert [call.survival is not None for call in calls.seen] == [True] * 8

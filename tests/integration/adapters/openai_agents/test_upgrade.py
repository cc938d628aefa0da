"""A run that was stopped under the first version goes on under this one. If this fails, an upgrade loses what waits for a person.

The file was written by a run of ``build`` below that stopped at its question; it is never written anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agents import Agent, Runner, RunState, function_tool
from agents.testing import ScriptedModel, assistant_message

from tests.integration.adapters.openai_agents.test_tools import outputs, world
from warmgate_adapters.conformance.rig import Words
from warmgate_adapters.openai_agents import GatedModel, GateHooks, gated_tools, run_config

STORED = Path(__file__).parents[3] / "data" / "gate_state" / "openai_agents_run_v1.json"


def build(made, steps):
    model = GatedModel(ScriptedModel(steps), made.gate)
    return Agent(name="coder", model=model, tools=gated_tools(list(map(function_tool, made.tools)), made.gate))


@pytest.mark.parametrize("word", ["approve", "reject"])
async def test_a_stored_run_goes_on_and_nothing_is_decided_again(tmp_path, word):
    policy = Words()
    async with world(tmp_path, policy=policy) as made:
        agent = build(made, [[assistant_message("done")]])
        state = await RunState.from_json(agent, json.loads(STORED.read_text()))
        (item,) = state.get_interruptions()
        getattr(state, word)(item)
        result = await Runner.run(agent, state, hooks=GateHooks(made.gate), run_config=run_config(made.gate, "s"))
        assert made.ran == ([("shell", "make")] if word == "approve" else [])
        assert any("it removes files" in one for one in outputs(result))
        assert policy.judged == []
        assert result.final_output == "done"

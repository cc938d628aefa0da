"""If these fail, the traces a newcomer tries first cannot be made again, or show less than they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from warmgate.replay.run import Options, replay

EXAMPLES = Path(__file__).parents[3] / "examples/traces"


def test_the_script_makes_exactly_these_files(tmp_path):
    """A change of one without the other would go unseen."""
    subprocess.run([sys.executable, str(EXAMPLES / "make_traces.py"), str(tmp_path)], check=True)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (EXAMPLES / path.name).read_bytes()
    assert sum(path.stat().st_size for path in EXAMPLES.iterdir() if path.is_file()) < 400_000


def test_the_chat_trace_shows_a_changed_tool_list_and_a_clock():
    """The report would have nothing to show."""
    result = replay([str(EXAMPLES / "coding-agent.chat.jsonl")], Options())
    (trace,) = result.traces
    assert (trace.format, trace.sessions, trace.calls, trace.skipped_lines) == ("openai_chat", 2, 16, 0)
    why = [row.why for row in result.calls if row.why]
    assert len(why) == 3
    assert any("tools changed: removed edit_file, update_plan" in one for one in why)
    assert any("system prompt changed" in one and '"01" became "14"' in one for one in why)
    assert result.totals.reported_cached_tokens is None
    assert result.tokenizer == "scaled"


def test_the_weka_trace_shows_a_sub_agent_and_a_cut_history():
    result = replay([str(EXAMPLES / "coding-agent.weka.json")], Options())
    (trace,) = result.traces
    assert (trace.format, trace.sessions, trace.calls, trace.block_size, trace.skipped_lines) == ("weka", 2, 17, 64, 0)
    assert sum(row.why is not None for row in result.calls) == 1


@pytest.mark.parametrize("name", ["coding-agent.chat.jsonl", "coding-agent.weka.json"])
def test_an_aligned_gate_costs_least(name):
    """The examples would argue against the product."""
    result = replay([str(EXAMPLES / name)], Options())
    tax = {scenario.name: scenario.tax_tokens for scenario in result.scenarios if scenario.route == "sticky"}
    assert 0 < tax["aligned"] < tax["json"] / 3

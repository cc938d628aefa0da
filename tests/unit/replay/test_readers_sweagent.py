"""If these fail, `replay` takes demonstrations of a SWE-agent trajectory for calls, or mixes its agents' histories."""

from __future__ import annotations

import json

from tests.unit.replay.reading import DATA, read
from warmgate.replay.readers.sweagent import READER


def document():
    return json.loads((DATA / "sweagent/two_agents.traj").read_text())


def test_each_agents_answers_are_its_calls_with_its_own_history():
    """A reviewer's prompt would hold the main agent's messages."""
    found = read(READER, "sweagent/two_agents.traj")
    assert found.sessions == ["main", "reviewer", "main"]
    assert [c.model for c in found.calls] == ["qwen3"] * 3
    assert found.spoken(1) == [("system", "You review fixes."), ("user", "Review.")]


def test_demonstrations_are_sent_but_never_called():
    """A demonstration's answer would count as a call; left out, every prompt would be too short."""
    found = read(READER, "sweagent/two_agents.traj")
    assert [role for role, _ in found.spoken(0)] == ["system", "user", "assistant", "user"]
    assert found.messages(2)[5] == {"role": "tool", "content": "a.py", "tool_call_id": "q1"}


def test_no_counts_are_invented_and_the_sum_is_told():
    """Dividing a run's total by its calls would look like a measurement."""
    found = read(READER, "sweagent/two_agents.traj")
    assert found.counts == [(None, None, None)] * 3
    assert any("900 tokens sent over 3 calls" in note for note in found.notes)


def test_queries_recorded_as_sent_are_preferred_to_the_history():
    """History processors cut old observations: the history is not what the model saw."""
    trace = document()
    for step, text in zip(trace["trajectory"], ("one", "two"), strict=True):
        step["query"] = [{"role": "system", "content": "cut", "agent": "main"}, {"role": "user", "content": text}]
    found = read(READER, trace)
    assert [found.spoken(i)[1] for i in range(2)] == [("user", "one"), ("user", "two")]
    assert found.calls[1].response == {"role": "assistant", "content": "Done."}


def test_attempts_are_sessions_of_their_own():
    """A retrying agent's second attempt would look like the first one going on."""
    one = document()
    found = read(READER, {"attempts": [one, one], "trajectory": [], "info": {}})
    assert found.sessions[:4] == ["attempt-1/main", "attempt-1/reviewer", "attempt-1/main", "attempt-2/main"]

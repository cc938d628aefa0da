"""If these fail, `replay` gives an OpenHands agent's calls prompts or token counts that are not theirs."""

from __future__ import annotations

import json

import pytest

from tests.unit.replay.reading import DATA, read
from warmgate.errors import TraceError
from warmgate.replay.readers.openhands import READER


def events(name="openhands/events.jsonl"):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def test_parallel_tool_calls_are_one_response():
    """Each action would count as a call of its own, with the first one's tokens."""
    found = read(READER, "openhands/events.jsonl")
    assert len(found.calls) == 3
    assert [c["id"] for c in found.calls[0].response["tool_calls"]] == ["c1", "c2"]
    assert [role for role, _ in found.spoken(1)] == ["system", "user", "assistant", "tool", "tool"]


def test_counts_are_the_growth_of_the_sums():
    """The sums of a whole conversation would be taken for one prompt."""
    assert read(READER, "openhands/events.jsonl").counts == [(400, 0, 20), (500, 384, 10), (300, 256, 6)]


def test_counts_written_after_the_events_are_theirs_too():
    """In such a log every call would get the counts of the one before it."""
    trace = events()
    order = [trace[i] for i in (0, 1, 2, 4, 5, 3, 6, 7, 9, 8, 10, 11, 13, 12)]
    found = read(READER, order, lines=True)
    assert found.counts == [(400, 0, 20), (500, 384, 10), (300, 256, 6)]
    assert [c["id"] for c in found.calls[0].response["tool_calls"]] == ["c1", "c2"]


def test_condensed_events_leave_the_prompt_and_their_summary_enters():
    """The prompt would hold what the model no longer saw, and the broken prefix would have no cause."""
    found = read(READER, "openhands/events.jsonl")
    assert found.spoken(2)[2] == ("user", "Two files were listed.")
    assert len(found.messages(2)) == 5
    assert len(found.messages(1)) == 5  # an earlier prompt stays as it was


def test_system_prompt_tools_and_hints_are_in_the_prompt():
    """Without tools and system prompt most of an agent's prefix is missing."""
    found = read(READER, "openhands/events.jsonl")
    assert found.spoken(0) == [("system", "You work in a shell."), ("user", "Count the files. Hint: ls.")]
    assert found.calls[0].prompt.tools[0]["function"]["name"] == "terminal"


def test_an_excerpt_gives_counts_alone():
    """A prompt rebuilt from the middle of a log would be one that no model ever saw."""
    found = read(READER, "openhands/excerpt.jsonl")
    assert found.counts == [(500, 0, 50), (800, 400, 10), (1000, 900, 10)]
    assert all(c.prompt is None for c in found.calls)
    assert found.calls[1].response["content"] == "Go on."
    assert any("excerpt" in note or "system prompt" in note for note in found.notes)


def test_growth_over_several_calls_is_nobodys():
    """3,700 tokens of several calls would stand as one prompt."""
    found = read(READER, "openhands/excerpt.jsonl")
    assert found.skipped == 1
    assert "several LLM calls" in found.said[0]


def test_a_second_event_with_the_same_id_is_skipped_and_told():
    """Pages of a log that overlap would put messages twice into every later prompt."""
    once = events()
    found = read(READER, [*once[:6], *once[3:]], lines=True)
    assert found.counts == read(READER, once, lines=True).counts
    assert [found.messages(i) for i in range(3)] == [read(READER, once, lines=True).messages(i) for i in range(3)]
    assert found.skipped == 3
    assert found.said[0] == f"trace:7: skipped, a second event with the id {once[3]['id']}"


def test_a_log_without_any_call_is_refused_with_that_reason():
    """The user would see an empty report and not know why."""
    with pytest.raises(TraceError, match="without an LLM response"):
        read(READER, [e for e in events() if e["kind"] == "SystemPromptEvent"] * 2, lines=True)

"""If these fail, `replay` misreads spans of the OpenAI Agents SDK, which writes prompts as Responses items and cached counts elsewhere."""

from __future__ import annotations

import json

import pytest

from tests.unit.replay.reading import DATA, read
from warmgate.errors import TraceError
from warmgate.replay.readers.openai_agents import READER


def test_cached_tokens_come_from_the_turn_around_a_call():
    """The generation's own span has no cached count: the trace would seem to report none."""
    assert read(READER, "openai_agents/spans.jsonl").counts == [(120, 64, 6), (60, 0, 6), (150, 128, 6)]


def test_zeros_that_the_sdk_writes_by_default_are_no_measurement():
    """A server that reports no cached tokens would show a measured hit rate of nothing."""
    spans = [json.loads(line) for line in (DATA / "openai_agents/spans.jsonl").read_text().splitlines()]
    for span in spans:
        usage = span.get("span_data", {}).get("data", {}).get("usage")
        if usage:
            usage["cached_input_tokens"] = 0
    found = read(READER, spans, lines=True)
    assert [c.usage.cached_tokens for c in found.calls] == [None, None, None]
    assert any("0 cached tokens" in note for note in found.notes)


def test_items_of_one_turn_become_one_assistant_message():
    """Function calls would be left out of the prompt, and it would never match the one before."""
    found = read(READER, "openai_agents/spans.jsonl")
    first, last = found.messages(0), found.messages(2)
    assert last[:2] == first
    assert [m["role"] for m in last] == ["system", "user", "assistant", "tool"]
    assert last[2]["tool_calls"] == [{"id": "f1", "type": "function", "function": {"name": "ask_clerk", "arguments": '{"q":"any"}'}}]


def test_groups_are_sessions_and_an_agent_used_as_a_tool_has_its_own():
    """Turns of one conversation would be strangers, and a tool's agent would break its caller's prefix."""
    assert read(READER, "openai_agents/spans.jsonl").sessions == ["reader-12", "reader-12/Clerk", "reader-12"]


def test_a_response_span_with_an_id_alone_is_skipped_with_that_reason():
    """It would count as a call of unknown size."""
    found = read(READER, "openai_agents/spans.jsonl")
    assert found.skipped == 1
    assert "only a response id" in found.said[0]


def test_a_run_state_is_read_for_its_counts():
    """A saved state with real counts would be refused although it has them."""
    found = read(READER, "openai_agents/run_state.json")
    assert found.counts == [(120, 64, 6), (150, 128, 6)]
    assert [c.prompt for c in found.calls] == [None, None]


def test_a_run_state_before_any_call_is_refused_with_that_reason():
    """The user would be told of a broken file where the run had just not begun."""
    with pytest.raises(TraceError, match="without a model response"):
        read(READER, "openai_agents/run_state_before_any_call.json")


def test_a_second_span_with_the_same_id_is_skipped_and_said():
    """A trace exported twice into one file would count every call twice."""
    twice = (DATA / "openai_agents/spans.jsonl").read_bytes() * 2
    found = read(READER, twice)
    assert len(found.calls) == 3
    assert any("a second span" in said for said in found.said)


def test_parents_in_a_circle_are_told():
    """A broken export would be read as if its agents and tools were known, or lose its calls."""

    def span(ident, parent, kind):
        data = {"type": kind, "name": ident, "input": [{"role": "user", "content": "hi"}], "usage": {"input_tokens": 5}}
        return {"object": "trace.span", "id": ident, "trace_id": "t", "parent_id": parent, "span_data": data}

    found = read(READER, [span("a", "b", "generation"), span("b", "c", "agent"), span("c", "a", "agent")], lines=True)
    assert len(found.calls) == 1
    assert found.said == ["trace:3: skipped, its parents form a circle"]
    found = read(READER, [span("a", "a", "generation")], lines=True)
    assert len(found.calls) == 1
    assert any("form a circle: 1 call (the first at 1)" in note for note in found.notes)

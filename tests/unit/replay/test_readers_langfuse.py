"""If these fail, `replay` counts a Langfuse trace's LLM calls twice, or misses what each one sent and what of it was cached."""

from __future__ import annotations

import pytest

from tests.unit.replay.reading import read
from warmgate.errors import TraceError
from warmgate.replay.readers.langfuse import READER


def observation(ident, kind="GENERATION", parent=None, second=0, **more):
    return {
        "id": ident,
        "traceId": "t",
        "type": kind,
        "name": ident,
        "startTime": f"2026-03-01T10:00:{second:02d}Z",
        "parentObservationId": parent,
        **more,
    }


def export(*observations, **trace):
    return {"trace": {"id": "t", "sessionId": None, **trace}, "observations": list(observations)}


def test_only_single_llm_calls_count():
    """An agent's sums, its tools and its embeddings would be counted as prompts, and the hit rate would be nonsense."""
    found = read(READER, "langfuse/nested_agents.json")
    assert [c.line for c in found.calls] == [3, 1, 2]  # by start time, not as listed
    assert found.counts == [(96, 0, 12), (30, None, 4), (140, 120, 9)]
    assert any("1 span" in note for note in found.notes)


def test_a_sub_agent_is_a_session_of_its_own():
    """A sub-agent's prompt would look like a broken prefix of the main agent's."""
    assert read(READER, "langfuse/nested_agents.json").sessions == ["talk-7", "talk-7/timetable", "talk-7"]


def test_prompts_come_out_of_twice_encoded_json_with_their_tools():
    """The second prompt would be one string instead of the first prompt and what came after it."""
    found = read(READER, "langfuse/nested_agents.json")
    first, last = found.messages(0), found.messages(2)
    assert last[: len(first)] == first
    assert last[2]["tool_calls"][0]["function"] == {"name": "find_train", "arguments": '{"to":"Ghent"}'}
    assert [t["function"]["name"] for t in found.calls[2].prompt.tools] == ["find_train"]
    assert found.calls[2].response == {"role": "assistant", "content": "Take the 09:12 from platform 4."}


def test_a_prompt_continued_from_a_stored_response_is_put_together():
    """A tool's answer alone would stand as the whole prompt, although the model saw the conversation."""
    found = read(READER, "langfuse/stored_responses.json")
    assert [role for role, _ in found.spoken(1)] == ["system", "user", "assistant", "tool"]
    assert found.spoken(0)[0] == ("system", "Answer in one word.")  # only the agent's span has it
    assert found.calls[2].prompt is None  # goes on from a response that is not in the trace
    assert any("1 call" in note for note in found.notes)
    assert set(found.sessions) == {"tr-2"}  # the changing response id is no session


def test_blob_exports_with_anthropic_counts():
    """Cached tokens stand beside Anthropic's input count; without them the prompt would seem 50 times smaller."""
    found = read(READER, "langfuse/blob_export.jsonl")
    assert found.counts == [(550, 500, 7)]
    assert found.spoken(0) == [("system", "Be brief."), ("user", "Hello")]
    assert found.skipped == 1
    assert "negative" in found.said[0]


@pytest.mark.parametrize(
    ("details", "counts"),
    [
        ({"input": 20, "output": 15, "total": 75, "input_cache_read": 40}, (60, 40, 15)),  # LangChain's handler splits
        ({"input": 20, "output": 10, "total": 75, "input_cache_read": 40, "output_reasoning": 5}, (60, 40, 15)),
        ({"input": 55, "output": 15, "total": 70, "prompt_details.cache_read": 16}, (55, 16, 15)),  # OpenInference does not
        ({"input": 55, "output": 15, "prompt_details.cache_read": 16}, (55, 16, 15)),
        ({"input": 8, "output": 3, "input_cached_tokens": 64}, (72, 64, 3)),
        ({"input": 8, "output": 3, "total": 11, "cache_read_input_tokens": 64}, (72, 64, 3)),
        ({"prompt_tokens": 70, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 64}}, (70, 64, 2)),
        ({"promptTokens": 70, "completionTokens": 2}, (70, None, 2)),
    ],
)
def test_counts_under_their_several_names(details, counts):
    """The same call would have another prompt length for each framework that wrote it."""
    found = read(READER, export(observation("g", usageDetails=details, input="hi")))
    assert found.counts == [counts]


@pytest.mark.parametrize("bad", [-1, True, 1.5, "12", 1 << 40, [1], {"input": 1}])
def test_a_broken_count_skips_the_record_and_says_why(bad):
    """A record with absurd counts would decide the totals of a whole trace."""
    good = observation("good", second=1, usageDetails={"input": 5, "output": 1}, input="hi")
    found = read(READER, export(observation("bad", usageDetails={"input": bad, "output": 1}, input="hi"), good))
    assert found.counts == [(5, None, 1)]
    assert found.skipped == 1


def test_a_wrapper_lends_what_the_inner_call_lacks():
    """Engine spans have counts alone, framework spans the prompt: apart, neither could be replayed."""
    outer = observation("outer", input=[{"role": "user", "content": "hi"}], usageDetails={"input": 9, "output": 2})
    inner = observation("inner", parent="outer", second=1, model="qwen3", usageDetails={"input": 9, "output": 2, "input_cache_read": 0})
    found = read(READER, export(outer, inner))
    assert [c.line for c in found.calls] == [2]
    assert found.spoken(0) == [("user", "hi")]


def test_parents_in_a_circle_hide_no_call():
    """A broken exporter's circle would make all calls disappear, or never end."""
    a = observation("a", parent="b", usageDetails={"input": 5, "output": 1}, input="hi")
    b = observation("b", kind="SPAN", parent="c")
    c = observation("c", kind="SPAN", parent="a")
    assert len(read(READER, export(a, b, c)).calls) == 1


@pytest.mark.parametrize("calls", ["b", "c", "abc", ""])
def test_parents_in_a_circle_are_told(calls):
    """A broken export would be read as if its agents and tools were known."""
    counts = {"usageDetails": {"input": 5, "output": 1}, "input": "hi"}
    ring = [observation(i, kind="GENERATION" if i in calls else "SPAN", parent=p, **counts) for i, p in ("ab", "bc", "ca")]
    found = read(READER, export(observation("x", second=1, **counts), *ring))
    if "c" in calls:  # the last of them closes the circle, and what it records stands all the same
        assert found.skipped == 0
        assert any("form a circle: 1 call (the first at 4)" in note for note in found.notes)
    else:
        assert found.said == ["trace:4: skipped, its parents form a circle"]
    assert len(found.calls) == 1 + bool(calls)


def test_a_span_inside_itself_is_told():
    """A record that names itself as its parent would lose its call, or pass unseen."""
    found = read(READER, export(observation("a", parent="a", usageDetails={"input": 5, "output": 1}, input="hi")))
    assert len(found.calls) == 1
    assert any("form a circle" in note for note in found.notes)


def test_a_second_observation_with_the_same_id_is_skipped_and_told():
    """A call that two pages of an export repeat would vanish without a word, and so would another call with a broken id."""
    counts = {"usageDetails": {"input": 5, "output": 1}, "input": "hi"}
    found = read(READER, export(observation("a", **counts), observation("b", **counts), observation("a", second=9, **counts)))
    assert len(found.calls) == 2
    assert found.said == ["trace:3: skipped, a second observation with the id a"]
    lines = [observation("a", **counts), observation("b", **counts), observation("b", **counts)]
    found = read(READER, lines, lines=True)
    assert (len(found.calls), found.skipped) == (2, 1)
    assert found.said == ["trace:3: skipped, a second observation with the id b"]


def test_the_same_answer_recorded_side_by_side_counts_once():
    """Two instrumentations of one client would double every token."""
    output = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "yo"}}]}
    a = observation("a", input="hi", output=output, usageDetails={"input": 5, "output": 1})
    b = observation("b", second=1, input="hi", output=output, usageDetails={"input": 5, "output": 1})
    found = read(READER, export(a, b))
    assert len(found.calls) == 1
    assert any("same response id" in note for note in found.notes)


def test_an_export_without_llm_calls_is_refused_with_that_reason():
    """The user would see an empty report and not know why."""
    with pytest.raises(TraceError, match="1 observation, none of which is a single LLM call"):
        read(READER, export(observation("s", kind="SPAN")))

"""If these fail, `replay` counts a graph's answers as often as its stream repeats them, or gives them prompts they never saw."""

from __future__ import annotations

import json

import pytest

from tests.unit.replay.reading import DATA, read
from warmgate.errors import TraceError
from warmgate.replay.readers.langgraph import READER


def ai(ident, text="x", **more):
    return {"type": "ai", "id": ident, "content": text, "usage_metadata": {"input_tokens": 9, "output_tokens": 1}, **more}


HUMAN = {"type": "human", "id": "h", "content": "hi"}


def test_an_answer_seen_in_many_modes_counts_once():
    """values, updates, tasks and checkpoints all repeat it: four times the tokens."""
    found = read(READER, "langgraph/stream.jsonl")
    assert found.counts == [(40, 0, 6), (60, 32, 5), (60, 48, 5)]
    assert set(found.sessions) == {"day-1"}


def test_nodes_that_ran_at_once_did_not_see_each_other():
    """The second of two parallel answers would have the first one in its prompt."""
    found = read(READER, "langgraph/stream.jsonl")
    assert found.messages(1) == found.messages(2)
    assert found.messages(2)[-1] == {"role": "tool", "content": "dentist at 9", "tool_call_id": "t1"}


def test_the_same_where_only_values_were_streamed():
    """Users mostly record one mode: without updates the parallel answers stand side by side in one state."""
    lines = (DATA / "langgraph/stream.jsonl").read_text().splitlines()
    values = [record for record in map(json.loads, lines) if record["mode"] == "values"]
    found = read(READER, values, lines=True)
    assert [len(found.messages(i)) for i in range(3)] == [1, 3, 3]


def test_checkpoints_are_read_oldest_first_and_examples_are_no_calls():
    """Newest first, every prompt would come out of the last state; an example answer handed in was never generated."""
    found = read(READER, "langgraph/checkpoints.jsonl")
    assert [c.line for c in found.calls] == [4, 3, 1]
    assert [len(found.messages(i)) for i in range(3)] == [2, 4, 6]
    assert found.messages(0)[1] == {"role": "assistant", "content": "An example answer"}


def test_prompts_of_a_thread_share_their_messages():
    """Each prompt would be rendered and tokenised from the start: minutes instead of seconds on long threads."""
    found = read(READER, "langgraph/checkpoints.jsonl")
    first, last = found.calls[0].prompt, found.calls[-1].prompt
    assert all(a is b for a, b in zip(first.messages, last.messages, strict=False))


def test_updates_alone_give_counts_but_no_prompt():
    """The graph's input is not in that mode: a prompt made of updates alone would lack the question."""
    found = read(READER, [{"mode": "updates", "chunk": {"model": {"messages": [ai("a")]}}}] * 2, lines=True)
    assert found.counts == [(9, None, 1)]
    assert found.calls[0].prompt is None


def test_a_task_with_an_input_of_its_own_keeps_it():
    """Workers sent out with their own input would all be given the thread's messages."""
    own = [{"type": "human", "id": "own", "content": "only this"}]
    found = read(
        READER,
        [
            {"mode": "values", "chunk": {"messages": [HUMAN]}},
            {"mode": "tasks", "chunk": {"id": "k", "name": "worker", "input": {"messages": own}, "triggers": []}},
            {"mode": "updates", "chunk": {"worker": {"messages": [ai("a")]}}},
            {"mode": "tasks", "chunk": {"id": "k", "name": "worker", "result": {"messages": [ai("a")]}}},
            {"mode": "values", "chunk": {"messages": [HUMAN, ai("a")]}},
        ],
        lines=True,
    )
    assert found.spoken(0) == [("user", "only this")]


def test_subgraphs_are_sessions_of_their_own():
    """A subgraph's conversation would break its parent's prefix."""
    found = read(
        READER,
        [
            {"type": "checkpoints", "ns": [], "data": {"config": {"configurable": {"thread_id": 7}}, "values": {"messages": [HUMAN]}}},
            {"type": "values", "ns": ["team:1"], "data": {"messages": [{"type": "human", "id": "i", "content": "sub"}]}},
            {"type": "values", "ns": ["team:1"], "data": {"messages": [{"type": "human", "id": "i", "content": "sub"}, ai("a")]}},
            {"type": "values", "ns": [], "data": {"messages": [HUMAN, ai("b")]}},
        ],
        lines=True,
    )
    assert found.sessions == ["7/team:1", "7"]


def test_a_recording_in_which_no_model_spoke_is_refused_with_that_reason():
    """The user would see an empty report and not know why."""
    with pytest.raises(TraceError, match="without an AI message"):
        read(READER, [{"mode": "values", "chunk": {"messages": [HUMAN]}}] * 2, lines=True)

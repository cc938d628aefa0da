"""If these fail, `replay` misreads LangSmith runs: patches without posts, wrapped models, batches, threads."""

from __future__ import annotations

import pytest

from tests.unit.replay.reading import read
from warmgate.errors import TraceError
from warmgate.replay.readers.langsmith import READER


def test_patches_complete_posts_and_the_innermost_run_is_the_call():
    """A chat model's run and its SDK's run inside it would count as two calls; a patch without an id would be lost."""
    found = read(READER, "langsmith/payload.json")
    assert found.counts == [(50, 32, 8), (70, 48, 2)]
    assert [c.line for c in found.calls] == [3, 5]
    assert found.calls[0].ended == pytest.approx(1772359201.9)  # from the patch that names its run in dotted_order alone


def test_batches_of_lc_messages_grow_from_call_to_call():
    """LangChain's constructors in a batch of one would be no messages at all."""
    found = read(READER, "langsmith/payload.json")
    first, second = found.messages(0), found.messages(1)
    assert second[:2] == first
    assert second[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    assert second[3] == {"role": "tool", "content": "5", "tool_call_id": "k1"}
    assert all(len(c.prompt.tools) == 1 for c in found.calls)  # the inner run's come from the run around it


def test_the_thread_is_the_session():
    """A conversation of several traces would fall apart into sessions of one turn."""
    assert set(read(READER, "langsmith/payload.json").sessions) == {"th-4"}
    assert read(READER, "langsmith/runs.jsonl").sessions == ["t9"]


def test_runs_as_the_api_returns_them():
    """Counts that only the run itself has would be missing, and Anthropic's blocks with them."""
    found = read(READER, "langsmith/runs.jsonl")
    assert found.counts == [(24, 16, 6)]
    assert found.spoken(0) == [("system", "Be brief."), ("user", "Hi")]
    assert found.calls[0].response == {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."}
    assert found.calls[0].prompt.tools[0]["function"]["name"] == "look"


def test_the_runs_own_session_id_is_its_project_and_no_session():
    """All conversations of a project would become one."""
    run = {"run_type": "llm", "inputs": {"messages": [{"role": "user", "content": "hi"}]}, "outputs": {}, "session_id": "project"}
    assert read(READER, [{**run, "id": "a", "trace_id": "t1"}, {**run, "id": "b", "trace_id": "t2"}]).sessions == ["t1", "t2"]


def run(ident, **more):
    given = {"inputs": {"messages": [{"role": "user", "content": "hi"}]}, "outputs": {"usage": {"prompt_tokens": 5}}}
    return {"run_type": "llm", "id": ident, "trace_id": "t", **given, **more}


def test_a_second_run_with_the_same_id_is_skipped_and_told():
    """Two pages of an export that overlap, or an id used twice, would be merged into one call without a word."""
    found = read(READER, [run("a"), run("b"), run("a", outputs={"usage": {"prompt_tokens": 9}})], lines=True)
    assert found.counts == [(5, None, None)] * 2
    assert found.said == ["trace:3: skipped, a second run with the id a"]
    found = read(READER, {"post": [run("a"), run("b"), run("b")], "patch": [{"id": "a", "outputs": {"usage": {"prompt_tokens": 7}}}]})
    assert sorted(found.counts) == [(5, None, None), (7, None, None)]
    assert found.said == ["trace:3: skipped, a second run with the id b"]


def test_a_run_that_is_written_again_at_its_end_is_one_run():
    """A log of starts and ends would lose every answer."""
    found = read(READER, [run("a", outputs=None), run("a")], lines=True)
    assert (found.counts, found.skipped) == ([(5, None, None)], 0)


def test_parents_in_a_circle_are_told():
    """A broken export would be read as if its agents and tools were known, or lose its calls."""
    chains = [run("b", run_type="chain", parent_run_id="c"), run("c", run_type="chain", parent_run_id="a")]
    found = read(READER, [run("a", parent_run_id="b"), *chains], lines=True)
    assert len(found.calls) == 1
    assert found.said == ["trace:3: skipped, its parents form a circle"]
    found = read(READER, [*chains, run("a", parent_run_id="b")], lines=True)
    assert len(found.calls) == 1
    assert any("form a circle: 1 call (the first at 3)" in note for note in found.notes)


def test_runs_without_a_model_call_are_refused_with_that_reason():
    """The user would not learn that child runs were left out of the export."""
    with pytest.raises(TraceError, match="1 LangSmith run, none of which is an LLM call"):
        read(READER, [{"run_type": "chain", "id": "a", "trace_id": "t", "inputs": {}, "outputs": {}}])

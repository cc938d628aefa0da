"""If these fail, `replay` counts spans that wrap each other twice, or cannot read one of the conventions that LLM spans are written in."""

from __future__ import annotations

import json

import pytest

from tests.unit.replay.reading import DATA, read
from warmgate.errors import TraceError
from warmgate.replay.readers.otel import READER


def test_an_agents_span_a_clients_span_and_an_engines_span_are_one_call():
    """One request would count three times; the engine's span alone has no prompt, the client's alone no queue."""
    found = read(READER, "otel/agent.otlp.json")
    assert found.counts == [(80, 0, 7), (110, 64, 7)]
    assert found.sessions == ["talk-3", "talk-3"]  # the conversation's id is on the agent's span
    assert found.calls[0].started == pytest.approx(1772359200.02)  # the innermost span's


def test_messages_system_and_tools_of_the_current_conventions():
    """The system prompt and the tools stand in attributes of their own: the prefix would lack its beginning."""
    found = read(READER, "otel/agent.otlp.json")
    assert (
        found.messages(1)[:2]
        == found.messages(0)
        == [
            {"role": "system", "content": "You answer for a shop."},
            {"role": "user", "content": "Is the shop open?"},
        ]
    )
    assert found.messages(1)[2]["tool_calls"][0]["function"] == {"name": "hours", "arguments": '{"day": "monday"}'}
    assert found.messages(1)[3] == {"role": "tool", "content": "9 to 5", "tool_call_id": "w1"}
    assert found.calls[0].prompt.tools[0]["function"]["parameters"]["type"] == "object"
    assert found.calls[1].response == {"role": "assistant", "content": "Yes, until 5."}


def test_engine_spans_with_base64_ids():
    """What vLLM exports by protobuf's JSON would have other ids than its parents say; each request is a session."""
    found = read(READER, "otel/engine_base64_ids.otlp.jsonl")
    assert found.counts == [(102, None, 7), (74, None, 7)]
    assert found.sessions == ["22" * 16, "11" * 16]
    assert any("/v1/systemone" in note for note in found.notes)


def test_bare_attributes_of_one_span():
    """A span pasted from a trace viewer would be no trace."""
    assert read(READER, "otel/attributes_current.json").counts == [(110, 64, 7)]


def test_deprecated_attributes():
    """Half of today's instrumentations still write them."""
    found = read(READER, "otel/attributes_deprecated.json")
    assert found.counts == [(55, None, 4)]
    assert found.spoken(0) == [("system", "Be brief."), ("user", "Hi")]
    assert found.calls[0].response == {"role": "assistant", "content": "Hello."}
    assert found.calls[0].prompt.tools[0]["function"] == {"name": "look", "parameters": {"type": "object"}}


def test_messages_written_as_events():
    """The conventions had it so up to 1.36: prompts would be missing."""
    found = read(READER, "otel/events_deprecated.jsonl")
    assert found.spoken(0) == [("system", "Be brief."), ("user", "Hi")]
    assert found.calls[0].response["content"] == "Hello."


def test_openinference():
    """Phoenix, Arize and many others write this convention."""
    found = read(READER, "otel/openinference_spans.json")
    assert found.counts == [(33, 16, 5)]
    assert found.spoken(0) == [("system", "You count."), ("user", "How many?")]
    assert found.calls[0].response["tool_calls"][0]["function"]["name"] == "count"
    assert found.sessions == ["visit-2"]


def test_openinference_as_nested_objects():
    """Phoenix's own export nests what the convention dots."""
    attributes = {
        "openinference": {"span": {"kind": "LLM"}},
        "llm": {"model_name": "qwen3", "token_count": {"prompt": 9}, "input_messages": [{"message": {"role": "user", "content": "hi"}}]},
    }
    found = read(READER, [{"name": "x", "attributes": attributes}] * 2, lines=True)
    assert found.counts == [(9, None, None)] * 2
    assert found.spoken(0) == [("user", "hi")]


def test_a_tool_span_alone_is_refused_with_that_reason():
    """The user would be told of an unknown format where the model's spans were just not recorded."""
    with pytest.raises(TraceError, match=r"only a tool execution span \(hours\)"):
        read(READER, "otel/tool_only.json")


def test_an_agents_span_alone_is_refused_with_that_reason():
    """Its sums would stand as one enormous prompt."""
    with pytest.raises(TraceError, match="sums up"):
        read(READER, {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 1000})


@pytest.mark.parametrize("bad", [-1, True, 1.5, "ten", 1 << 40, [3], {"x": 1}])
def test_a_broken_count_skips_the_span_and_what_wraps_it(bad):
    """Absurd counts would decide the totals, or the wrapper would stand in with sums."""
    trace = json.loads((DATA / "otel/agent.otlp.json").read_text())
    spans = trace["resourceSpans"][0]["scopeSpans"][0]["spans"]
    engine = next(s for s in spans if s["name"] == "llm_request")
    value = {"boolValue": bad} if isinstance(bad, bool) else {"intValue": bad}
    next(a for a in engine["attributes"] if a["key"] == "gen_ai.usage.prompt_tokens")["value"] = value
    found = read(READER, trace)
    assert found.counts == [(110, 64, 7)]
    assert found.skipped == 1


def test_a_span_exported_twice_counts_once():
    """Collectors retry: the same batch in a file twice would double every token."""
    data = json.dumps(json.loads((DATA / "otel/agent.otlp.json").read_text())).encode() + b"\n"
    found = read(READER, data * 2)
    assert len(found.calls) == 2
    assert found.skipped == 5


def test_parents_in_a_circle_end():
    """A broken exporter would hang the replay."""
    one = {"name": "chat", "trace_id": "t", "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 4}}
    spans = [
        {**one, "span_id": "a", "parent_id": "b"},
        {**one, "span_id": "b", "parent_id": "a"},
        {**one, "span_id": "c", "parent_id": "c"},
    ]
    found = read(READER, spans, lines=True)
    assert len(found.calls) == 2
    assert any("form a circle: 2 calls (the first at 2)" in note for note in found.notes)
    tool = {**one, "attributes": {**one["attributes"], "gen_ai.operation.name": "execute_tool"}}
    found = read(READER, [*spans[:2], {**tool, "span_id": "d", "parent_id": "d"}], lines=True)
    assert found.said == ["trace:3: skipped, its parents form a circle"]


def test_a_client_and_an_engine_without_a_common_trace_are_one_call():
    """Without context propagation the engine's span stands alone: the request would count twice."""
    client = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "chatcmpl-1", "gen_ai.usage.input_tokens": 9, "gen_ai.prompt": "hi"}
    engine = {"gen_ai.request.id": "chatcmpl-1", "gen_ai.usage.prompt_tokens": 9}
    times = {"start_time": "2026-03-01T10:00:00Z", "end_time": "2026-03-01T10:00:02Z"}
    spans = [
        {"name": "chat", "trace_id": "a", "span_id": "1", "attributes": client, **times},
        {"name": "llm_request", "trace_id": "b", "span_id": "2", "attributes": engine, **times},
    ]
    found = read(READER, spans, lines=True)
    assert found.counts == [(9, None, None)]
    later = {"start_time": "2026-03-01T10:00:05Z", "end_time": "2026-03-01T10:00:06Z"}
    assert len(read(READER, [spans[0], {**spans[1], **later}], lines=True).calls) == 2  # a fake model's ids are all alike

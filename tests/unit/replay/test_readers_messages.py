"""If these fail, the same conversation written by another provider or framework becomes another prompt, and no prefix matches."""

from __future__ import annotations

import json

import pytest

from warmgate.replay.readers._fields import Unusable, in_order, parsed, seconds
from warmgate.replay.readers._messages import answer, prompt
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.readers._usage import attribute_usage, usage
from warmgate.replay.trace import Usage

CALL = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
CANONICAL = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CALL]},
    {"role": "tool", "content": "seen", "tool_call_id": "t1"},
    {"role": "user", "content": "And?"},
]
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}


def lc(kind, content, **kwargs):
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", kind], "kwargs": {"content": content, **kwargs}}


DIALECTS = {
    "openai chat": CANONICAL,
    "openai chat, content in parts": [
        {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]},
        *CANONICAL[1:],
    ],
    "openai responses": {
        "instructions": "Be kind.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
            THOUGHT,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"x": 1}'},
            {"type": "function_call_output", "call_id": "t1", "output": "seen"},
            {"role": "user", "content": "And?"},
        ],
    },
    "anthropic": {
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "seen"}]},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    },
    "langchain constructors in a batch": [
        [
            lc("SystemMessage", "Be kind.", type="system"),
            lc("HumanMessage", "Look."),
            lc(
                "AIMessage",
                [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}}],
                tool_calls=[{"name": "look", "args": {"x": 1}, "id": "t1", "type": "tool_call"}],
                additional_kwargs={"reasoning_content": "Hm."},
            ),
            lc("ToolMessage", "seen", tool_call_id="t1"),
            lc("HumanMessage", "And?"),
        ]
    ],
    "langchain message_to_dict": [
        {"type": "system", "data": {"content": "Be kind."}},
        {"type": "human", "data": {"content": "Look."}},
        {
            "type": "ai",
            "data": {
                "content": "I look.",
                "additional_kwargs": {"tool_calls": [CALL], "reasoning_content": "Hm."},
            },
        },
        {"type": "tool", "data": {"content": "seen", "tool_call_id": "t1"}},
        {"type": "human", "data": {"content": "And?"}},
    ],
    "otel parts": [
        {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Look."}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "t1", "name": "look", "arguments": {"x": 1}},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "t1", "response": "seen"}]},
        {"role": "user", "parts": [{"type": "text", "content": "And?"}]},
    ],
    "vercel ai sdk": {
        "system": "Be kind.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "text": "Hm."},
                    {"type": "text", "text": "I look."},
                    {"type": "tool-call", "toolCallId": "t1", "toolName": "look", "input": {"x": 1}},
                ],
            },
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "t1", "output": {"type": "text", "value": "seen"}}]},
            {"role": "user", "content": "And?"},
        ],
    },
    "bedrock": {
        "system": [{"text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"text": "Look."}]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm."}}},
                    {"text": "I look."},
                    {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"x": 1}}},
                ],
            },
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "seen"}]}}, {"text": "And?"}]},
        ],
    },
}


@pytest.mark.parametrize("sent", DIALECTS.values(), ids=DIALECTS.keys())
def test_one_conversation_in_every_dialect(sent):
    """Two tools that write the same call differently would seem to send different prompts; key order is printed, so it counts."""
    found = prompt(sent)
    assert found is not None
    assert json.dumps(found.messages) == json.dumps(CANONICAL)
    encoded = prompt(json.dumps(json.dumps(sent)))
    assert encoded is not None
    assert encoded.messages == CANONICAL


def test_gemini():
    """Gemini has no call ids and calls the assistant model; its system prompt stands in the request's config."""
    found = prompt(
        {
            "config": {"system_instruction": "Be kind.", "tools": [{"function_declarations": [{"name": "look"}]}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Look."}]},
                {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"function_call": {"name": "look", "args": {"x": 1}}}]},
                {"role": "user", "parts": [{"function_response": {"name": "look", "response": {"r": "seen"}}}]},
            ],
        }
    )
    assert found is not None
    assert [m["role"] for m in found.messages] == ["system", "user", "assistant", "tool"]
    assert found.messages[2]["tool_calls"] == [{"type": "function", "function": CALL["function"]}]
    assert found.messages[3] == {"role": "tool", "content": '{"r": "seen"}', "name": "look"}
    assert found.tools == [{"type": "function", "function": {"name": "look"}}]


@pytest.mark.parametrize(
    "nothing",
    [None, 1, True, [], {}, "", [[]], [[[[[[[[]]]]]]]], {"content": "role"}, {"messages": []}, [{"type": "text", "text": "x"}], [1, None]],
)
def test_what_is_no_prompt(nothing):
    """A prompt made up of something else would be replayed as if the model had seen it."""
    assert prompt(nothing) is None


def test_texts_that_look_like_json_stay_text():
    """A user who pastes JSON would have no message, or another one."""
    assert prompt("[1, 2]") == ([{"role": "user", "content": "[1, 2]"}], [])
    assert prompt([{"role": "user", "content": '{"role": "user"}'}]).messages == [{"role": "user", "content": '{"role": "user"}'}]
    assert answer('{"grade": 3}') == {"role": "assistant", "content": '{"grade": 3}'}


@pytest.mark.parametrize(
    "output",
    [
        {"choices": [{"message": {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}}]},
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                    {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"x": 1}'}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}}]},
        {"generations": [[{"text": "I look.", "message": lc("AIMessage", "I look.", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "t1"}])}]]},
        {"text": "I look.", "toolCalls": [{"toolCallId": "t1", "toolName": "look", "input": {"x": 1}}]},
        [{"role": "assistant", "parts": [{"type": "text", "content": "I look."}, {"type": "tool_call", "id": "t1", "name": "look", "arguments": '{"x": 1}'}]}],
        {"messages": [{"type": "human", "content": "Look."}, {"type": "ai", "content": "I look.", "tool_calls": [{"name": "look", "args": {"x": 1}, "id": "t1"}]}]},
    ],
)  # fmt: skip
def test_one_answer_in_every_dialect(output):
    """What the engine stored after a call would be unknown, and the next prompt's reuse too small."""
    assert answer(output) == {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}


SCHEMA = {"type": "object", "properties": {}}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}


@pytest.mark.parametrize(
    "tools",
    [
        [TOOL],
        json.dumps([json.dumps(TOOL)]),
        [{"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA}],
        [{"name": "look", "description": "Look.", "input_schema": SCHEMA}],
        [{"type": "function", "name": "look", "description": "Look.", "inputSchema": {"json": SCHEMA}}],
        [{"function_declarations": [{"name": "look", "description": "Look.", "parameters": SCHEMA}]}],
        [{"toolSpec": {"name": "look", "description": "Look.", "inputSchema": {"json": SCHEMA}}}],
        [{"tool": {"json_schema": json.dumps(TOOL)}}],
        [{"name": "look", "description": "Look.", "parameters_json_schema": SCHEMA}],
        {"look": json.dumps({"description": "Look.", "parameters": SCHEMA})},
    ],
)
def test_one_tool_in_every_dialect(tools):
    """Tools stand at the front of the prompt: one that differs loses the whole conversation behind it."""
    assert json.dumps(tool_schemas(tools)) == json.dumps([TOOL])


def test_built_in_tools_stay_as_they_are():
    """They have no schema to turn, but they are part of what was sent."""
    assert tool_schemas([{"type": "web_search", "max_uses": 2}]) == [{"type": "web_search", "max_uses": 2}]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(10, 8, 2)),
        ({"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 8}}, Usage(10, 8, 2)),
        ({"input_tokens": 2, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 5, "output_tokens": 2}, Usage(15, 8, 2)),
        ({"input_tokens": 2, "cache_creation_input_tokens": 5, "output_tokens": 2}, Usage(7, None, 2)),
        ({"input_tokens": 10, "output_tokens": 2, "input_token_details": {"cache_read": 8}}, Usage(10, 8, 2)),
        ({"input_tokens": 2, "output_tokens": 2, "input_token_details": {"cache_read": 8, "cache_creation": 5}}, Usage(15, 8, 2)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "cache_read_input_tokens": 8}, Usage(10, 8, 2)),
        ({"prompt_token_count": 10, "candidates_token_count": 2, "cached_content_token_count": 8}, Usage(10, 8, 2)),
        ({"promptTokens": 10, "completionTokens": 2}, Usage(10, None, 2)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        ({"prompt_tokens": None}, Usage()),
        (None, Usage()),
    ],
)
def test_counts_of_each_provider(counts, expected):
    """Cached tokens inside or beside the prompt's count: mistaken, a prompt is half or double its size."""
    assert usage(counts) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"gen_ai.usage.input_tokens": 10, "gen_ai.usage.cache_read.input_tokens": 8, "gen_ai.usage.output_tokens": 2}, Usage(10, 8, 2)),
        ({"gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.cache_read_input_tokens": 8}, Usage(10, 8, None)),
        (
            {"gen_ai.usage.input_tokens": 2, "gen_ai.usage.cache_read_input_tokens": 8, "gen_ai.usage.cache_creation_input_tokens": 5},
            Usage(15, 8, None),
        ),
        ({"llm.token_count.prompt": 10, "llm.token_count.prompt_details.cache_read": 8, "llm.token_count.completion": 2}, Usage(10, 8, 2)),
    ],
)
def test_counts_of_each_convention(names, expected):
    """A convention's cached count under a name not known here would read as no cache at all."""
    assert attribute_usage(names) == expected


def test_more_cached_than_sent_is_a_broken_record():
    """A survival above one would look like a fault of the model of the cache."""
    with pytest.raises(Unusable, match="20 cached tokens of a prompt of 10"):
        usage({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}})


def test_times_in_every_unit():
    """Calls would be replayed in another order than they were sent."""
    moment = 1772359200.5
    for written in (
        "2026-03-01T10:00:00.5Z",
        "2026-03-01 10:00:00.500000",
        "2026-03-01T11:00:00.500000000+01:00",
        moment,
        int(moment * 1e3),
        int(moment * 1e6),
        str(int(moment * 1e9)),
    ):
        assert seconds(written) == pytest.approx(moment)
    for nothing in (None, True, "soon", "9" * 30, float("inf"), -1, 0, [], {}, 1 << 200, "2026-99-99T00:00:00Z"):
        assert seconds(nothing) is None
    assert in_order([3.0, None, 1.0, 2.0]) == [2, 3, 0, 1]  # the one without a time stays behind the one before it


def test_json_in_strings_is_opened_only_as_deep_as_exports_nest_it():
    """A user's text that happens to be JSON would be torn apart."""
    thrice = json.dumps(json.dumps(json.dumps({"a": 1})))
    assert parsed(json.dumps(json.dumps({"a": 1}))) == {"a": 1}
    assert parsed(thrice) == json.dumps({"a": 1})
    assert parsed("[" * 500) == "[" * 500

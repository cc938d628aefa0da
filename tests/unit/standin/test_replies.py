"""Chat and completion replies: scripted, forced, bound by a schema, cut, streamed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.standin.asking import Asker
from warmgate.standin.sample import sample

TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}]
SCRIPT = {
    "chat": [
        {"tool_calls": [{"name": "ls", "arguments": {"path": "é"}}]},
        {"content": "Two files.", "reasoning": "I counted."},
    ],
    "sessions": {"alice": [{"content": "Hello Alice."}]},
}
USER = {"role": "user", "content": "What is here?"}


async def chat(asker: Asker, messages: list[dict[str, Any]], session: str | None = None, **more: Any) -> dict[str, Any]:
    headers = {"x_session_id": session} if session else {}
    status, body = await asker.post("/v1/chat/completions", {"messages": messages, **more}, **headers)
    assert status == 200, body
    return body


async def streamed(asker: Asker, body: dict[str, Any], path: str = "/v1/chat/completions") -> list[dict[str, Any]]:
    reply = await asker.request("POST", path, {**body, "stream": True})
    assert reply.stream is not None
    events = [piece async for piece in reply.stream]
    assert events[-1] == b"data: [DONE]\n\n"
    return [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]


async def test_an_agents_run_by_script():
    """Agents are tested on this: a call, its result, an answer, in order and the same when repeated."""
    asker = Asker(script=SCRIPT, block_size=4)
    first = await chat(asker, [USER], tools=TOOLS)
    again = await chat(asker, [USER], tools=TOOLS)
    message = first["choices"][0]["message"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert message["content"] is None
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"path": "é"}
    assert again["choices"][0]["message"]["tool_calls"][0]["function"] == message["tool_calls"][0]["function"]
    history = [USER, message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a b"}]
    second = await chat(asker, history, tools=TOOLS)
    assert (second["choices"][0]["message"]["content"], second["choices"][0]["message"]["reasoning"]) == ("Two files.", "I counted.")
    # The next prompt begins with the last prompt and the last reply, so both were found.
    before = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= (before - 1) // 4 * 4


async def test_sessions_with_replies_of_their_own():
    asker = Asker(script=SCRIPT)
    assert (await chat(asker, [USER], "alice"))["choices"][0]["message"]["content"] == "Hello Alice."
    assert (await chat(asker, [USER], tools=TOOLS, session_id="bob"))["choices"][0]["message"]["tool_calls"]
    assert (
        "stand-in" in (await chat(asker, [USER, {"role": "assistant", "content": "x"}, USER], "alice"))["choices"][0]["message"]["content"]
    )


async def test_a_call_without_tools_is_text():
    """A server without the tools in the request has nothing to parse a call by."""
    message = (await chat(Asker(script=SCRIPT), [USER]))["choices"][0]["message"]
    assert "tool_calls" not in message
    assert message["content"].startswith("<tool_call>")


async def test_a_constrained_reply_comes_before_the_script():
    """A gate's round trip on the agent's own worker must not eat the agent's lines."""
    schema = {"type": "object", "properties": {"tools": {"enum": ["web", "files"]}}}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = await chat(Asker(script=SCRIPT), [{"role": "user", "content": "write the files"}], response_format=shape)
    assert json.loads(body["choices"][0]["message"]["content"]) == {"tools": "files"}
    body = await chat(Asker(), [{"role": "user", "content": "write the files"}], structured_outputs={"choice": ["web", "files"]})
    assert body["choices"][0]["message"]["content"] == "files"


async def test_a_script_answers_a_fields_question():
    script = {"decisions": [{"id": "shell", "probabilities": {"yes": 0.9}}]}
    schema = {"type": "object", "properties": {"shell": {"enum": ["no", "yes"]}}}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = await chat(Asker(script=script), [USER], response_format=shape)
    assert json.loads(body["choices"][0]["message"]["content"]) == {"shell": "yes"}


async def test_regular_expressions_are_refused_not_guessed():
    status, body = await Asker().post("/v1/chat/completions", {"messages": [USER], "structured_outputs": {"regex": "a+"}})
    assert (status, "regex" in body["error"]["message"]) == (400, True)


async def test_the_end_of_a_reply():
    asker = Asker(script={"chat": [{"content": "one two three four"}]})
    whole = await chat(asker, [USER])
    assert (whole["choices"][0]["finish_reason"], whole["usage"]["completion_tokens"]) == (
        "stop",
        len(asker.served.text.encode("one two three four")) + 1,
    )
    cut = await chat(asker, [USER], max_tokens=2)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 2
    stopped = (await chat(asker, [USER], stop=["three"]))["choices"][0]
    assert (stopped["message"]["content"], stopped["stop_reason"], stopped["finish_reason"]) == ("one two ", "three", "stop")


async def test_several_replies_count_once_for_the_prompt():
    body = await chat(Asker(), [USER], n=3)
    usage = body["usage"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("content", ["one two three", "naïve ☃ 👍🏽 end", ""])
async def test_a_stream_says_what_the_whole_says(content: str):
    """Half a character in an event would break every reader."""
    asker = Asker(script={"chat": [{"content": content}]})
    events = await streamed(asker, {"messages": [USER], "stream_options": {"include_usage": True}})
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert said == content
    whole = await chat(asker, [USER])
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert asker.served.engine.counters.running == 0


async def test_a_streamed_call():
    events = await streamed(Asker(script=SCRIPT), {"messages": [USER], "tools": TOOLS})
    calls = [event["choices"][0]["delta"]["tool_calls"][0] for event in events if "tool_calls" in event["choices"][0]["delta"]]
    assert calls[0]["function"]["name"] == "ls"
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"path": "é"}
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_stream_that_is_left_frees_its_blocks():
    asker = Asker()
    reply = await asker.request("POST", "/v1/chat/completions", {"messages": [USER], "stream": True})
    assert reply.stream is not None
    await anext(reply.stream)
    assert asker.served.engine.counters.running == 1
    await reply.stream.aclose()
    assert asker.served.engine.counters.running == 0
    assert asker.served.engine.counters.finished["abort"] == 1


async def test_streamed_completions_agree_with_whole_ones():
    asker = Asker()
    body = {"prompt": ["one", "two"], "max_tokens": 6, "logprobs": 1}
    _, whole = await asker.post("/v1/completions", body)
    events = await streamed(asker, {**body, "stream_options": {"include_usage": True}}, "/v1/completions")
    for index in (0, 1):
        pieces = [event["choices"][0] for event in events if event["choices"] and event["choices"][0]["index"] == index]
        assert "".join(piece["text"] for piece in pieces) == whole["choices"][index]["text"]
        told = [value for piece in pieces for value in piece["logprobs"]["token_logprobs"]]
        assert told == whole["choices"][index]["logprobs"]["token_logprobs"]
    assert events[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]


async def test_label_logprobs_are_those_of_the_decision():
    """A prefix read and a decision on the same words must agree."""
    asker = Asker()
    question = "Question: Does the user ask to delete a branch?\nyes\nno\nAnswer with yes or no only."
    _, told = await asker.decide({"q": {"type": "noul", "instructions": "Does the user ask to delete a branch?"}}, "Delete the branch.")
    labels = [asker.served.text.single(label) for label in ("yes", "no")]
    body = {"prompt": f"Delete the branch.\n\n{question}", "max_tokens": 1, "logprobs": 1, "logprob_token_ids": labels}
    _, read = await asker.post("/v1/completions", body)
    top = read["choices"][0]["logprobs"]["top_logprobs"][0]
    mass = math.exp(top["yes"]) + math.exp(top["no"])
    assert math.exp(top["yes"]) / mass == pytest.approx(told["answers"]["q"]["noul"])
    assert mass == pytest.approx(told["diagnostics"]["q"]["label_mass"])
    assert read["choices"][0]["text"] == "yes"


JSON = st.recursive(
    st.one_of(
        st.just({"type": "string"}),
        st.just({"type": "integer", "minimum": 2}),
        st.just({"type": "number", "minimum": 0, "maximum": 1}),
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        st.just({"const": 4}),
        st.just({"enum": ["a", "b"]}),
        st.just({"type": ["string", "null"]}),
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("xyz"), inner)}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "minItems": st.integers(0, 2)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=8,
)


@given(JSON)
def test_samples_obey_their_schema(schema: dict[str, Any]):
    assert obeys(sample(schema, lambda values, _: len(values) - 1), schema)


def obeys(value: Any, schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(obeys(value, inner) for inner in schema["anyOf"])
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        return "null" in kinds
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, str):
        return "string" in kinds
    if isinstance(value, (int, float)):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if isinstance(value, list):
        return len(value) >= schema["minItems"] and all(obeys(item, schema["items"]) for item in value)
    return value.keys() == schema["properties"].keys() and all(obeys(value[key], inner) for key, inner in schema["properties"].items())


@pytest.mark.parametrize(
    "schema",
    [
        None,
        7,
        {},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/nowhere"},
        {"type": []},
        {"allOf": [{"$ref": "#/x"}]},
    ],
)
def test_odd_schemas_end(schema: Any):
    """A schema that refers to itself must not hang the worker."""
    sample(schema, lambda values, _: 0)

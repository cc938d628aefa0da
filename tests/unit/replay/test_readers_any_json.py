"""If these fail, one odd value in a trace takes the whole replay down instead of costing one skipped record."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.replay.reading import DATA, head
from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TraceError
from warmgate.replay.parsing import NotJson, parse
from warmgate.replay.readers import langfuse, langgraph, langsmith, openai_agents, openhands, otel, sweagent, taubench
from warmgate.replay.readers._base import Skipped, Source
from warmgate.replay.trace import MAX_TOKENS, Call, TextPrompt

READERS = {m.READER.name: m.READER for m in (langfuse, langgraph, langsmith, openai_agents, openhands, otel, sweagent, taubench)}
SAMPLES = [(name, path) for name in READERS for path in sorted((DATA / name).iterdir())]
EXAMPLES = int(os.environ.get("WARMGATE_FUZZ_EXAMPLES", "30"))
TEMPLATE = ChatTemplate.default()


def some(every):
    """Every place when fuzzing at length; in a quick run an even spread of 60 of them, offset by the file's own size."""
    step = 1 if EXAMPLES >= 1000 else max(1, len(every) // 60)
    return every[len(every) % step :: step]


KEYS = ["role", "content", "type", "parts", "text", "id", "messages", "tool_calls", "function", "name", "arguments", "input", "data", "lc"]
WORDS = [
    "",
    "assistant",
    "tool",
    "human",
    "[",
    "{",
    '[{"role":"user","content":"x"}]',
    '"\\"x\\""',
    "[[[[[[[[",
    "resp_1",
    "1",
    "NaN",
    "é\u0000",
]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.sampled_from([-1, 2**34, 2**34 + 1, 2**62, -(2**62), 0.5, -0.0, 1e300]),
    st.sampled_from(WORDS),
    st.text(max_size=5),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


PACKED = "\0json"
"""Stands for JSON in a string while a sample is changed, so that values inside such strings change too."""


def load(path):
    """A sample's records and whether they were lines."""
    data = path.read_bytes()
    if head(data).document is not None:
        return [unpacked(parse(data))], False
    return [unpacked(parse(line)) for line in data.splitlines()], True


def unpacked(value):
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return {PACKED: unpacked(parse(value.encode()))}
        except NotJson:
            return value
    if isinstance(value, dict):
        return {key: unpacked(inner) for key, inner in value.items()}
    return [unpacked(inner) for inner in value] if isinstance(value, list) else value


def packed(value):
    if isinstance(value, dict):
        return json.dumps(packed(value[PACKED])) if PACKED in value else {key: packed(inner) for key, inner in value.items()}
    return [packed(inner) for inner in value] if isinstance(value, list) else value


def places(value, path=()):
    """Every path into a JSON value."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def replace(records, path, value, action):
    """Put ``value`` where ``path`` leads, or take away or double what is there."""
    at = records
    for step in path[:-1]:
        at = at[step]
    last = path[-1]
    if action == "put":
        at[last] = value
    elif action == "drop":
        del at[last]
    elif isinstance(at, list):
        at.insert(last, copy.deepcopy(at[last]))
    else:
        at[str(value)[:8]] = at[last]


def as_bytes(records, lines):
    return b"".join(json.dumps(packed(r)).encode() + b"\n" for r in records[: None if lines else 1])


def check(reader, data):
    """Read and see that nothing but sound calls or one TraceError comes out."""
    said: list[str] = []
    source = Source("trace", head(data), io.BytesIO(data), Skipped("trace", said.append))
    reader.recognises(source.head)
    refused = ""
    try:
        calls = list(reader.read(source))
    except TraceError as fault:
        calls, refused = [], str(fault)
    assert "\n" not in refused
    for call in calls:
        assert isinstance(call, Call)
        assert isinstance(call.session, str)
        assert call.session
        assert isinstance(call.model, str)
        usage = call.usage
        for number in (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens):
            assert number is None or (type(number) is int and 0 <= number <= MAX_TOKENS)
        assert usage.cached_tokens is None or (usage.prompt_tokens is not None and usage.cached_tokens <= usage.prompt_tokens)
        assert call.started is None or 0 < call.started < 1e11
        messages = [] if call.response is None else [call.response]
        if call.prompt is not None:
            assert isinstance(call.prompt, TextPrompt)
            assert len(call.prompt.messages) > 0
            messages += call.prompt.messages
            assert all(isinstance(tool, Mapping) for tool in call.prompt.tools)
        for message in messages:
            assert isinstance(message["role"], str)
            assert isinstance(message["content"], (str, list))
        TEMPLATE.render(messages, call.prompt.tools if call.prompt else ())
    assert all("\n" not in line for line in (*said, *source.notes))


@pytest.mark.parametrize(("name", "path"), SAMPLES, ids=[f"{n}/{p.name}" for n, p in SAMPLES])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_anywhere(name, path, data):
    """Whatever stands in place of any value of a trace, a reader yields sound calls or refuses the trace in one line."""
    records, lines = load(path)
    for _ in range(data.draw(st.integers(1, 4))):
        spots = list(places(records))[1:]
        if not spots:
            break
        spot = data.draw(st.sampled_from(spots))
        action = data.draw(st.sampled_from(["put", "put", "put", "drop", "double"]))
        if len(spot) == 1 and action != "put":
            continue
        replace(records, spot, data.draw(values), action)
    check(READERS[name], as_bytes(records, lines))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(value=values, lines=st.booleans())
def test_any_json_at_all(name, value, lines):
    """A file of another kind, forced on a reader, is refused like any other."""
    check(READERS[name], as_bytes([value, value], lines))


@pytest.mark.parametrize(("name", "path"), SAMPLES, ids=[f"{n}/{p.name}" for n, p in SAMPLES])
def test_each_value_in_turn_becomes_null_list_object_and_text(name, path):
    """The changes that real exports show: a field left null, a list where one object was, JSON in a string."""
    records, lines = load(path)
    for *way, last in some(list(places(records))[1:]):
        at = records
        for step in way:
            at = at[step]
        before = at[last]
        for value in (None, [None]):
            at[last] = value
            check(READERS[name], as_bytes(records, lines))
        at[last] = before

"""If these fail, one odd value in a hash trace, a coding agent's session or a request log takes the whole replay down."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.replay.reading import DATA, head
from tests.unit.replay.test_readers_any_json import EXAMPLES, as_bytes, load, places, replace, some, values
from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TemplateError, TraceError
from warmgate.replay.prepare import HashPreparer
from warmgate.replay.readers import claude_code, codex, mooncake, openai_chat, warmgate_trace, weka
from warmgate.replay.readers._base import Skipped, Source
from warmgate.replay.run import Options, replay
from warmgate.replay.trace import MAX_TOKENS, BlockPrompt, TextPrompt

READERS = {m.READER.name: m.READER for m in (weka, mooncake, claude_code, codex, openai_chat, warmgate_trace)}
SAMPLES = [(name, path) for name in READERS for path in sorted((DATA / name).iterdir())]
IDS = [f"{name}/{path.name}" for name, path in SAMPLES]
TEMPLATE = ChatTemplate.default()


def check(reader, data):
    """Read and see that nothing but sound calls or one TraceError comes out."""
    said: list[str] = []
    source = Source("trace", head(data), io.BytesIO(data), Skipped("trace", said.append))
    reader.recognises(source.head)
    try:
        calls = list(reader.read(source))
    except TraceError as fault:
        said.append(str(fault))
        calls = []
    assert all("\n" not in line for line in said)
    for call in calls:
        assert isinstance(call.session, str)
        assert isinstance(call.model, str)
        assert isinstance(call.namespace, str)
        usage = call.usage
        for number in (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, call.questions, call.question_tokens):
            assert number is None or (type(number) is int and 0 <= number <= 50 * MAX_TOKENS)
        assert usage.cached_tokens is None or (usage.prompt_tokens is not None and usage.cached_tokens <= usage.prompt_tokens)
        for time in (call.started, call.ended):
            assert time is None or isinstance(time, (int, float))
        if isinstance(call.prompt, BlockPrompt):
            assert 0 <= len(call.prompt.hashes) <= -(-call.prompt.tokens // call.prompt.block_size)
            HashPreparer(None).prepare(call, call.prompt)
        elif isinstance(call.prompt, TextPrompt):
            assert all(isinstance(tool, Mapping) for tool in call.prompt.tools)
            messages = [*call.prompt.messages, *([] if call.response is None else [call.response])]
            assert all(isinstance(message["role"], str) for message in messages)
            with suppress(TemplateError):  # the replay skips the call and says why
                TEMPLATE.render(messages, call.prompt.tools, **call.prompt.template_kwargs)


@pytest.mark.parametrize(("name", "path"), SAMPLES, ids=IDS)
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


@pytest.mark.parametrize(("name", "path"), SAMPLES, ids=IDS)
def test_each_value_in_turn_becomes_null_list_object_and_text(name, path):
    """A field left null, a list where one object was, JSON in a string."""
    records, lines = load(path)
    for *way, last in some(list(places(records))[1:]):
        at = records
        for step in way:
            at = at[step]
        before = at[last]
        for value in (None, [None], "[{}]", {"a": []}, -1, 1 << 70, True):
            at[last] = value
            check(READERS[name], as_bytes(records, lines))
        at[last] = before


@pytest.mark.parametrize(("name", "path"), SAMPLES, ids=IDS)
def test_every_byte_may_be_the_last(name, path, tmp_path):
    """A copy cut short anywhere is replayed as far as it goes, or refused in one line."""
    data = path.read_bytes()
    cut = tmp_path / "cut"
    for size in range(0, len(data), max(1, len(data) // (12 if EXAMPLES < 1000 else 120))):
        cut.write_bytes(data[:size])
        said: list[str] = []
        result = replay([str(cut)], Options(), say=said.append)
        assert len(result.traces) + len(result.refused) == 1
        assert all("\n" not in refusal.reason for refusal in result.refused)

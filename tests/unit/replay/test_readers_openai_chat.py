"""If these fail, `replay` reads a plain request log wrongly: other prompts than were sent, calls in the wrong session, nothing shared."""

from __future__ import annotations

import json

import pytest

from tests.unit.replay.reading import DATA, read
from warmgate.replay.readers import _sharing
from warmgate.replay.readers.openai_chat import READER

USER = {"role": "user", "content": "Count."}


def records(name):
    return [json.loads(line) for line in (DATA / "openai_chat" / name).read_text().splitlines()]


def test_prompts_are_exactly_what_was_sent():
    """A message put into other words, or keys in another order, is another prefix."""
    found = read(READER, "openai_chat/plain.jsonl")
    sent = [record["messages"] for record in records("plain.jsonl")]
    assert [json.dumps(found.messages(i)) for i in range(4)] == [json.dumps(one) for one in sent]
    assert found.calls[0].prompt.tools == records("plain.jsonl")[0]["tools"]
    assert found.calls[0].response["tool_calls"][0]["function"]["name"] == "ls"
    assert found.calls[1].response == {"role": "assistant", "content": "None."}


def test_sessions_times_and_usage_are_as_recorded():
    found = read(READER, "openai_chat/plain.jsonl")
    assert found.sessions == ["s1", "s2", "s1", "s1"]
    assert found.counts == [(50, 0, 9), (48, None, 3), (80, 48, 3), (None, None, None)]
    assert [c.started for c in found.calls] == [1772442000.0, 1772442001.0, 1772442004.0, 1772442009.0]
    assert {c.model for c in found.calls} == {"pine-7b"}
    assert found.notes == []


def test_lora_and_salt_keep_caches_apart():
    """Tokens would be promised from a cache that the engine keeps separate."""
    found = read(READER, "openai_chat/plain.jsonl")
    assert [c.namespace for c in found.calls] == ["", "", "lora=bark salt=pepper", ""]


def test_template_arguments_pass_but_cannot_replace_the_prompt():
    """`chat_template_kwargs: {messages: …}` would render another conversation."""
    assert read(READER, "openai_chat/plain.jsonl").calls[2].prompt.template_kwargs == {"enable_thinking": False}


def test_equal_messages_of_a_session_are_one_object():
    """Each call would be rendered and tokenised from its first message: minutes instead of seconds."""
    calls = read(READER, "openai_chat/plain.jsonl").calls
    first, third, fourth = (calls[i].prompt.messages for i in (0, 2, 3))
    assert all(a is b for a, b in zip(first, third, strict=False))
    assert fourth[0] is not third[0]
    assert all(a is b for a, b in zip(third[1:], fourth[1:], strict=False))
    assert calls[0].prompt.tools is calls[2].prompt.tools


def test_messages_that_print_otherwise_are_not_shared():
    """An unstable key order breaks the prefix; sharing would hide it."""
    other = {"content": "Count.", "role": "user"}
    found = read(READER, [{"session": 1, "messages": [USER]}, {"session": 1, "messages": [other]}], lines=True)
    assert list(found.messages(1)[0]) == ["content", "role"]


def test_wrapped_requests_of_batches_and_proxies():
    """OpenAI's batch files and common proxies would be refused; a failed request is no call."""
    found = read(READER, "openai_chat/wrapped.jsonl")
    assert [len(found.messages(i)) for i in range(3)] == [2, 4, 6]
    assert found.sessions == ["conversation-1", "h1", "m1"]
    assert [c.response["content"] for c in found.calls] == [None, "Two.", "None."]
    assert found.counts[0] == (50, None, 9)
    assert found.said == ["trace:4: skipped, the request failed with status 429"]


def test_sessions_are_inferred_by_prefix_and_said_so():
    """Each call would be a session of its own, and no divergence would ever show."""
    found = read(READER, "openai_chat/unnamed.jsonl")
    assert found.sessions == [f"conversation-{n}" for n in (1, 2, 1, 1, 2, 3)]
    assert "sessions inferred, since the trace does not name them: 3" in found.notes[0]


def test_a_clock_in_the_system_prompt_does_not_split_a_conversation():
    """The commonest reason for a lost prefix would look like new sessions."""
    found = read(READER, "openai_chat/unnamed.jsonl")
    assert found.messages(4)[0]["content"].endswith("noon.")
    assert found.sessions[4] == found.sessions[1]
    assert found.sessions[5] not in found.sessions[:5]  # another agent on the same task


def test_an_answer_inside_the_messages_is_the_answer():
    """A transcript's last message would count as prompt."""
    found = read(READER, "openai_chat/unnamed.jsonl")
    assert len(found.messages(3)) == 6
    assert found.calls[3].response == {"role": "assistant", "content": "None."}
    assert "end with an assistant message" in found.notes[1]


def test_responses_requests_become_chat():
    """`input`, `instructions` and flat tools would be lost, and a stored conversation would look short."""
    found = read(READER, "openai_chat/responses.jsonl")
    assert [role for role, _ in found.spoken(2)] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert found.calls[0].prompt.tools[0]["function"]["name"] == "ls"
    assert found.counts[0] == (60, 32, 7)
    assert found.sessions[:3] == ["conversation-1"] * 3


def test_a_conversation_the_provider_holds_is_known_by_usage_alone():
    """A prompt of one message would be taken for the whole."""
    found = read(READER, "openai_chat/responses.jsonl")
    assert found.calls[3].prompt is None
    assert found.counts[3] == (777, None, 3)
    assert "messages the provider holds" in found.notes[1]


def test_anthropic_requests_become_chat_with_inclusive_counts():
    """The system prompt would be lost, and cached tokens would exceed the prompt."""
    found = read(READER, "openai_chat/anthropic.jsonl")
    assert [role for role, _ in found.spoken(0)] == ["system", "user", "assistant", "tool"]
    assert found.counts == [(1047, 1000, 2)]


def test_one_document_with_a_list_of_requests():
    assert len(read(READER, records("plain.jsonl")).calls) == 4


@pytest.mark.parametrize(
    ("used", "counts"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (9, 4, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, (9, None, 2)),
        ({"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}, (9, 4, 2)),
        ({"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 4}, (13, 4, 2)),
        ({"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1}, (14, 4, 2)),
        (None, (None, None, None)),
    ],
)
def test_usage_of_every_dialect(used, counts):
    assert read(READER, [{"messages": [USER], "usage": used}] * 2, lines=True).counts == [counts] * 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"usage": {"prompt_tokens": -1}}, "prompt_tokens is negative"),
        ({"usage": {"prompt_tokens": 1 << 60}}, "prompt_tokens is absurdly large"),
        ({"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}, "4 cached tokens of a prompt of 3"),
        ({"messages": [USER, {"content": "x"}]}, "its message 2 has no role"),
        ({"messages": [USER, None]}, "its message 2 has no role"),
        ({"messages": []}, "it is no request: neither messages nor input"),
        ({"messages": "hello"}, "it is no request: neither messages nor input"),
        ({"error": {"message": "overloaded"}}, "the request failed"),
        ({"previous_response_id": "gone", "messages": [], "input": [USER]}, "the provider holds its earlier messages"),
    ],
)
def test_a_broken_request_is_skipped_and_told(change, why):
    found = read(READER, [{"messages": [USER]}, {"messages": [USER], **change}, {"messages": [USER]}], lines=True)
    assert len(found.calls) == 2
    assert len(found.said) == 1
    assert f"trace:2: skipped, {why}" in found.said[0]


def test_what_is_held_for_sharing_is_bounded(monkeypatch):
    """A log of a million conversations would be held whole."""
    monkeypatch.setattr(_sharing, "HELD_BYTES", 3000)
    joined = _sharing.Conversations()
    for number in range(50):
        joined.join(str(number), [{"role": "user", "content": "x" * 1000}])
    assert len(joined._latest) <= 3
    session, messages = joined.join("49", [{"role": "user", "content": "x" * 1000}, USER])
    assert (session, len(messages)) == ("49", 2)


@pytest.mark.parametrize("value", [1 << 80, {"x": [1 << 80]}, "\ud800"])
def test_values_that_json_writers_stumble_over_can_be_compared(value):
    """One odd argument would crash the replay."""
    joined = _sharing.Conversations()
    first = joined.join(None, [{"role": "user", "content": value}])[1]
    assert joined.join(None, [{"role": "user", "content": value}])[1][0] is first[0]

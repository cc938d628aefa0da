"""If these fail, `replay` counts Claude Code's calls twice, mixes its sub-agents, or believes messages that no model wrote."""

from __future__ import annotations

import pytest

from tests.unit.replay.reading import SHARED, read
from warmgate.replay.readers.claude_code import READER

S = "3f1c0000-0000-4000-8000-000000000001"


def event(ident, usage, **more):
    message = {"id": ident, "model": "m", "role": "assistant", "content": [], "usage": usage}
    return {"type": "assistant", "sessionId": "s", "uuid": f"u-{ident}", "message": message, **more}


def usage(sent=1, read=0, written=0, out=1):
    return {"input_tokens": sent, "cache_read_input_tokens": read, "cache_creation_input_tokens": written, "output_tokens": out}


def test_a_message_is_one_call_with_its_last_usage():
    """Usage repeats with every content block: a session would look three times as long."""
    found = read(READER, "claude_code/session.jsonl")
    assert found.counts[0] == (9004, 0, 57)
    assert found.counts[1] == (9126, 9000, 30)
    assert len(found.calls) == 7
    assert found.calls[0].ended == 1772442003.0
    assert found.calls[0].prompt is None
    assert "neither system prompt nor tool schemas" in found.notes[0]


def test_the_most_complete_usage_counts_whatever_its_place():
    """Some versions write a final line with less in it."""
    rows = [event("a", usage(5, 10, 0, 1)), event("a", usage(5, 10, 0, 90)), event("a", usage(5, 10, 0, 2))]
    assert read(READER, rows, lines=True).counts == [(15, 10, 90)]


def test_sub_agents_are_sessions_of_their_own():
    """A sub-agent's short prompt would look as if the session had lost its history."""
    found = read(READER, "claude_code/session.jsonl")
    assert found.sessions == [S, S, f"{S}/sidechain-1", f"{S}/sidechain-1", f"{S}/sidechain-2", f"{S}/oak", S]


def test_what_no_model_answered_is_no_call():
    """Error texts that Claude Code writes itself would count as calls of 0 tokens."""
    rows = [
        event("a", usage()),
        event("b", usage(), isApiErrorMessage=True),
        {**event("c", usage()), "message": {**event("c", usage())["message"], "model": "<synthetic>"}},
    ]
    found = read(READER, rows, lines=True)
    assert len(found.calls) == 1
    assert found.skipped == 0


def test_the_stream_of_the_sdk_is_read_too():
    """`claude -p --output-format stream-json` names the session otherwise."""
    found = read(READER, "claude_code/stream.jsonl")
    assert found.sessions == ["s-1", "s-1/toolu_9"]
    assert found.counts == [(513, 10, 4), (203, 0, 4)]


def test_sessions_of_one_file_are_kept_apart():
    rows = [event("a", usage()), {**event("b", usage()), "sessionId": "t"}]
    assert read(READER, rows, lines=True).sessions == ["s", "t"]


def test_parents_in_a_circle_end():
    """A hostile file would hang the replay."""
    rows = [
        event("a", usage(), isSidechain=True, uuid="1", parentUuid="2"),
        event("b", usage(), isSidechain=True, uuid="2", parentUuid="1"),
        event("c", usage(), isSidechain=True, uuid="3", parentUuid="3"),
        event("d", usage(), isSidechain=True, uuid="1", parentUuid="2"),
    ]
    assert read(READER, rows, lines=True).sessions == ["s/sidechain-1", "s/sidechain-1", "s/sidechain-2", "s/sidechain-1"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (usage(-3), "input_tokens is negative"),
        (usage(1, 1 << 60), "cache_read_input_tokens is absurdly large"),
        (usage(1, "9"), "cache_read_input_tokens is '9', not a whole number"),
        (None, "it is an answer without usage"),
        ("x", "it is an answer without usage"),
        ({}, "it is an answer without usage"),
    ],
)
def test_a_broken_usage_is_skipped_and_told(broken, why):
    found = read(READER, [event("a", usage()), event("b", broken), event("c", usage())], lines=True)
    assert len(found.calls) == 2
    assert found.said == [f"trace:2: skipped, {why}"]


def test_messages_without_an_id_are_calls_of_their_own():
    """Without an id all would become one call."""
    rows = [event(None, usage(5), uuid="1"), event(None, usage(6), uuid="2"), event(None, usage(7), uuid=None)]
    assert len(read(READER, rows, lines=True).calls) == 3


@pytest.mark.skipif(not (SHARED / "claude_code").is_dir(), reason="the recorded traces beside the checkout (../shared) are absent")
def test_a_real_session_gives_its_known_sums():
    found = read(READER, SHARED / "claude_code/session-196820da.jsonl")
    assert len(found.calls) == 47
    assert sum(c.usage.prompt_tokens or 0 for c in found.calls) == 4_041_099
    assert sum(c.usage.cached_tokens or 0 for c in found.calls) == 2_560_506

"""If these fail, `replay` miscounts Mooncake's and Bailian's request traces, or invents conversations in them."""

from __future__ import annotations

import time
from array import array

import pytest

from tests.unit.replay.reading import SHARED, read
from warmgate.replay.readers.mooncake import READER
from warmgate.replay.source import open_trace


def row(tokens, ids, **more):
    return {"timestamp": 0, "input_length": tokens, "output_length": 1, "hash_ids": ids, **more}


def test_a_call_that_goes_on_from_a_whole_prompt_is_the_same_conversation():
    """Sticky routing would send every turn of a conversation elsewhere."""
    found = read(READER, "mooncake/conversations.jsonl")
    assert found.sessions == [f"conversation-{n}" for n in (1, 2, 3, 1, 2, 1, 4)]
    assert found.calls[3].started == 6.0
    assert found.calls[3].prompt.block_size == 512
    assert found.counts[3] == (1900, None, 40)
    assert "sessions inferred, since the trace does not name them: 4" in found.notes[0]


def test_one_shared_block_is_a_system_prompt_and_no_conversation():
    """All conversations of a product would become one."""
    assert read(READER, [row(512, [0]), row(1024, [0, 1]), row(1024, [0, 2])], lines=True).sessions == [
        "conversation-1",
        "conversation-2",
        "conversation-3",
    ]


def test_a_partial_last_block_does_not_break_a_conversation():
    """Its id changes with every turn."""
    assert len(set(read(READER, [row(1100, [0, 1, 2]), row(1600, [0, 1, 3, 4])], lines=True).sessions)) == 1


def test_the_longest_prompt_gone_on_from_wins():
    """After a fork, a turn would go to the other branch."""
    rows = [row(1024, [0, 1]), row(2048, [0, 1, 2, 3]), row(1536, [7, 8, 9]), row(2560, [0, 1, 2, 3, 4])]
    assert read(READER, rows, lines=True).sessions == [f"conversation-{n}" for n in (1, 1, 2, 1)]


def test_ids_out_of_place_found_no_conversation():
    """Ids that do not name what stands before them would tie strangers together."""
    assert len(set(read(READER, [row(1024, [0, 1]), row(2048, [5, 6, 7, 1])], lines=True).sessions)) == 2


def test_recorded_sessions_are_believed():
    assert read(READER, [row(600, [0], session_id="a"), row(600, [0], session_id=7)], lines=True).sessions == ["a", "7"]


def test_bailian_chats_are_sessions_with_16_token_blocks():
    """Read with Mooncake's 512 tokens a block, every call would be refused."""
    found = read(READER, "mooncake/bailian.jsonl")
    assert found.sessions == ["7", "8", "7", "7"]
    assert {c.prompt.block_size for c in found.calls} == {16}
    assert found.calls[0].started == 0.5
    assert found.notes == []


def test_chats_that_are_each_others_parents_end():
    """A cycle would hang the replay."""
    rows = [row(16, [1], chat_id=a, parent_chat_id=b) for a, b in ((1, 2), (2, 1), (3, 3), (1, 2))]
    assert read(READER, rows, lines=True).sessions == ["1", "1", "3", "1"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"input_length": -1}, "input_length is negative"),
        ({"input_length": 1 << 40}, "input_length is absurdly large"),
        ({"input_length": None}, "it has no input_length"),
        ({"output_length": 0.5}, "output_length is 0.5, not a whole number"),
        ({"hash_ids": [1, "2"]}, "its hash_ids are not all whole numbers"),
        ({"hash_ids": None}, "its hash_ids are no list"),
        ({"hash_ids": [1, 2, 3, 4]}, "it has 4 hash_ids, but 1,024 tokens fill no more than 2 blocks"),
    ],
)
def test_a_broken_record_is_skipped_and_told(change, why):
    """It would crash the replay, or add an absurd number to every sum."""
    found = read(READER, [row(1024, [0, 1]), row(1024, [0, 1], **change), row(1024, [0, 1])], lines=True)
    assert len(found.calls) == 2
    assert found.said == [f"trace:2: skipped, {why}"]


def test_times_of_any_kind():
    """A missing or broken clock loses the time, not the call."""
    found = read(READER, [row(1, [0], timestamp=t) for t in (5, -1, None, "x", True, 1e300)], lines=True)
    assert [c.started for c in found.calls] == [0.005, None, None, None, None, None]


def test_ids_take_eight_bytes_each():
    """A trace of 100 million blocks would not fit."""
    assert isinstance(read(READER, [row(512, [0]), row(512, [1])], lines=True).calls[0].prompt.hashes, array)


@pytest.mark.skipif(not (SHARED / "mooncake").is_dir(), reason="the recorded traces beside the checkout (../shared) are absent")
def test_the_published_conversation_trace_is_read_whole_and_fast():
    """3,000 calls and 80,619 block ids; a reader slower than the simulation would be what the user waits for."""
    best = 9.0
    for _ in range(3):
        started = time.process_time()
        with open_trace(str(SHARED / "mooncake/conversation_trace.first3000.jsonl"), print) as (reader, opened):
            calls = list(reader.read(opened))
        best = min(best, time.process_time() - started)
    assert (len(calls), sum(c.usage.prompt_tokens or 0 for c in calls)) == (3000, 40_550_180)
    assert sum(len(c.prompt.hashes) for c in calls) == 80_619
    assert best < 0.25

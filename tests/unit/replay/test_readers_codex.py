"""If these fail, `replay` counts Codex's calls twice, or counts as a call what was none."""

from __future__ import annotations

import pytest

from tests.unit.replay.reading import SHARED, read
from warmgate.replay.readers.codex import READER


def tokens(last, total):
    return {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": last, "total_token_usage": total}}}


def last(sent=10, cached=0, out=1):
    return {"input_tokens": sent, "cached_input_tokens": cached, "output_tokens": out}


def test_a_change_of_the_running_sum_is_one_call():
    """Codex repeats the event for rate limits: calls would double. Two equal calls in a row are two."""
    found = read(READER, "codex/rollout.jsonl")
    assert found.counts == [(5000, 0, 40), (5200, 4992, 25), (5200, 4992, 25), (5600, 5120, 9)]
    assert found.sessions == ["0190-pine"] * 4
    assert [c.model for c in found.calls] == ["gpt-5.5"] * 3 + ["gpt-5.5-mini"]
    assert found.calls[0].ended == 1772442003.5
    assert found.skipped == 0
    assert "no tool schemas" in found.notes[0]


def test_two_rollouts_in_one_file_are_two_sessions():
    """`cat rollout-*.jsonl` would make one long session of them."""
    rows = []
    for name in ("a", "b"):
        rows += [{"type": "session_meta", "payload": {"id": name}}, tokens(last(), {"n": 1}), tokens(last(), {"n": 1})]
    assert read(READER, rows, lines=True).sessions == ["a", "b"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (last(-1), "input_tokens is negative"),
        (last(1 << 50), "input_tokens is absurdly large"),
        (last(5, 9), "9 cached tokens of a prompt of 5"),
        (last("5"), "input_tokens is '5', not a whole number"),
        (None, "its token count has no last_token_usage.input_tokens"),
        ([], "its token count has no last_token_usage.input_tokens"),
        ({}, "its token count has no last_token_usage.input_tokens"),
    ],
)
def test_a_broken_count_is_skipped_and_told(broken, why):
    found = read(READER, [tokens(last(), 1), tokens(broken, 2), tokens(last(), 3)], lines=True)
    assert len(found.calls) == 2
    assert found.said == [f"trace:2: skipped, {why}"]


@pytest.mark.skipif(not (SHARED / "codex").is_dir(), reason="the recorded traces beside the checkout (../shared) are absent")
def test_a_real_rollout_gives_its_known_sums():
    (path,) = (SHARED / "codex").iterdir()
    found = read(READER, path)
    assert len(found.calls) == 66
    assert sum(c.usage.prompt_tokens or 0 for c in found.calls) == 6_055_836
    assert sum(c.usage.cached_tokens or 0 for c in found.calls) == 4_929_536

"""If these fail, `replay` loses answers of a tau-bench run, or copies each conversation once a call."""

from __future__ import annotations

import pytest

from tests.unit.replay.reading import read
from warmgate.errors import TraceError
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers.taubench import READER


def test_each_answer_is_a_call_and_each_trial_a_session():
    """Two trials of a task would look like one conversation that starts over."""
    found = read(READER, "taubench/results.json")
    assert found.sessions == [s for s in ("task-0/trial-0", "task-1/trial-0", "task-0/trial-1") for _ in range(2)]
    assert [len(found.messages(i)) for i in range(2)] == [2, 4]
    assert found.calls[1].response == {"role": "assistant", "content": "Here you are."}


def test_growing_prompts_share_their_messages():
    """A run of 800 calls would hold every conversation dozens of times."""
    first, second = (c.prompt.messages for c in read(READER, "taubench/results.json").calls[:2])
    assert all(a is b for a, b in zip(first, second, strict=False))


def test_grown_is_a_sequence_like_any_other():
    """Chat templates index, slice and loop over messages: a view that differs renders another prompt."""
    messages = [{"role": "user", "content": str(i)} for i in range(5)]
    grown = Grown(messages, 3)
    plain = messages[:3]
    assert list(grown) == plain
    assert (len(grown), grown[0], grown[-1], grown[1:], grown[::-1], grown[-2:]) == (
        3,
        plain[0],
        plain[-1],
        plain[1:],
        plain[::-1],
        plain[-2:],
    )
    for index in (3, -4):
        with pytest.raises(IndexError):
            grown[index]
    messages.append({"role": "user", "content": "later"})
    assert list(grown) == plain


def test_the_same_trial_twice_stays_two_sessions():
    """Runs written to one file one after the other would merge."""
    traj = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    assert read(READER, [{"task_id": 1, "trial": 0, "traj": traj}] * 2).sessions == ["task-1/trial-0", "task-1/trial-0#2"]


def test_results_without_an_answer_are_refused_with_that_reason():
    """The user would see an empty report and not know why."""
    with pytest.raises(TraceError, match="without an answer"):
        read(READER, [{"task_id": 1, "traj": [{"role": "user", "content": "hi"}]}])

"""What counts as the same conversation. If these fail, a changed message keeps its old rendering, or each turn renders everything anew."""

from __future__ import annotations

import copy

import pytest

from warmgate.alignment.seen import Seen

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Read a."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "A"}]},
]
MORE = {"role": "user", "content": "And b."}


def seen_of(messages):
    seen = Seen()
    assert seen.known(messages) == 0
    seen.keep(messages)
    return seen


@pytest.mark.parametrize("again", [list, copy.deepcopy], ids=["same objects", "copies"])
def test_a_longer_conversation_is_known_turn_after_turn(again):
    seen = seen_of(TALK)
    messages = TALK
    for number in range(4):
        messages = again([*messages, {"role": "user", "content": f"{number}"}])
        assert seen.known(messages) == len(messages) - 1
        seen.keep(messages)
        assert seen.known(messages) == len(seen) == len(messages)


def test_objects_and_copies_may_take_turns():
    seen = seen_of(TALK)
    for again in (copy.deepcopy, list, list, copy.deepcopy, copy.deepcopy):
        messages = again([*TALK, MORE])
        assert seen.known(messages) >= len(TALK)
        seen.keep(messages)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[:-1],
        lambda m: [*m[:1], *m[2:], MORE],
        lambda m: [m[0] | {"content": "Be long."}, *m[1:], MORE],
        lambda m: [m[1], m[0], *m[2:], MORE],
        lambda m: [*m[:3], dict(reversed(m[3].items())), MORE],
        lambda m: [*m[:2], m[2] | {"tool_calls": [dict(reversed(CALL.items()))]}, m[3], MORE],
        lambda m: [*m[:2], m[2] | {"tool_calls": [CALL | {"index": 1}]}, m[3]],
        lambda m: [*m[:3], m[3] | {"content": "A"}],
    ],
    ids=["cut", "left out", "edited", "swapped", "keys moved", "keys moved within", "field added", "another type"],
)
def test_any_change_of_what_was_there_is_a_new_conversation(change):
    assert seen_of(TALK).known(change(TALK)) == 0


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (0, -0.0), ("1", 1)])
def test_equal_values_that_print_differently_are_a_change(before, after):
    """A template prints ``true`` where it printed ``1``."""
    assert seen_of([{"role": "user", "content": "x", "n": before}]).known([{"role": "user", "content": "x", "n": after}]) == 0


def test_text_changed_in_place_is_a_change():
    """An agent that appends to its last message instead of adding one."""
    messages = copy.deepcopy(TALK)
    seen = seen_of(messages)
    messages[1]["content"] += " And b."
    assert seen.known(messages) == 0


@pytest.mark.parametrize("printed", [True, False])
@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m[3]["content"].append({"type": "text", "text": "B"}),
        lambda m: m[3]["content"][0].update(text="B"),
        lambda m: m[2]["tool_calls"][0]["function"].update(arguments='{"path": "b"}'),
        lambda m: m[2]["tool_calls"].append(CALL),
        lambda m: m[2].update(reasoning_content="Hm."),
        lambda m: m[0].update(role="user"),
        lambda m: m[0].pop("content"),
    ],
    ids=["part added", "part edited", "arguments edited", "call added", "field added", "role", "field taken away"],
)
def test_any_edit_in_place_is_a_change(edit, printed):
    """A forgery written into an old message would go unseen, and the state would hold what the agent's prompt no longer does."""
    messages = copy.deepcopy(TALK)
    seen = Seen(printed=printed)
    for _ in range(2):
        seen.known(messages)
        seen.keep(messages)
    assert seen.known(messages) == len(TALK)
    edit(messages)
    assert seen.known([*messages, MORE]) == 0
    seen.keep([*messages, MORE])
    assert seen.known([*messages, MORE]) == len(TALK) + 1


def test_a_message_that_holds_itself_is_never_known():
    loop = {"role": "user", "content": []}
    loop["content"].append(loop)
    assert seen_of([loop]).known([loop]) == 0


def test_another_word_for_it_is_taken_only_for_all_of_the_last_turn():
    """A stale word would keep what was edited."""
    seen = seen_of(TALK)
    seen.told(len(TALK))
    seen.keep([*TALK, MORE])
    assert len(seen) == len(TALK) + 1
    seen.told(2)
    seen.keep(TALK[:2])
    assert seen.known(TALK) == 2


@pytest.mark.parametrize("odd", [{1, 2}, "\ud800", 1 << 80], ids=["a set", "a lone surrogate", "a huge number"])
def test_what_json_cannot_say_is_compared_all_the_same(odd):
    messages = [{"role": "user", "content": "x", "odd": odd}]
    seen = seen_of(messages)
    assert seen.known(copy.deepcopy(messages)) == 1
    seen.keep(copy.deepcopy(messages))
    assert seen.known([{"role": "user", "content": "x", "odd": 5}]) == 0


def test_the_start_of_one_message_is_not_that_message():
    """As JSON, ``[{"n":1`` begins ``[{"n":12``."""
    assert seen_of([{"n": 1}]).known([{"n": 12}]) == 0

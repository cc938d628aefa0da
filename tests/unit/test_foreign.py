"""If these fail, an emoji that a tool cut in half costs a session its mounts, its alignment or its figures."""

from __future__ import annotations

import json

import pytest

from warmgate.alignment.plan import json_state
from warmgate.alignment.served import has_floats, served_message, served_tool
from warmgate.foreign import sendable

HALF = "a\ud83db"


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_joined():
    """No request with it could be sent."""
    assert sendable(HALF) == "a\ufffdb"
    assert sendable("\ud83d\ude00") == "\U0001f600"
    assert sendable({"k\udc00": [HALF, 1, None, (HALF,)]}) == {"k\ufffd": ["a\ufffdb", 1, None, ["a\ufffdb"]]}


@pytest.mark.parametrize("value", ["", "plain", "é \U0001f600", {"a": [1, 2.5, None, True]}, 10**40, {1: 2, "a": object()}])
def test_what_can_be_sent_stays_as_it_is(value):
    """Numbers too long for a codec, or foreign objects, would change their meaning."""
    assert sendable(value) == value


def test_values_that_hold_themselves_do_not_hang():
    """A decision would never end."""
    value = {"text": HALF}
    value["self"] = value
    assert sendable(value) is value


def test_messages_and_tools_are_shown_without_halves():
    """A template would print them, and the worker refuse the text."""
    function = {"name": "read", "arguments": json.dumps({"p": HALF})}
    message = {
        "role": "assistant",
        "content": HALF,
        "reasoning": HALF,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    shown = served_message(message)
    assert json.dumps(shown, ensure_ascii=False).encode()
    assert shown["tool_calls"][0]["function"]["arguments"] == {"p": "a\ufffdb"}
    assert served_tool({"type": "function", "function": {"name": "r", "description": HALF}})["function"]["description"] == "a\ufffdb"


def test_a_json_state_shows_what_can_be_shown():
    """The last resort of every decision would fail where it is needed most."""
    loop = {"role": "user", "content": HALF}
    loop["self"] = [loop, loop]
    deep = nested = {}
    for _ in range(5000):
        nested["a"] = {}
        nested = nested["a"]
    state = json_state([loop, {"role": "user", "content": "x", "extra": deep}], "why").state
    first, second = map(json.loads, state.splitlines())
    assert first == {"role": "user", "content": "a\ufffdb", "self": ["…", "…"]}
    assert second["content"] == "x"


def test_arguments_that_hold_themselves_are_no_fault_of_the_figures():
    """Observing the call would raise."""
    loop = {}
    loop["self"] = loop
    assert has_floats([{"tool_calls": [{"function": {"arguments": loop}}]}]) is False

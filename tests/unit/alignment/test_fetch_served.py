"""If these fail, a template rendered here sees other values than the server's, and prompts part at the first odd number."""

from __future__ import annotations

import json

import pytest

from warmgate.alignment.remote import wire_message
from warmgate.alignment.served import Served, has_floats, served_message, served_tool


def with_arguments(arguments):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}],
    }


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"x": 1.50}', {"x": 1.5}), ('{"x": 1e2}', {"x": 100.0}), ("", {}), (None, {}), ({"x": 1}, {"x": 1}), ("{broken", "{broken")],
)
def test_arguments_become_what_the_server_parses(arguments, shown):
    """``1.50`` and ``1.5`` would part the prompts."""
    assert served_message(with_arguments(arguments))["tool_calls"][0]["function"]["arguments"] == shown


def test_contents_become_one_text():
    """A missing content prints as ``None`` in many templates, parts as a list."""
    assert served_message({"role": "user", "content": None})["content"] == ""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert served_message({"role": "user", "content": parts})["content"] == "a\nb"


def test_reasoning_goes_by_both_names():
    """Templates look for either."""
    for name in ("reasoning", "reasoning_content"):
        shown = served_message({"role": "assistant", "content": "x", name: "hm"})
        assert shown["reasoning"] == shown["reasoning_content"] == "hm"


def test_tools_have_the_servers_order():
    """Templates print them in key order."""
    tool = {"function": {"parameters": {"b": 1, "a": 2}, "name": "f", "x-more": 1}, "type": "function"}
    expected = '{"type": "function", "function": {"name": "f", "description": null, "parameters": {"b": 1, "a": 2}}}'
    assert json.dumps(served_tool(tool)) == expected
    strict = {"type": "function", "function": {"name": "f", "strict": True}}
    assert served_tool(strict)["function"]["strict"] is True


def test_known_messages_keep_their_identity_and_changed_ones_do_not():
    """Every turn would be compared character by character, or an edited history be taken for the old one."""
    served = Served()
    raw = [{"role": "user", "content": "a"}, with_arguments('{"x": 1}')]
    first = served.messages(raw)
    again = served.messages([*json.loads(json.dumps(raw)), {"role": "user", "content": "b"}])
    assert all(a is b for a, b in zip(first, again, strict=False))
    edited = served.messages([{"role": "user", "content": "A"}, raw[1]])
    assert edited[0]["content"] == "A"


def test_fractions_are_found_wherever_they_are():
    """Drift would be called unknown."""
    assert has_floats([with_arguments('{"x": {"y": [1, 2.5]}}')])
    assert not has_floats([with_arguments('{"x": 2}'), {"role": "user", "content": "2.5"}])


@pytest.mark.parametrize("arguments", ['{"x": 1.5}', {"x": 1.5}, None])
def test_servers_are_sent_arguments_as_text(arguments):
    """vLLM answers 400 to anything else, and every turn after a tool call would be JSON."""
    sent = wire_message(with_arguments(arguments))
    text = sent["tool_calls"][0]["function"]["arguments"]
    assert json.loads(text) == ({"x": 1.5} if arguments else {})
    assert served_message(sent)["tool_calls"] == served_message(with_arguments(arguments))["tool_calls"]

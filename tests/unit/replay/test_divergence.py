"""If these fail, a reader is sent to look for the wrong change in their prompt."""

from __future__ import annotations

import pytest

from warmgate.alignment.template import ChatTemplate
from warmgate.replay.divergence import explain
from warmgate.replay.trace import TextPrompt


def tool(name, **more):
    return {"type": "function", "function": {"name": name, **more}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def printed(messages, tools, kwargs=None):
    return ChatTemplate.default().render(messages, tools, add_generation_prompt=False)


A, B, C = tool("a"), tool("b"), tool("c")

CASES = [
    (TextPrompt([user("x")], [A]), TextPrompt([user("x")], [A, B]), None, "tools", "added b"),
    (TextPrompt([user("x")], [A, B]), TextPrompt([user("x")], [A]), None, "tools", "removed b"),
    (TextPrompt([user("x")], [A, B]), TextPrompt([user("x")], [B, A]), None, "tools", "order differs"),
    (TextPrompt([user("x")], [A]), TextPrompt([user("x")], [tool("a", description="new")]), None, "tools", "schema of a differs"),
    (
        TextPrompt([user("x")], [{"type": "function", "function": {"name": "a", "strict": True}}]),
        TextPrompt([user("x")], [{"type": "function", "function": {"strict": True, "name": "a"}}]),
        None,
        "tools",
        "unstable key order",
    ),
    (
        TextPrompt([system("It is 2026-01-01 10:00:01 now. Be brief.")]),
        TextPrompt([system("It is 2026-01-01 10:00:02 now. Be brief.")]),
        0,
        "content",
        'became "2"',
    ),
    (TextPrompt([user("x"), user("y")]), TextPrompt([user("x"), user("z")]), 1, "content", "history edited"),
    (TextPrompt([user("x"), assistant("y"), user("z")]), TextPrompt([user("x"), user("q"), user("z")]), 1, "role", "became"),
    (TextPrompt([user("x"), assistant("y")]), TextPrompt([user("x")]), 1, "messages", "history cut: 1 message"),
    (
        TextPrompt([system("s"), user("x"), assistant("y"), user("z"), assistant("w")]),
        TextPrompt([system("s"), user("z"), assistant("w"), user("v")]),
        1,
        "messages",
        "history cut: 2 messages left out here, later ones kept",
    ),
    (TextPrompt([user("x"), user("y")]), TextPrompt([user("y"), user("z")]), 0, "messages", "history cut: 1 message left out here"),
    (TextPrompt([user("x"), user("y"), user("z")]), TextPrompt([user("y"), user("w")]), 0, "content", "history edited"),
    (
        TextPrompt([assistant("<think>hm</think>\n\ny"), user("z")]),
        TextPrompt([assistant("y"), user("z")]),
        0,
        "content",
        "thinking stripped",
    ),
    (
        TextPrompt([assistant("y", reasoning_content="hm"), user("z")]),
        TextPrompt([assistant("y"), user("z")]),
        0,
        "reasoning_content",
        "thinking stripped",
    ),
    (
        TextPrompt([assistant([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "y"}])]),
        TextPrompt([assistant([{"type": "text", "text": "y"}])]),
        0,
        "content",
        "thinking stripped",
    ),
    (
        TextPrompt([assistant(None, tool_calls=[{"function": {"name": "f", "arguments": {"a": 1, "b": 2}}}])]),
        TextPrompt([assistant(None, tool_calls=[{"function": {"name": "f", "arguments": {"b": 2, "a": 1}}}])]),
        0,
        "tool_calls",
        "unstable key order",
    ),
    (
        TextPrompt([user("x")], (), {"enable_thinking": True}),
        TextPrompt([user("x")]),
        None,
        "template_kwargs",
        "template arguments changed",
    ),
    (TextPrompt([user("x")]), TextPrompt([user("x"), user("y")]), 0, None, "template renders earlier turns differently"),
    (None, TextPrompt([user("x")]), None, None, "no longer held in memory"),
]


@pytest.mark.parametrize(("old", "new", "message", "field", "why"), CASES, ids=[c[4] for c in CASES])
def test_the_first_difference_is_named(old, new, message, field, why):
    """Each kind of break needs another mend."""
    found = explain(old, new, 7, printed)
    assert (found.message, found.field, found.token) == (message, field, 7)
    assert why in found.why
    assert "\n" not in found.why


def test_long_spans_are_cut():
    """One divergence would fill the screen."""
    found = explain(TextPrompt([system("a" * 10_000)]), TextPrompt([system("b" * 10_000)]), 0, printed)
    assert len(found.why) < 300


def test_of_two_changes_the_one_printed_first_is_named():
    """The reader would mend the tool list, and the clock before it would still break every prompt."""
    found = explain(
        TextPrompt([system("at 1 o'clock"), user("x")], [A]), TextPrompt([system("at 2 o'clock"), user("x")], [A, B]), 8, printed
    )
    assert (found.message, found.field) == (0, "content")
    assert "system prompt changed" in found.why
    assert "added b" in found.why
    found = explain(TextPrompt([system("s"), user("x")], [A]), TextPrompt([system("s"), user("y")], [A, B]), 8, printed)
    assert found.field == "tools"

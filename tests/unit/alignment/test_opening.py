"""If these fail, every call after a tool's result counts as drift, and after three of them no session is aligned any more."""

from __future__ import annotations

import pytest

from tests.unit.alignment.test_plan import ALIGN, load
from warmgate.alignment.opening import ending
from warmgate.alignment.plan import Planner
from warmgate.alignment.template import ChatTemplate

# No assistant's turn is opened behind a tool's result: the one that called goes on. Behind a call without a result other markup stands.
GOES_ON = """\
{%- set ns = namespace(last='') -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{- '<result>' + m.content + '</result>' -}}{%- set ns.last = 'tool' -%}
{%- elif m.role == 'assistant' -%}
{%- if ns.last != 'tool' -%}{{- '<model>' -}}{%- endif -%}{{- m.content or '' -}}
{%- for c in m.tool_calls or [] -%}{{- '<call>' + c.function.name + '</call>' -}}{%- endfor -%}
{%- set ns.last = 'call' if m.tool_calls else 'model' -%}{%- if not m.tool_calls -%}{{- '</model>' -}}{%- endif -%}
{%- else -%}{{- '<' + m.role + '>' + m.content + '</' + m.role + '>' -}}{%- set ns.last = m.role -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- if ns.last == 'call' -%}{{- '<result>' -}}{%- elif ns.last != 'tool' -%}{{- '<model>' -}}{%- endif -%}
{%- if messages[0].content == 'think' and ns.last == 'user' -%}{{- '<thought>' -}}{%- endif -%}
{%- endif -%}
"""
USER = {"role": "user", "content": "read it"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "read", "arguments": '{"p": "a"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "text of a file"}
DONE = {"role": "assistant", "content": "Done."}


@pytest.mark.parametrize(
    ("messages", "opening"),
    [([USER], "<model>"), ([USER, CALL], "<result>"), ([USER, CALL, RESULT], ""), ([USER, CALL, RESULT, DONE, USER], "<model>")],
)
def test_the_opening_is_what_stands_behind_these_messages(messages, opening):
    """Gemma 4 and DeepSeek V3.1 open no turn behind a tool's result: the prompt would be predicted too long."""
    assert Planner(ChatTemplate(GOES_ON, "ours")).opening(messages) == opening


def test_an_opening_is_rendered_once_for_a_shape():
    """Every observed call would cost two renderings more; on a server's template, two requests."""
    template = ChatTemplate(GOES_ON, "ours")
    planner = Planner(template)
    rendered = []
    whole = template.render
    template.render = lambda *args, **more: rendered.append(1) or whole(*args, **more)
    for number in range(5):
        function = {"name": f"tool{number}", "arguments": f'{{"n": {number}}}'}
        call = {**CALL, "tool_calls": [{"id": f"id{number}", "type": "function", "function": function}]}
        assert planner.opening([USER, call, {"role": "tool", "tool_call_id": f"id{number}", "content": "x" * number or "y"}]) == ""
    assert len(rendered) == 2


def test_an_opening_that_depends_on_more_than_the_end_is_told_by_the_whole():
    """SmolLM3 opens another turn where the system text says so."""
    planner = Planner(ChatTemplate(GOES_ON, "ours"))
    messages = [{"role": "system", "content": "think"}, USER]
    text = planner.template.render(messages, add_generation_prompt=False)
    assert planner.opening(messages) == "<model>"
    assert planner.opened(text, messages, [], {}) == "<model><thought>"
    assert planner.opened("other", messages, [], {}) is None


def test_nothing_of_the_conversation_stands_in_the_shape():
    """A shape is held for long, and may be sent to a server: a user's words would be too."""
    told = repr(ending([USER, {**CALL, "reasoning_content": "secret"}, {**RESULT, "content": "secret", "name": "secret"}]))
    assert "secret" not in told
    assert "read" not in told
    assert "abcdefghi" not in told


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "s"}], [RESULT], [{}], [{"role": 7, "content": {"a": 1}}]])
def test_any_messages_have_an_end(messages):
    """A prediction must not fail the call it is made for."""
    assert ending(messages)
    assert isinstance(Planner(ChatTemplate.default()).opening(messages), str)


@pytest.mark.parametrize("name", ALIGN)
def test_openings_of_templates_in_use(name):
    """The prediction of a real model's prompts; from ``../shared`` where that is there."""
    template = load(name)
    planner = Planner(template)
    for messages in ([USER], [USER, CALL, RESULT], [USER, CALL, RESULT, DONE, USER]):
        shown = [{**m, "content": m["content"] or ""} for m in messages]
        for message in shown:
            if message.get("tool_calls"):
                message["tool_calls"] = [{**CALL["tool_calls"][0], "function": {"name": "read", "arguments": {"p": "a"}}}]
        short, long = (template.render(shown, add_generation_prompt=add) for add in (False, True))
        assert short + planner.opening(messages) == long


@pytest.mark.parametrize("name", ["add_generation_prompt", "messages", "tools", "self", "flat"])
def test_arguments_with_names_of_our_own_do_not_end_a_decision(name):
    """One odd ``chat_template_kwargs`` of an agent would cost it every decision."""
    planner, messages = Planner(ChatTemplate.default()), [{"role": "user", "content": "hello"}]
    odd = {name: False}
    state = planner.plan("s", messages, (), odd)
    assert state.kind == "aligned"
    assert planner.opening(messages, odd) == planner.opening(messages)
    text = planner.template.render(messages, add_generation_prompt=False)
    assert planner.opened(text, messages, (), odd) == planner.opened(text, messages, ()) == planner.opening(messages)

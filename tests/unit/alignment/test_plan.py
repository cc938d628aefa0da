"""If these fail, a decision prompt no longer extends the agent's prompt, and every decision costs a second prefill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmgate.alignment.plan import Planner, json_state
from warmgate.alignment.recipe import learn
from warmgate.alignment.served import served_message, served_tool
from warmgate.alignment.template import ChatTemplate
from warmgate.errors import TemplateError

SHARED = Path(os.environ.get("WARMGATE_SHARED", Path(__file__).parents[4] / "shared")) / "templates"

# Qwen's habits in our own words: tools in the system turn, thinking kept only after the last user turn, tool results grouped.
QWENISH = """\
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- if tools -%}{{- '<|im_start|>system\\n' -}}{%- if messages[0].role == 'system' -%}{{- messages[0].content + '\\n\\n' -}}{%- endif -%}
{{- '<tools>' -}}{%- for t in tools -%}{{- '\\n' + (t | tojson) -}}{%- endfor -%}{{- '\\n</tools><|im_end|>\\n' -}}
{%- elif messages[0].role == 'system' -%}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- elif m.role == 'assistant' -%}
{%- set text = m.content or '' -%}
{%- if '</think>' in text and loop.index0 < ns.last -%}{%- set text = text.split('</think>')[-1].lstrip('\\n') -%}{%- endif -%}
{{- '<|im_start|>assistant\\n' + text -}}
{%- for c in m.tool_calls or [] -%}{{- '\\n<tool_call>\\n' + (c.function | tojson) + '\\n</tool_call>' -}}{%- endfor -%}{{- '<|im_end|>\\n' -}}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}
"""
# Gemma's habits: contents trimmed, the assistant is called model, a first token before all.
GEMMAISH = """\
{{- '<bos>' -}}
{%- if tools or messages[0].role == 'system' -%}{{- '<turn>system\\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content | trim -}}{%- endif -%}
{%- for t in tools or [] -%}{{- '<tool>' + t.function.name + '</tool>' -}}{%- endfor -%}{{- '</turn>\\n' -}}{%- endif -%}
{%- for m in messages -%}{%- if not (loop.first and m.role == 'system') -%}
{%- set role = 'model' if m.role == 'assistant' else m.role -%}
{{- '<turn>' + role + '\\n' + (m.content or '') | trim -}}
{%- for c in m.tool_calls or [] -%}{{- '<call>' + c.function.name + (c.function.arguments | tojson) + '</call>' -}}{%- endfor -%}{{- '</turn>\\n' -}}
{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<turn>model\\n' -}}{%- endif -%}
"""
OURS = {"qwenish": QWENISH, "gemmaish": GEMMAISH}
ALIGN = ["Qwen-Qwen3-0.6B", "Qwen3.5-4B", "Qwen3-Coder", "google-gemma-4-31B-it", "LFM2.5-Instruct", "GLM-4.6", "deepseek-ai-DeepSeek-V3.1"]

TOOLS = [
    {
        "type": "function",
        "function": {"name": n, "description": f"to {n}", "parameters": {"type": "object", "properties": {"p": {"type": "string"}}}},
    }
    for n in ("read", "write")
]


def load(name):
    if name in OURS:
        return ChatTemplate(OURS[name], name)
    path = SHARED / f"{name}.jinja"
    if not path.exists():
        pytest.skip("the shared template collection is absent here")
    return ChatTemplate(path.read_text(), name, {"bos_token": "<s>", "eos_token": "</s>"})


def call(n, content="hm"):
    function = {"name": "read", "arguments": {"p": f"file{n}"}}
    return {"role": "assistant", "content": content, "tool_calls": [{"id": f"call{n:05}", "type": "function", "function": function}]}


def result(n, content="text"):
    return {"role": "tool", "tool_call_id": f"call{n:05}", "name": "read", "content": content}


def served(template, messages, tools):
    """The agent's prompt as a server renders it."""
    return template.render(list(map(served_message, messages)), list(map(served_tool, tools)), add_generation_prompt=False)


SYSTEM = {"role": "system", "content": "You mend code."}
USER = {"role": "user", "content": "Fix the parser.\n\nPlease."}
ANSWER = {"role": "assistant", "content": "Done."}
CONVERSATIONS = {
    "user": [SYSTEM, USER],
    "no system": [USER],
    "assistant's tool calls last": [SYSTEM, USER, call(1)],
    "tool result last": [SYSTEM, USER, call(1), result(1)],
    "several results in a row": [SYSTEM, USER, call(1), result(1), result(2), result(3)],
    "no system, tool turns": [USER, call(1), result(1), call(2), result(2)],
    "second user turn": [SYSTEM, USER, call(1), result(1), ANSWER, USER],
    "unicode": [{"role": "system", "content": "Sei höflich 🙂"}, {"role": "user", "content": "Grüße – 漢字\u200b"}, ANSWER, USER],
    "empty contents": [SYSTEM, USER, call(1, ""), result(1, ""), ANSWER, {"role": "user", "content": ""}],
    "blanks": [SYSTEM, {"role": "user", "content": "  x\n\n"}, call(1), result(1, "\n y \n")],
}


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", [*OURS, *ALIGN])
def test_the_decision_prompt_starts_with_the_agents_prompt(name, conversation, tools):
    """The agent's call would find nothing of what the decision computed."""
    template = load(name)
    messages = CONVERSATIONS[conversation]
    planner = Planner(template)
    state = planner.plan("s", messages, tools)
    assert state.reason is None
    agent = served(template, messages, tools)
    decision = planner.prompt(state.instructions, state.state, "Which tool?")
    assert decision.startswith(agent)
    assert state.shared_characters == len(agent)
    assert planner.recipe is not None
    assert planner.recipe.opens_user
    assert decision[len(agent) :].startswith(planner.recipe.opens_user)


messages = st.one_of(
    st.builds(lambda c: {"role": "user", "content": c}, st.text(max_size=20)),
    st.builds(lambda c: {"role": "assistant", "content": c}, st.text(max_size=20) | st.just("<think>\nlong\n</think>\n\nshort")),
    st.builds(call, st.integers(1, 9), st.text(max_size=8) | st.just("<think>\nhm\n</think>\n\n")),
    st.builds(result, st.integers(1, 9), st.text(max_size=20)),
)
growing = st.lists(st.lists(messages, min_size=1, max_size=3), min_size=1, max_size=7)


@settings(max_examples=50, deadline=None)
@given(growing, st.booleans(), st.booleans(), st.sampled_from(["keep", "edit", "retool"]))
def test_growing_turn_by_turn_gives_what_rendering_whole_gives(script, system, tools, disturbance):
    """The incremental path would be fast and wrong: thinking stripped late, results grouped, histories edited must all show."""
    template = ChatTemplate(QWENISH, "qwenish")
    planner = Planner(template)
    history = [SYSTEM] if system else []
    offered = TOOLS if tools else []
    for number, news in enumerate(script):
        history = [*history, *news]
        if number == 2 and disturbance == "edit":
            history = [*history[:-1], {"role": "user", "content": "edited"}]
        if number == 2 and disturbance == "retool":
            offered = TOOLS[:1]
        state = planner.plan("s", history, offered)
        agent = served(template, history, offered)
        if state.kind == "aligned":
            assert planner.prompt(state.instructions, state.state, "?").startswith(agent)
            assert state.shared_characters == len(agent)
        else:
            assert state.reason


def test_a_turn_in_a_tool_loop_renders_only_its_new_messages():
    """At 120,000 tokens every turn would be rendered from the start."""
    planner = Planner(ChatTemplate(QWENISH))
    history = [SYSTEM, USER]
    rendered = []
    for n in range(20):
        history = [*history, call(n), result(n)]
        rendered.append(planner.plan("s", history, TOOLS).rendered)
    assert rendered[3:] == [2] * 17


def test_thinking_stripped_at_a_new_user_turn_is_rendered_whole():
    """The state would hold thinking that the agent's prompt no longer has."""
    template = ChatTemplate(QWENISH)
    planner = Planner(template)
    history = [SYSTEM, USER, call(1, "<think>\nhm\n</think>\n\nreading"), result(1)]
    for _ in range(3):
        planner.plan("s", history, TOOLS)
        history = [*history, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nok"}, USER]
        state = planner.plan("s", history, TOOLS)
        assert planner.prompt(state.instructions, state.state, "?").startswith(served(template, history, TOOLS))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for m in messages if m.role == 'user' %}[{{ m.content }}]{% endfor %}", "leaves out the system text"),
        ("{{ messages[0].content }}{% for m in messages %}[{{ m.content }}]{% endfor %}", "repeats the system text"),
        ("{% for m in messages | reverse %}[{{ m.content }}]{% endfor %}", "user text before the system text"),
        ("{{ raise_exception('no system role') }}", "no system role"),
    ],
)
def test_a_template_that_cannot_align_says_why(source, reason):
    """The operator would see a missing saving and no cause."""
    with pytest.raises(TemplateError, match=reason):
        learn(ChatTemplate(source))
    state = Planner(ChatTemplate(source)).plan("s", [SYSTEM, USER])
    assert state.kind == "json"
    assert reason in state.reason


@pytest.mark.parametrize("name", ["meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "openai-gpt-oss-120b"])
def test_templates_that_place_tools_elsewhere_fall_back_with_the_reason(name):
    """A prompt that does not share its front would be sent as aligned."""
    state = Planner(load(name)).plan("s", CONVERSATIONS["tool result last"], TOOLS)
    assert state.kind == "json"
    assert state.reason


def test_media_cannot_align():
    """systemone puts media first; the prompt would share nothing."""
    picture = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]}
    state = Planner(ChatTemplate(QWENISH)).plan("s", [SYSTEM, picture])
    assert state.kind == "json"
    assert "image_url" in state.reason


@given(st.lists(messages, max_size=8), st.lists(messages, max_size=4))
def test_json_states_are_append_only(history, news):
    """A sidecar's decisions would not share with each other."""
    longer = json_state([*history, *news], "x").state
    assert longer.startswith(json_state(history, "x").state)


def test_sessions_are_bounded():
    """Endless session keys would fill the memory."""
    planner = Planner(ChatTemplate(QWENISH), sessions=3)
    for n in range(10):
        planner.plan(str(n), [SYSTEM, USER])
    assert len(planner._sessions) == 3

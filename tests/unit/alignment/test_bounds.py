"""If these fail, a chat template from a stranger can hold up the replay or the gate, or fill the memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from warmgate.alignment import budget
from warmgate.alignment.building import ABSENT
from warmgate.alignment.template import CHATML, ChatTemplate, flat_content
from warmgate.errors import TemplateError

SHARED = Path(os.environ.get("WARMGATE_SHARED", Path(__file__).parents[4] / "shared")) / "templates"

USER = [{"role": "user", "content": "hello", "calls": [1, 2]}]

ENDLESS = {
    "loops": "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    "printing loops": "{% for a in range(90000) %}{% for b in range(90000) %}{{ a }}{{ b }}{% endfor %}{% endfor %}",
    "loop filters": "{% for a in range(90000) %}{% for b in range(90000) if b < 0 %}{% endfor %}{% endfor %}",
    "recursive loops": "{% for a in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "wide recursive loops": "{% for a in range(90000) recursive %}{{ loop(range(90000)) if a < 9 }}{% endfor %}",
    "macro": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "macro without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "caller": "{% macro m(n) %}{% if n %}{% call m(n - 1) %}{% endcall %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "block": "{% block b %}{{ self.b() }}{{ self.b() }}{% endblock %}",
    "lazy filters": "{% for a in range(90000) %}{% set x = range(90000) | select('gt', 90000) | list %}{% endfor %}",
    "first of a lazy filter": "{% for a in range(90000) %}{% set x = range(90000) | select('gt', 90000) | first %}{% endfor %}",
    "sums": "{% for a in range(90000) %}{% set x = range(90000) | sum %}{% endfor %}",
    "sorting": "{% for a in range(90000) %}{% set x = range(90000) | sort(reverse=true) %}{% endfor %}",
    "long texts compared": "{% set x = 'x' * 8000000 %}{% set y = 'x' * 8000000 %}{% for a in range(90000) %}{% for b in range(90000) %}{% if x == y %}{% endif %}{% endfor %}{% endfor %}",
    "long texts searched": "{% set x = 'x' * 8000000 %}{% for a in range(90000) %}{% if 'y' in x %}{% endif %}{% endfor %}",
    "long texts sliced": "{% set x = 'x' * 8000000 %}{% for a in range(90000) %}{% set y = x[1:] %}{% endfor %}",
    "long texts turned": "{% set x = 'x' * 8000000 %}{% for a in range(90000) %}{% set y = x | upper %}{% set y = x.lower() %}{% endfor %}",
    "long lists searched": "{% set x = range(90000) | list %}{% for a in range(90000) %}{% if -1 in x %}{% endif %}{% endfor %}",
    "long lists counted": "{% set x = range(90000) | list %}{% for a in range(90000) %}{% set y = x.count(-1) + x.index(89999) %}{% endfor %}",
}
VAST = {
    "times": "{{ 'x' * 2000000000 }}",
    "number times": "{{ 2000000000 * 'x' }}",
    "list times": "{{ ([1] * 2000000000) | length }}",
    "list of a list times": "{% set x = [1] * 100000 %}{{ ([x] * 100000) | tojson }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "big products": "{% set ns = namespace(x=9) %}{% for a in range(90) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "rounding": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "joining twice": "{% set ns = namespace(x='x') %}{% for a in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "adding twice": "{% set ns = namespace(x='x') %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "lists added twice": "{% set ns = namespace(x=[1]) %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "texts kept": "{% set ns = namespace(x=[], y='x' * 1000000) %}{% for a in range(90000) %}{% set ns.x = ns.x + [ns.y ~ a] %}{% endfor %}",
    "set block": "{% set x = 'x' * 4000000 %}{% set y %}{% for a in range(90000) %}{{ x | upper }}{% endfor %}{% endset %}",
    "macro's text": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='x') %}{% for a in range(90) %}{% set ns.x = m(ns.x) %}{% endfor %}",
    "block's text": "{% set x = 'x' * 4000000 %}{% block b scoped %}{% for a in range(90000) %}{{ x | upper }}{% endfor %}{% endblock %}{{ self.b() }}",
    "output": "{% set x = 'x' * 1000000 %}{% for a in range(90000) %}{{ x }}{% endfor %}",
    "output, turned": "{% set x = 'x' * 1000000 %}{% for a in range(90000) %}{{ x | upper }}{% endfor %}",
    "wide literal": "{% set x = 'x' * 8000000 %}{{ [" + "x, " * 4000 + "] | join }}",
    "wide tilde": "{% set x = 'x' * 8000000 %}{{ x" + " ~ x" * 4000 + " }}",
    "more parts than any template": "{{ " + "1 in [1] or " * 3000 + "1 }}",
    "lists of lists": "{% set ns = namespace(x=[1]) %}{% for a in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "objects of objects": "{% set ns = namespace(x={'a': 1}) %}{% for a in range(90) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
    "dict()": "{% set ns = namespace(x=dict(a=1)) %}{% for a in range(90) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x | tojson }}",
    "lists of defaults": "{% set ns = namespace(x=[1]) %}{% for a in range(90) %}{% set ns.x = range(2) | map(attribute='z', default=ns.x) | list %}{% endfor %}{{ ns.x }}",
    "varargs": "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}{{ m(90, 1) }}",
    "kwargs": "{% macro m(n) %}{% if n %}{{ m(n - 1, a=kwargs, b=kwargs) }}{% else %}{{ kwargs }}{% endif %}{% endmacro %}{{ m(90, a=1) }}",
    "ljust": "{{ 'x'.ljust(2000000000) }}",
    "zfill": "{{ 'x'.zfill(2000000000) }}",
    "expandtabs": "{{ ('\t' * 90000).expandtabs(90000) }}",
    "replace": "{{ ('x' * 90000).replace('x', 'y' * 90000) }}",
    "replace filter": "{{ ('x' * 90000) | replace('', 'y' * 90000) }}",
    "join": "{{ ('y' * 90000).join('x' * 90000) }}",
    "join filter": "{{ ('x' * 90000) | join('y' * 90000) }}",
    "join of lazy texts": "{{ range(90000) | map('string') | map('indent', 90000, true) | join }}",
    "translate": "{{ ('x' * 90000).translate({120: 'y' * 90000}) }}",
    "to_bytes": "{{ (1).to_bytes(2000000000, 'big') }}",
    "bytes": "{{ 'x'.encode().ljust(2000000000) }}",
    "format width": "{{ '{:>2000000000}'.format('x') }}",
    "format given width": "{{ '{:>{}}'.format('x', 2000000000) }}",
    "format fields": "{{ ('{0}' * 90000).format('x' * 90000) }}",
    "format_map": "{{ ('{a}' * 90000).format_map({'a': 'x' * 90000}) }}",
    "percent": "{{ '%2000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (2000000000, 1) }}",
    "format filter": "{{ '%2000000000d' | format(1) }}",
    "indent": "{{ 'x' | indent(2000000000, true) }}",
    "indent by text": "{{ ('\n' * 90000) | indent('x' * 90000) }}",
    "tojson indent": "{{ messages | tojson(indent=2000000000) }}",
    "split": "{{ ('x ' * 4000000).split(' ') | length }}",
    "list of a text": "{{ ('x' * 8000000) | list | length }}",
    "sum of lists": "{{ ([[1] * 90000] * 90000) | sum(start=[]) | length }}",
    "sum of texts": "{{ (['x' * 90000] * 90000) | sum(start='') | length }}",
    "lipsum": "{{ lipsum(1000000000) }}",
    "autoescape": "{% autoescape true %}{% set ns = namespace(x='<') %}{% for a in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}{% endautoescape %}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=list(ENDLESS))
def test_a_template_without_end_is_refused(source, monkeypatch):
    """The process would hang. (Bounds as they are take four seconds each; a tenth of them shows the same.)"""
    monkeypatch.setattr(budget, "STEPS", budget.STEPS // 10)
    monkeypatch.setattr(budget, "SECONDS", budget.SECONDS / 10)
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source).render(USER)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", VAST.values(), ids=list(VAST))
def test_a_template_that_builds_too_much_is_refused(source):
    """The process would be killed for its memory, with all that it holds."""
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source).render(USER)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_an_absent_filter_is_named(name):
    """Its author would look for the fault elsewhere."""
    with pytest.raises(TemplateError, match=f"No filter named '{name}'"):
        ChatTemplate(f"{{{{ messages[0].content | {name} }}}}")


def test_what_is_too_much_depends_on_the_conversation():
    """A long conversation would be refused for being long."""
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}{{ messages | tojson }}")
    assert len(template.render([{"role": "user", "content": "x" * 20_000_000}])) > 40_000_000
    looping = ChatTemplate(
        "{% for m in messages %}{% for n in messages[-30:] %}{% if n.content in m.content %}.{% endif %}{% endfor %}{% endfor %}"
    )
    assert len(looping.render([{"role": "user", "content": "x"}] * 20_000)) == 600_000


def test_two_renders_do_not_spend_each_others_budget():
    """Of a gate's many sessions one would be refused for what another spent."""
    template = ChatTemplate("{% for a in range(2000) %}{% for b in range(10) %}{% endfor %}{% endfor %}{{ messages[0].content }}")
    done: list[str] = []
    threads = [threading.Thread(target=lambda: done.append(template.render(USER) + template.render(USER))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == ["hellohello"] * 4


def test_namespaces_in_namespaces_print_short():
    """Their text would double with each."""
    source = "{% set ns = namespace(x=1) %}{% for a in range(90) %}{% set ns.x = namespace(x=ns.x, y=ns.x) %}{% endfor %}{{ ns.x }}"
    assert ChatTemplate(source).render(USER) == "<Namespace>"


def test_the_clock_is_the_last_resort(monkeypatch):
    """What is slow without being long would have no end."""
    monkeypatch.setattr(budget, "SECONDS", -1.0)
    with pytest.raises(TemplateError, match="takes too long"):
        ChatTemplate("{% for a in range(90000) %}{{ a }}{% endfor %}").render(USER)
    assert ChatTemplate.default().render(USER)  # too short for a look at the clock


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats(-9, 9) | st.text("ab <é\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "items", "content", "_x"]), inner, max_size=3),
    max_leaves=6,
)
EXPRESSIONS = [
    "v", "v.a", "v['a']", "v.items", "v.items()", "v._x", "v[0]", "v[:1]", "v[::-1]", "v + v", "v ~ v", "v * 2", "v % 2", "v == v", "v in v",
    "v | length", "v | first", "v | last", "v | list", "v | join(', ')", "v | join(', ', 'a')", "v | string", "v | upper", "v | trim", "v | default('d', true)",
    "v | tojson", "v | tojson(indent=2)", "v | replace('a', 'bb')", "v | indent(2)", "v | indent('> ', true)", "v | sum", "v | sum(start=1)", "v | reverse | list",
    "v | sort", "v | unique | list", "v | map('string') | list", "v | map(attribute='a') | list", "v | selectattr('a', 'defined') | list", "v | select('string') | list",
    "v | items | list", "v | dictsort", "v | int", "v | float", "v | round(1)", "v | abs", "v | title", "v | capitalize", "v | e", "v | urlencode", "v | truncate(3)",
    "v | wordcount", "v | groupby('a')", "v | min", "v | max", "v | attr('a')", "v | safe", "'%s' | format(v)", "'%s!' % v", "'{}'.format(v)", "v.split('a')",
    "v.strip()", "v.startswith('a')", "v.replace('a', 'b')", "v.get('a')", "v.get('zz', 1)", "v.join(['a', 'b'])", "v.keys() | list", "v is mapping", "v is string",
    "v is iterable", "[v, 1]", "{'k': v}", "(v, 1)", "dict(k=v)", "namespace(k=v).k", "v.upper()", "v.count('a')", "v.index('a')", "[v] + [1]", "v.nothing.here",
]  # fmt: skip
SHAPES = [
    "{{ %s }}",
    "{%% set x = %s %%}{{ x }}",
    "{%% for x in [1, 2] %%}{{ loop.index }}{{ %s }}{%% endfor %%}",
    "{%% for x in v if x is not none %%}{{ loop.length }}{{ %s }}{%% else %%}none{%% endfor %%}",
    "{%% macro m(v, k=1) %%}[{{ %s }}{{ varargs }}{{ caller() if caller }}]{%% endmacro %%}{{ m(v) }}{{ m(v, 2, 3) }}{%% call m(v) %%}c{%% endcall %%}",
    "{%% if %s %%}yes{%% elif v %%}other{%% else %%}no{%% endif %%}",
    "{%% set ns = namespace(x=0) %%}{%% for x in [1, 2] %%}{%% set ns.x = ns.x + x %%}{%% if x == 2 %%}{%% break %%}{%% endif %%}{%% endfor %%}{{ ns.x }}{{ ns.y }}{{ %s }}",
    "{%% set x %%}a{{ %s }}{%% endset %%}{{ x | length }}",
    "{%% filter upper %%}a{{ %s }}{%% endfilter %%}",
    "{%% for x in [[1, [2]], 3] recursive %%}{{ loop(x) if x is sequence else x }}{%% endfor %%}{{ %s }}",
    "{%% block b %%}{{ %s }}{%% endblock %%}{{ self.b() }}",
    "{%% with w = %s %%}{{ w }}{%% endwith %%}",
]


def plain(source, value):
    """As the sandbox alone renders it."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    import json

    environment.filters["tojson"] = lambda v, indent=None: json.dumps(v, ensure_ascii=False, indent=indent)
    try:
        return environment.from_string(source).render(v=value)
    except Exception:  # noqa: BLE001 -- whatever it is, ours must refuse too
        return None


@settings(max_examples=400, deadline=None)
@given(shape=st.sampled_from(SHAPES), expression=st.sampled_from(EXPRESSIONS), value=VALUES)
def test_what_is_within_bounds_prints_as_without_them(shape, expression, value):
    """Prompts would be rendered otherwise than the engine renders them."""
    source = shape % expression
    try:
        ours = ChatTemplate(source).render([], v=value)
    except TemplateError:
        ours = None
    assert ours == plain(source, value)


def test_the_default_template_prints_as_without_bounds():
    """Every replay without a template would be off."""
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, "b"]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, "é"]}}}]},
        {"role": "tool", "content": "r"},
    ]
    import json

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
    for tools in (None, [{"function": {"name": "f"}}]):
        expected = environment.from_string(CHATML).render(messages=messages, tools=tools, add_generation_prompt=True, flat=flat_content)
        assert ChatTemplate.default().render(messages, tools) == expected


@pytest.mark.parametrize(
    "name",
    ["messages", "tools", "add_generation_prompt", "self", "flat", "raise_exception", "strftime_now", "loop", "context", "environment"],
)
def test_a_request_cannot_take_the_templates_own_names(name):
    """One such argument in a trace would end the replay, or print another conversation."""
    expected = ChatTemplate.default().render(USER, None)
    assert ChatTemplate.default().render(USER, None, **{k: "x" for k in [name] if k != "add_generation_prompt"}) == expected
    echo = ChatTemplate("{{ messages[0].content }}{{ tools }}{{ enable_thinking }}")
    assert echo.render(USER, **{name: "x", "enable_thinking": False}) == "helloNoneFalse"


@pytest.mark.parametrize("path", sorted(SHARED.glob("*.jinja")), ids=lambda p: p.stem)
def test_published_templates_stay_far_below_their_bounds(path, monkeypatch):
    """A real conversation would be refused. (Runs where the shared template collection is present.)"""
    monkeypatch.setattr(budget, "STEPS", 400_000)
    monkeypatch.setattr(budget, "CHARACTERS", 4_000_000)
    template = ChatTemplate(path.read_text(), path.stem, {"bos_token": "<s>", "eos_token": "</s>"})
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "description": "d" * 200, "parameters": {"type": "object", "properties": {}}}}
        for n in range(20)
    ]
    messages = [{"role": "system", "content": "s" * 2000}]
    for n in range(100):
        call = {"id": f"call{n:05}", "type": "function", "function": {"name": "f1", "arguments": {"a": "b" * 100}}}
        messages += [
            {"role": "user", "content": "u" * 300},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call{n:05}", "name": "f1", "content": "r" * 1000},
            {"role": "assistant", "content": "a" * 500},
        ]
    assert len(template.render(messages, tools)) > 150_000

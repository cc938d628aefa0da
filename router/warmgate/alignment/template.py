"""Chat templates, rendered as serving engines render them.

Engines hand a chat template to Jinja in a sandbox with ``trim_blocks`` and ``lstrip_blocks`` on, loop controls, a ``tojson`` that
keeps unicode and key order, ``raise_exception`` and ``strftime_now`` (the conventions of Hugging Face's ``apply_chat_template``,
which vLLM calls in ``vllm/renderers``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from warmgate.errors import TemplateError
from warmgate.foreign import items, mapping, mappings, text

if TYPE_CHECKING:
    from jinja2 import Template

MAX_TEMPLATE_BYTES = 1 << 20
"""Larger files are not chat templates (the longest published ones have about 30 kB)."""

CHATML = """\
{%- set first = messages[0] if messages else none -%}
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if first and first.role in ('system', 'developer') -%}{{- flat(first.content) + '\\n\\n' -}}{%- endif -%}
{{- '# Tools\\n\\nCall a function by a JSON object inside <tool_call></tool_call>. Functions:\\n<tools>' -}}
{%- for tool in tools -%}{{- '\\n' -}}{{- tool | tojson -}}{%- endfor -%}
{{- '\\n</tools><|im_end|>\\n' -}}
{%- elif first and first.role in ('system', 'developer') -%}
{{- '<|im_start|>system\\n' + flat(first.content) + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if loop.first and message.role in ('system', 'developer') -%}
{%- elif message.role in ('tool', 'function') -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + flat(message.content) + '\\n</tool_response><|im_end|>\\n' -}}
{%- else -%}
{%- set text = flat(message.content) -%}
{%- set role = 'system' if message.role == 'developer' else message.role or 'user' -%}
{{- '<|im_start|>' + role + '\\n' + text -}}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{{- '\\n' if text or not loop.first -}}
{{- '<tool_call>\\n{"name": ' -}}{{- function.name | tojson -}}{{- ', "arguments": ' -}}
{{- function.arguments if function.arguments is string else function.arguments | tojson -}}{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""The template used when none is given: ChatML with tools at the front, as Qwen-style models place them. Our own wording."""

CHATML_MARKERS = ("<|im_start|>", "<|im_end|>")
"""Control tokens of :data:`CHATML`; an engine that serves it has them as single tokens."""


class ChatTemplate:
    """A chat template ready to render.

    Args:
        source: Jinja text.
        name: Shown in errors.
        special: Values of names such as ``bos_token`` that templates may print.

    Raises:
        TemplateError: The source is not a Jinja template.
    """

    def __init__(self, source: str, name: str = "chat template", special: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.name = name
        self.special = dict(special or {})
        self.appendable = source == CHATML
        """Whether a longer conversation's text begins with the shorter one's and goes on with the new messages rendered alone."""
        self._template = _compile(source, name)

    @classmethod
    def default(cls) -> ChatTemplate:
        """ChatML, for traces of which the real template is unknown."""
        return cls(CHATML, "ChatML")

    @classmethod
    def from_file(cls, path: str | Path) -> ChatTemplate:
        """Load a ``.jinja`` file, or the ``chat_template`` of a ``tokenizer_config.json``.

        Raises:
            TemplateError: The file cannot be read or holds no template.
        """
        path = Path(path)
        try:
            if not path.is_file():
                raise TemplateError("no such file", where=str(path), mend="--chat-template takes a .jinja file")
            if path.stat().st_size > MAX_TEMPLATE_BYTES:
                raise TemplateError("too large for a chat template", where=str(path))
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise TemplateError(f"cannot be read ({fault})", where=str(path)) from fault
        special: dict[str, str] = {}
        if path.suffix == ".json":
            text, special = _from_tokenizer_config(text, path)
        if not text.strip():
            raise TemplateError("the chat template is empty", where=str(path))
        return cls(text, str(path), special)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The prompt text of a chat request.

        Raises:
            TemplateError: The template refused the conversation or failed on it.
        """
        try:
            return self._template.render(
                **{
                    **self.special,
                    **kwargs,
                    "messages": messages,
                    "tools": tools or None,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except TemplateError as fault:
            raise TemplateError(fault.what, where=self.name) from None
        except RecursionError:
            raise TemplateError("the conversation is nested too deeply", where=self.name) from None
        except Exception as fault:
            raise TemplateError(f"cannot render this conversation: {fault}", where=self.name) from fault

    def check(self) -> None:
        """See that the template prints what it is given.

        Raises:
            TemplateError: It prints nothing of a plain user message, so every prompt would look alike.
        """
        probe = "@warmgate-probe@"
        try:
            text = self.render([{"role": "user", "content": probe}])
        except TemplateError:
            return  # it may want a longer conversation than this
        if probe not in text:
            raise TemplateError("prints nothing of the messages", where=self.name, mend="is it a chat template?")

    @cached_property
    def generation_prompt(self) -> str:
        """What ``add_generation_prompt`` appends to a one-message conversation; empty when the template ignores it."""
        probe = [{"role": "user", "content": "x"}]
        with_prompt, without = self.render(probe), self.render(probe, add_generation_prompt=False)
        return with_prompt[len(without) :] if with_prompt.startswith(without) else ""


def _from_tokenizer_config(source: str, path: Path) -> tuple[str, dict[str, str]]:
    try:
        config = mapping(json.loads(source))
    except (ValueError, RecursionError) as fault:
        raise TemplateError("not valid JSON", where=str(path)) from fault
    named = {text(t.get("name")): text(t.get("template")) for t in mappings(config.get("chat_template"))}
    template = text(config.get("chat_template")) or named.get("default")  # several named templates: the one called "default"
    if template is None:
        raise TemplateError("holds no chat_template", where=str(path), mend="hand in the model's chat_template.jinja")
    special: dict[str, str] = {}
    for key, value in config.items():
        content = text(value) or text(mapping(value).get("content"))
        if key.endswith("_token") and content is not None:
            special[key] = content
    return template, special


def _compile(source: str, name: str) -> Template:
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}…{% endgeneration %}`` marks the assistant's text for training; it renders as its body."""

        tags = {"generation"}  # noqa: RUF012 -- Jinja declares it so

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    names: dict[str, Any] = {"raise_exception": _refuse, "strftime_now": _strftime_now, "flat": flat_content}
    environment.globals.update(names)
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as fault:
        raise TemplateError(f"line {fault.lineno}: {fault.message}", where=name, mend="is it a Jinja chat template?") from fault
    except RecursionError:
        raise TemplateError("nested too deeply", where=name) from None


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(f"refuses the conversation: {message}")


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 -- templates print the local date, as engines do


def flat_content(content: Any) -> str:
    r"""The text of a message's ``content``: a string as it is, parts joined by newlines as vLLM joins them, anything else as JSON."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, (list, tuple)):
        return "\n".join(map(flat_part, items(content)))
    return json.dumps(content, ensure_ascii=False, default=str)


def flat_part(part: Any) -> str:
    """The text of one content part."""
    if isinstance(part, str):
        return part
    fields = mapping(part)
    for key in ("text", "content", "thinking", "refusal"):
        if (found := text(fields.get(key))) is not None:
            return found
    kind = text(fields.get("type"))
    return f"<|{kind}|>" if kind is not None else json.dumps(part, ensure_ascii=False, default=str)

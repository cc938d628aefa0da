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
from typing import TYPE_CHECKING, Any, NoReturn, cast

from warmgate.errors import TemplateError
from warmgate.foreign import items, mapping, mappings, text

if TYPE_CHECKING:
    from jinja2 import Template

    from warmgate.alignment.bounds import BoundedContext

MAX_TEMPLATE_BYTES = 1 << 20
"""Larger files are not chat templates (the longest published ones have about 30 kB)."""

MAX_CONFIG_BYTES = 16 << 20
"""Larger files are no tokenizer_config.json (those with thousands of added tokens have about 1 MB)."""

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


class TooCostly(TemplateError):
    """A rendering was stopped, since it would have cost too much (:mod:`warmgate.alignment.bounds`)."""


RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "self", "flat", "raise_exception", "strftime_now"})
"""Names in a template that its renderer decides. A request's own arguments by these names change nothing."""


def arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A request's template arguments without those that it cannot decide."""
    return {name: value for name, value in kwargs.items() if name not in RESERVED}


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
    def from_file(cls, path: str | Path, tokenizer: str | Path | None = None) -> ChatTemplate:
        """Load a ``.jinja`` file, or the ``chat_template`` of a ``tokenizer_config.json``.

        What a ``.jinja`` file prints by name (``bos_token``) comes from a ``tokenizer_config.json`` beside it, or beside the tokenizer.

        Args:
            path: The template's file.
            tokenizer: The tokenizer's file or folder, where one was named.

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
        else:
            special = _special_beside(path, *([] if tokenizer is None else [Path(tokenizer)]))
        if not text.strip():
            raise TemplateError("the chat template is empty", where=str(path))
        return cls(text, str(path), special)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        /,
        *,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The prompt text of a chat request, at a bounded cost (:mod:`warmgate.alignment.bounds`).

        Args:
            messages: The conversation.
            tools: Tool schemas in the order sent.
            add_generation_prompt: Whether the assistant's turn is opened at the end.
            kwargs: What the request hands to the template; :data:`RESERVED` names among them are left out, as engines decide these.

        Raises:
            TemplateError: The template refused the conversation, failed on it, or would cost too much.
        """
        given = {
            **self.special,
            **arguments(kwargs),
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
        }
        context = cast("BoundedContext", self._template.new_context(given))
        try:
            return context.budget.output(self._template.root_render_func(context))
        except TemplateError as fault:
            raise type(fault)(fault.what, where=self.name) from None
        except RecursionError:
            raise TemplateError(
                "the template calls itself without end, or the conversation is nested too deeply", where=self.name
            ) from None
        except MemoryError:
            raise TemplateError("takes more memory than there is", where=self.name) from None
        except Exception as fault:
            raise TemplateError(f"cannot render this conversation: {fault}", where=self.name) from fault

    def check(self) -> None:
        """See that the template prints what it is given.

        Raises:
            TemplateError: It prints nothing of a plain user message, so every prompt would look alike; or costs too much even there.
        """
        probe = "@warmgate-probe@"
        try:
            text = self.render([{"role": "user", "content": probe}])
        except TooCostly:
            raise
        except TemplateError:
            return  # it may want a longer conversation than this
        if probe not in text:
            raise TemplateError("prints nothing of the messages", where=self.name, mend="is it a chat template?")

    @cached_property
    def unset(self) -> list[str]:
        """Special tokens that the template prints by name, and that nobody gave: they print as nothing."""
        from jinja2.meta import find_undeclared_variables

        names = find_undeclared_variables(self._template.environment.parse(self.source))
        return sorted(name for name in names if name.endswith("_token") and name not in self.special)

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
    return template, _special(config)


def _special(config: Mapping[str, Any]) -> dict[str, str]:
    special: dict[str, str] = {}
    for key, value in config.items():
        content = text(value) or text(mapping(value).get("content"))
        if key.endswith("_token") and content is not None:
            special[key] = content
    return special


def _special_beside(*files: Path) -> dict[str, str]:
    """Special tokens of the first readable ``tokenizer_config.json`` beside one of ``files``; none where there is no such file."""
    for file in files:
        beside = (file if file.is_dir() else file.parent) / "tokenizer_config.json"
        try:
            if beside.stat().st_size <= MAX_CONFIG_BYTES:
                return _special(mapping(json.loads(beside.read_text(encoding="utf-8"))))
        except (OSError, ValueError, RecursionError):
            continue  # what the template then lacks is told by `ChatTemplate.unset`
    return {}


def _compile(source: str, name: str) -> Template:
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser

    from warmgate.alignment.bounds import BoundedEnvironment

    class Generation(Extension):
        """``{% generation %}…{% endgeneration %}`` marks the assistant's text for training; it renders as its body."""

        tags = {"generation"}  # noqa: RUF012 -- Jinja declares it so

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    if len(source) > MAX_TEMPLATE_BYTES:
        raise TemplateError("too large for a chat template", where=name)
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    names: dict[str, Any] = {"raise_exception": _refuse, "strftime_now": _strftime_now, "flat": flat_content}
    environment.globals.update(names)
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as fault:
        raise TemplateError(f"line {fault.lineno}: {fault.message}", where=name, mend="is it a Jinja chat template?") from fault
    except (RecursionError, MemoryError, SyntaxError):  # Python's compiler has limits of its own
        raise TemplateError("nested too deeply", where=name) from None


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

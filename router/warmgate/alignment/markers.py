r"""What control markup looks like: the families in wide use, a template's own, a tokenizer's added tokens, and what only imitates them.

The floor holds whatever the template. It is :data:`warmgate.questions.MARKUP` without what ordinary text is full of: elements of HTML
(``<s>``, ``<image>``, ``<audio>``, ``<video>``), XML words (``<tools>``, ``<thinking>``), pipes with blanks (``f <| g |> h``). Those count
only where the model's own template or tokenizer has them. Markup of other families in the floor (``[INST]`` to a Qwen) becomes no token
there, yet no ordinary text holds it either, and a gateway may serve another model tomorrow.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from warmgate.alignment.template import MAX_CONFIG_BYTES, ChatTemplate
from warmgate.foreign import mapping, mappings, text
from warmgate.questions import MARKUP

MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z][A-Z_]{1,30}\]|</?s>")
"""What control markup looks like in templates: ``<|im_start|>``, ``</think>``, ``[INST]``."""

FLOOR = re.compile(
    r"<\|[^\s<>|]{1,64}\|>|<｜[^\s<>｜]{1,64}｜>"  # <|im_end|> and its kin, DeepSeek's full-width bars
    r"|<\|[A-Za-z_]{1,40}>|<[A-Za-z_]{1,40}\|>"  # Gemma 4: <|turn>, <turn|>
    r"|</?(?:think|tool_calls?|tool_response|tool_result|start_of_turn|end_of_turn|bos|eos|pad|unk|mask|unused\d{1,5})>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|THINK)\]|<</?SYS>>"
)
"""Control markup of the families in use, as a tokenizer takes it."""

KNOWN = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_sep|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|python_tag|>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>", "<|tool_response>"),
    *("<tool_response|>", "<|channel>", "<channel|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|tool_response_start|>", "<|tool_response_end|>"),
    *("<|tool_call_start|>", "<|tool_call_end|>", "<tool_response>", "</tool_response>", "<tool_call>", "</tool_call>", "<think>"),
    *("</think>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜tool▁outputs▁end｜>"),
    *("<｜tool▁output▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁outputs▁begin｜>", "<<SYS>>", "<</SYS>>"),
)
"""Markup by name, looked for in other spellings too; a pattern would take ``f <| g |> h`` for one."""

UNKNOWN = {"bos_token": "<s>", "eos_token": "</s>"}
"""Added where a template prints one by a name whose value nobody gave, or where no template is known."""

OWN_OUTPUT = (
    *("think", "tool_call", "tool_calls", "tools", "function", "parameter", "arg_key", "arg_value", "THINK", "TOOL_CALLS"),
    *("|channel", "channel|", "|tool_call", "tool_call|", "|channel|", "|think|", "|python_tag|", "|tool_call_start|", "|tool_call_end|"),
)
"""Words of markup that a model's own messages hold rightly. Turn markup is never among them."""


def own_output(marker: str) -> bool:
    """Whether a model rightly writes it itself."""
    return marker.strip("</>[]").split("=")[0] in OWN_OUTPUT


def printed_by(template: ChatTemplate) -> Iterator[str]:
    """Control markup in a template's own text, turns of tools included: in what it prints and in the strings it compares with.

    A plain word (``<name>``, ``<IMPORTANT>``, examples of a call) is how a template words its instructions, not control markup: words
    count with a bar or an underscore, or where :data:`~warmgate.questions.MARKUP` has them.
    """
    from jinja2 import Environment, TemplateError, nodes
    from jinja2.ext import loopcontrols

    source = re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", template.source)
    try:
        tree = Environment(extensions=[loopcontrols]).parse(source)  # noqa: S701 -- parsed, never rendered
    except (TemplateError, RecursionError):
        yield from filter(_counts, MARKER.findall(template.source))
        names: set[str] = set(re.findall(r"\b(?:bos|eos)_token\b", template.source))
    else:
        for node in tree.find_all((nodes.TemplateData, nodes.Const)):
            value = node.data if isinstance(node, nodes.TemplateData) else getattr(node, "value", None)
            if isinstance(value, str):
                yield from filter(_counts, MARKER.findall(value))
        names = {node.name for node in tree.find_all(nodes.Name)}
    yield from template.special.values()
    yield from (token for name, token in UNKNOWN.items() if name in names and name not in template.special)


def added_tokens(file: Path) -> list[str]:
    """Added tokens of the ``tokenizer_config.json`` or ``tokenizer.json`` beside a template; empty where neither can be read.

    Tokens that are not special count where they look like markup: some vocabularies hold the elements of HTML.
    """
    for name in ("tokenizer_config.json", "tokenizer.json"):
        beside = file.parent / name
        try:
            if beside.stat().st_size > MAX_CONFIG_BYTES:
                continue
            config = mapping(json.loads(beside.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            continue
        rows = [*mapping(config.get("added_tokens_decoder")).values(), *mappings(config.get("added_tokens"))]
        found = [(text(mapping(row).get("content")), mapping(row).get("special")) for row in rows]
        if found:
            return [token for token, special in found if token and (special is True or _counts(token))]
    return []


def _counts(marker: str) -> bool:
    word = marker.strip("</>").split("=")[0]
    bar = "|" in word or "｜" in word
    return bar or marker.startswith("[") or (marker[-1:] == ">" and "_" in word and "=" not in marker) or bool(MARKUP.fullmatch(marker))


# -- what only looks like it ------------------------------------------------------------------------------------------------------------

_ALIKE = {
    **dict.fromkeys("＜‹〈⟨❮❬˂ᐸ《«", "<"),
    **dict.fromkeys("＞›〉⟩❯❭˃ᐳ》»", ">"),
    **dict.fromkeys("｜∣ǀ│┃¦❘❙⏐", "|"),
    **dict.fromkeys("［【〔⁅", "["),
    **dict.fromkeys("］】〕⁆", "]"),
    **dict.fromkeys("▁‗－‐‑‒–—-", "_"),
    **dict(zip("аеорсхіјѕухԁԛԝһкмнтвгᴀ", "aeopcxijsyxdqwhkmhtbra", strict=True)),
    **dict(zip("АЕОРСХІЈЅУКМНТВ", "AEOPCXIJSYKMHTB", strict=True)),
    **dict(zip("αειορυνκτχ", "aeiopuvktx", strict=True)),
    **dict(zip("ΑΕΙΟΡΝΚΤΧΒΗΜΖΥ", "AEIOPNKTXBHMZY", strict=True)),
    **dict(zip("ıɑɡℓ", "iagl", strict=True)),
}
"""Brackets, bars and letters taken for their ASCII twins."""

_ENTITY = re.compile(r"&(?:(lt|#0{0,6}60|#x0{0,6}3c)|(gt|#0{0,6}62|#x0{0,6}3e)|(?:vert|verbar|#0{0,6}124|#x0{0,6}7c));?", re.IGNORECASE)
_OPENING = re.compile(r"<(?!\\)|\[(?!\\)|&(?:lt|#0{0,6}60|#x0{0,6}3c);?(?!\\)", re.IGNORECASE)
_BLANKS = re.compile(r"(?<=[<|\[/])\s{1,8}|\s{1,8}(?=[|>\]])")
_REMEMBERED = 1 << 15


class _Twins(dict[int, str]):
    """Code point → what it is taken for; nothing for what prints nothing and for accents."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        made = "".join(_twin(c) for c in unicodedata.normalize("NFKD", _ALIKE.get(char, char)))
        if len(self) < _REMEMBERED:
            self[code] = made
        return made


def _twin(char: str) -> str:
    kind = unicodedata.category(char)
    silent = kind in ("Cf", "Mn", "Me") or (kind == "Cc" and char not in "\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85")
    return "" if silent else _ALIKE.get(char, char)


_TWINS = _Twins()


def fold(written: str) -> str:
    """One spelling for all that looks alike, case aside: compatibility forms, accents, invisible characters, brackets, entities, blanks."""
    folded = written.translate(_TWINS)
    if "&" in folded:
        folded = _ENTITY.sub(lambda m: "<" if m[1] else ">" if m[2] else "|", folded)
    return _BLANKS.sub("", folded)


def opens(written: str) -> str:
    r"""With a backslash behind everything that is, or is taken for, an opening bracket."""
    if not written.isascii():
        written = "".join(f"{c}\\" if not c.isascii() and _TWINS[ord(c)].endswith(("<", "[")) else c for c in written)
    return _OPENING.sub(lambda m: f"{m[0]}\\", written)

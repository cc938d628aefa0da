"""What may be asked of a worker: a choice, a yes or no, a score.

The JSON shape is the one of ``/v1/systemone`` and of question files::

    {"route": {"type": "choice", "instructions": "Which tools next?", "criteria": {"fs": "files", "web": null}},
     "shell": {"type": "noul",   "instructions": "Is a shell needed?", "criteria": {"true": "commands must run"}},
     "risk":  {"type": "score",  "instructions": "How risky?",         "criteria": ["none", "some", "high"]}}

``noul`` is the wire's word for a yes or no; ``predicate``, ``boolean`` and ``yes_no`` are read as it. Ids keep their order.

Ids, option names and level names are labels: one line, no control characters, no chat control markup, because state and
question share one user turn and markup inside a message becomes a control token. Other texts may have several lines but no markup
either. How many options, levels and questions go in one request depends on the dialect: :mod:`warmgate.engines.dialects`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag, TypeAdapter, ValidationError

from warmgate.errors import QuestionError, one_line

NOUL_WORDS = ("noul", "predicate", "boolean", "yes_no")
"""``type`` values read as noul: vLLM and TypeSafe, OpenAI, everyday JSON, SGLang."""

NAME_CHARS = 256
"""Longest id, option name or level name, in characters. Ours: a label is a name, a text belongs into its description."""

MARKUP = re.compile(
    r"<\|[^\n]{0,80}?\|>|<｜[^\n]{0,80}?｜>"  # <|im_end|> and its kin, DeepSeek's full-width bars
    r"|<\|[A-Za-z_]{1,40}>|<[A-Za-z_]{1,40}\|>"  # Gemma 4: <|turn>, <turn|>
    r"|</?(?:think|thinking|thought|tool_call|tool_calls|tool_response|tool_result|tools|start_of_turn|end_of_turn|s|bos|eos|pad|unk|mask"
    r"|image|audio|video|unused\d+)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|THINK)\]|<</?SYS>>",
    re.IGNORECASE,
)
"""Control tokens of the chat templates in use, written as text: a tokenizer would turn them back into control tokens."""

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # controls, bidi marks, surrogates, private use, line ends
_JOINERS = frozenset("\u200c\u200d")  # scripts and emoji need them inside a name


def check_name(name: object, *, field: str) -> str:
    """A name that may stand as a label: not blank, one line, no control characters or markup, at most :data:`NAME_CHARS` long.

    Raises:
        QuestionError: It may not; the message says why.
    """
    if not isinstance(name, str):
        raise QuestionError(f"a name must be text, not {type(name).__name__}", field=field)
    if not name or name != name.strip():
        raise QuestionError(f"the name {one_line(name, 40)!r} is blank or has space around it", field=field, mend="strip it")
    if len(name) > NAME_CHARS:
        raise QuestionError(
            f"the name {one_line(name, 40)!r} has {len(name)} characters, at most {NAME_CHARS}",
            field=field,
            limit=NAME_CHARS,
            mend="move the text into the description",
        )
    bad = next((c for c in name if unicodedata.category(c) in _UNPRINTABLE and c not in _JOINERS), None)
    if bad is not None:
        raise QuestionError(f"the name {name!r} has the character {bad!r}", field=field, mend="use one line of printable text")
    _refuse_markup(name, field)
    return name


def _text(value: object, field: str) -> object:
    """Text of any number of lines, without control characters or markup. Other types are left to pydantic's own check."""
    if isinstance(value, str):
        bad = next((c for c in value if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\r\t"), None)
        if bad is not None:
            raise QuestionError(f"the text has the control character {bad!r}", field=field, mend="remove it")
        _refuse_markup(value, field)
    return value


def _refuse_markup(text: str, field: str) -> None:
    found = MARKUP.search(text)
    if found is not None:
        raise QuestionError(
            f"has the chat control markup {found[0]!r}, which a tokenizer turns into a control token",
            field=field,
            mend="remove it or write it differently",
        )


def _options(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    options = dict(cast("Mapping[object, object]", value))
    if not options:
        raise QuestionError("needs at least one option", field="criteria", mend="criteria: option name → description or null")
    names: list[str] = []
    for name, description in options.items():
        names.append(check_name(name, field="criteria"))
        _text(description, f"criteria.{name}")
    _distinct(names)
    return options


def _levels(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    levels = cast("Sequence[object]", value)
    if len(levels) < 2:
        raise QuestionError("a scale needs at least two levels", field="criteria", limit=2, mend="ask a noul instead")
    names = tuple(check_name(name, field="criteria") for name in levels)
    _distinct(names)
    return names


def _distinct(names: Sequence[str]) -> None:
    """Names that differ in Unicode normal form alone look the same to people and to some servers."""
    seen: set[str] = set()
    for name in names:
        normal = unicodedata.normalize("NFC", name)
        if normal in seen:
            raise QuestionError(f"the name {name!r} stands twice", field="criteria", mend="give each its own name")
        seen.add(normal)


class _Question(BaseModel):
    """What the three kinds share. Frozen; unknown fields are refused, since one could change the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    instructions: Annotated[str, BeforeValidator(lambda text: _text(text, "instructions"))] = ""
    """The question itself, one or more lines of text."""

    if not TYPE_CHECKING:  # a type checker keeps the constructor that pydantic declares

        def __init__(self, **data: Any) -> None:
            try:
                super().__init__(**data)
            except ValidationError as fault:
                raise _refusal(fault, None) from None


class Choice(_Question):
    """Pick one of the options. The answer's value is the option's name.

    Raises:
        QuestionError: A name or a text cannot be asked.
    """

    type: Literal["choice"] = "choice"
    criteria: Annotated[dict[str, str | None], BeforeValidator(_options)]
    """Option name → what it means, or None. At least one; order is kept and is the order of the probabilities."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The option names in the order asked."""
        return tuple(self.criteria)


class NoulCriteria(BaseModel):
    """What yes and no mean, each optional."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    true: Annotated[str | None, BeforeValidator(lambda text: _text(text, "criteria.true"))] = None
    false: Annotated[str | None, BeforeValidator(lambda text: _text(text, "criteria.false"))] = None


class Noul(_Question):
    """A yes or no. The answer's value is the probability of yes.

    Raises:
        QuestionError: A text cannot be asked.
    """

    LABELS: ClassVar[tuple[str, str]] = ("yes", "no")

    type: Annotated[Literal["noul"], BeforeValidator(lambda word: "noul" if word in NOUL_WORDS else word)] = "noul"
    criteria: NoulCriteria | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Yes, then no."""
        return self.LABELS


class Score(_Question):
    """A place on an ordered scale. The answer's value is the expected level, counted from 0.

    Raises:
        QuestionError: A name or a text cannot be asked, or there are fewer than two distinct levels.
    """

    type: Literal["score"] = "score"
    criteria: Annotated[tuple[str, ...], BeforeValidator(_levels)]
    """The level names, from the first to the last of the scale."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The level names in order."""
        return self.criteria


def _kind(value: Any) -> str | None:
    word: object = cast("Mapping[str, object]", value).get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    if word in NOUL_WORDS:
        return "noul"
    return word if isinstance(word, str) else None


Question: TypeAlias = Annotated[
    Annotated[Choice, Tag("choice")] | Annotated[Noul, Tag("noul")] | Annotated[Score, Tag("score")],
    Discriminator(_kind, custom_error_type="type", custom_error_message="the type must be choice, noul or score"),
]
"""Any of the three, told apart by ``type``."""

_ONE = TypeAdapter[Question](Question)


def parse_questions(source: bytes | str | Mapping[str, Any]) -> dict[str, Question]:
    """Questions from the JSON shape ``{id: {type, instructions, criteria}}``, ids in their order.

    Args:
        source: JSON text, or the object already parsed; values may be question objects.

    Raises:
        QuestionError: Not JSON, an id given twice, no question at all, or one that cannot be asked; it names question and field.
    """
    data = _load(source) if isinstance(source, bytes | str) else source
    if not isinstance(data, Mapping):
        raise QuestionError("must be a JSON object of id → question", field="questions", mend='write {"id": {"type": …}}')
    if not data:
        raise QuestionError("needs at least one question", field="questions")
    questions: dict[str, Question] = {}
    for key, value in cast("Mapping[object, object]", data).items():
        id_ = check_name(key, field="id")
        try:
            questions[id_] = value if isinstance(value, Choice | Noul | Score) else _ONE.validate_python(value)
        except ValidationError as fault:
            raise _refusal(fault, id_) from None
        except QuestionError as fault:
            raise QuestionError(
                fault.what, question=id_, field=fault.field, limit=fault.limit, dialect=fault.dialect, mend=fault.mend
            ) from None
    return questions


def _load(text: bytes | str) -> object:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise QuestionError(f"the key {twice!r} stands twice in one object", field="questions", mend="rename one")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as fault:
        why = "nested too deeply" if isinstance(fault, RecursionError) else str(fault)
        raise QuestionError(f"not JSON ({one_line(why, 120)})", field="questions") from None


_PLAIN = {
    "tuple_type": "must be a list of level names, lowest first",
    "dict_type": "must be an object: option name → description or null",
    "extra_forbidden": "no such field",
    "missing": "is missing",
    "string_type": "must be text",
}
"""Pydantic speaks of Python's types; the user wrote JSON."""


def _refusal(fault: ValidationError, question: str | None) -> QuestionError:
    """The first thing pydantic found, in one line. Values are left out: they may be long or private."""
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    if question is not None and path[:1] in (["choice"], ["noul"], ["score"]):
        del path[0]  # the tag of the union, not a field
    return QuestionError(_PLAIN.get(first["type"], first["msg"]), question=question, field=".".join(path) or "type")

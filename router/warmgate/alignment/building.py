"""What in a template can build much out of little, each with a count of what it may build: methods of text, filters, formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import wraps
from typing import Any, TypeAlias, cast

from jinja2.filters import FILTERS, do_indent, make_attrgetter
from jinja2.runtime import Context
from jinja2.utils import pass_context

from warmgate.alignment.budget import PLAIN_NUMBER, Budget, is_dict
from warmgate.errors import TemplateError

Builder: TypeAlias = Callable[[Budget, Any, tuple[Any, ...], Mapping[str, Any]], tuple[Any, ...]]
"""Counts what a method of its second argument may build, and returns the arguments to call the method with."""

ABSENT = {"batch", "center", "filesizeformat", "pprint", "random", "slice", "striptags", "urlize", "wordwrap", "xmlattr"}
"""Filters of Jinja's that are left out."""

_QUICK = {"abs", "attr", "count", "d", "default", "first", "float", "int", "last", "length", "safe"}
"""Filters that neither walk through their input nor build anything."""

_TIMES = {"e": 6, "escape": 6, "forceescape": 6, "urlencode": 12, "list": 64, "sort": 64, "unique": 64, "wordcount": 64, "title": 64}
"""Characters that some filters may need for each character of a text."""


def filters() -> dict[str, Callable[..., Any]]:
    """Jinja's filters, each spending the budget of the render it runs in."""
    own: dict[str, Callable[..., Any]] = {
        "format": _format,
        "indent": _indent,
        "join": _join,
        "replace": _replace,
        "sum": _sum,
        "tojson": _tojson,
    }
    found: dict[str, Callable[..., Any]] = {}
    for name, function in FILTERS.items():
        given = cast("Callable[..., Any]", function)
        if name not in ABSENT:
            found[name] = given if name in _QUICK else pass_context(own[name]) if name in own else _bounded(name, given)
    found["round"] = _bounded("round", found["round"])
    return found


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that spends steps for its input and characters for its output."""
    wants = getattr(getattr(function, "jinja_pass_arg", None), "name", None)
    times = _TIMES.get(name, 0)

    @wraps(function)
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        if isinstance(value, str):
            budget.grow(len(value) * times)
        elif _sized(value):
            budget.tick(4 * len(value))
        _numbers(budget, args, kwargs)
        if wants is None:
            result = function(value, *args, **kwargs)
        else:
            lead = context if wants == "context" else context.eval_ctx if wants == "eval_context" else context.environment
            result = function(lead, value, *args, **kwargs)
        if isinstance(result, Generator):
            return budget.counted(cast("Iterable[Any]", result))
        if result is value:
            return result
        return budget.sliced(result) if _sized(value) and name != "map" else budget.kept(result)

    return pass_context(run)


def _budget(context: Any) -> Budget:
    return cast("Budget", context.budget)


def _sized(value: Any) -> bool:
    return isinstance(value, (str, list, tuple, dict, range))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 32


def _numbers(budget: Budget, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Large numbers among arguments may be widths."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, int) and value > PLAIN_NUMBER:
            budget.grow(value)


def _pads(budget: Budget, _owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    _numbers(budget, args, kwargs)
    return args


def _joins(budget: Budget, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    del kwargs
    if not args:
        return args
    parts = list(budget.counted(args[0]))
    budget.grow(sum(map(_size, parts)) + len(owner) * len(parts))
    return (parts, *args[1:])


def _replaces(budget: Budget, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    del kwargs
    if len(args) > 1:
        budget.grow(_replaced(owner, args[0], args[1]))
    return args


def _expands(budget: Budget, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    _numbers(budget, args, kwargs)
    budget.grow(len(owner) * next((v for v in (*args, *kwargs.values()) if isinstance(v, int)), 8))
    return args


def _translates(budget: Budget, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    del kwargs
    longest = max(map(_size, args[0].values()), default=1) if args and is_dict(args[0]) else 1
    budget.grow(len(owner) * longest)
    return args


def _formats(budget: Budget, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    budget.grow(_formatted(owner, (*args, *kwargs.values())))
    return args


def _splits(budget: Budget, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    del kwargs
    # at most a part for each separator, and an object for each part
    separator = args[0] if args and isinstance(args[0], (str, bytes)) and type(args[0]) is type(owner) and args[0] else None
    parts = owner.count(separator) if separator is not None else len(owner) // 2 if len(owner) > PLAIN_NUMBER else 0
    budget.grow(64 * parts)
    return args


BUILDERS: Mapping[str, Builder] = {
    "center": _pads,
    "ljust": _pads,
    "rjust": _pads,
    "zfill": _pads,
    "to_bytes": _pads,
    "join": _joins,
    "replace": _replaces,
    "expandtabs": _expands,
    "translate": _translates,
    "format": _formats,
    "format_map": _formats,
    "split": _splits,
    "rsplit": _splits,
    "splitlines": _splits,
}
"""Methods of text and numbers that can build more than they are given."""


def _replaced(text: Any, old: Any, new: Any) -> int:
    """Characters after a replacement of all; a text that is replaced by nothing stands between all characters."""
    if isinstance(text, (str, bytes)) and type(old) is type(text) and type(new) is type(text):
        found = cast("str", text)
        return len(found) + found.count(cast("str", old)) * len(cast("str", new))
    return 0


def _formatted(pattern: Any, values: Iterable[Any]) -> int:
    """At most how long a formatted text is: every field as long as all values together, or as the largest width.

    Raises:
        TemplateError: A width is itself a value.
    """
    written = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    if re.search(r"\{[^{}]*\{|%[^a-zA-Z%]*\*", written):
        raise TemplateError("formats with a width that is not written out")
    widest = max((int(width[:12]) for width in re.findall(r"\d+", written)), default=0)
    fields = written.count("{") + written.count("%")
    return len(written) + fields * (widest + sum(len(str(value)) for value in values))


def percent(budget: Budget, left: Any, right: Any) -> Any:
    """``left % right`` on text."""
    budget.grow(_formatted(left, [right]))
    return left % right


def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
    if args and kwargs:
        raise TypeError("can't handle positional and keyword arguments at the same time")
    return percent(_budget(context), str(value), kwargs or args)


def _indent(context: Context, s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if isinstance(s, str):
        _budget(context).grow(len(s) + (s.count("\n") + 2) * (len(width) if isinstance(width, str) else width))
    return do_indent(cast("str", s), width, first, blank)


def _join(context: Context, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    budget = _budget(context)
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    parts = list(budget.counted(value))
    between: list[Any] = [d] * (2 * len(parts) - 1) if parts else []
    between[::2] = parts
    return budget.joined(between)


def _replace(context: Context, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = str(s), str(old), str(new)
    _budget(context).grow(_replaced(text, old, new))
    return text.replace(old, new, -1 if count is None else count)


def _sum(context: Context, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    budget = _budget(context)
    if attribute is not None:
        iterable = map(make_attrgetter(context.environment, attribute), iterable)
    for one in budget.counted(iterable):
        start = budget.kept(start + one)
    return start


def _tojson(context: Context, value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    """As ``apply_chat_template`` prints JSON: unicode and key order kept, nothing escaped for HTML."""
    budget = _budget(context)
    if not indent:
        shown = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
        budget.grow(len(shown))
        return shown
    _numbers(budget, (indent,), {})
    return budget.output(json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent).iterencode(value))

"""Looking into JSON that others wrote, where any value may have any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

_T = TypeVar("_T")


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """``value`` if it is a list, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; whatever else is in it is left out."""
    return [mapping(one) for one in items(value) if isinstance(one, Mapping)]


def text(value: Any) -> str | None:
    """``value`` if it is text, else ``None``."""
    return value if isinstance(value, str) else None


def sendable(value: _T) -> _T:
    """``value``, with U+FFFD for each half of a surrogate pair that stands alone, in all its texts and keys.

    A text cut at the wrong place (an emoji in UTF-16) holds such a half. UTF-8 has no way of sending it, and no tokenizer takes it. Two
    halves that belong together become their character. The same object where there is nothing to mend; what is no JSON stays as it is.
    """
    if isinstance(value, str) and value.isascii():
        return value
    try:
        msgspec.json.encode(value)
    except RecursionError:
        return value
    except (TypeError, ValueError, OverflowError):
        try:
            return cast("_T", _mended(value))
        except RecursionError:
            return value
    return value


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {_mended(key): _mended(one) for key, one in mapping(value).items()}
    if isinstance(value, (list, tuple)):
        return [_mended(one) for one in items(value)]
    return value

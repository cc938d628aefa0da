"""Looking into JSON that others wrote, where any value may have any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


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

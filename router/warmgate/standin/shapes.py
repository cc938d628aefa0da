"""Telling JSON values apart: a value as an object or a list, or nothing."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)


def as_object(value: object) -> dict[str, Any]:
    """The value if it is a JSON object (the same object, to be changed in place), else an empty one."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array (the same list), else an empty one."""
    return value if is_list(value) else []

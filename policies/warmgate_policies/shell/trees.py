"""Reading shfmt's JSON tree: children, names and places of a node."""

from __future__ import annotations

from typing import Any, cast

Tree = dict[str, Any]
"""A node; its ``Type`` says which, where several are possible."""


def kids(node: Tree, key: str) -> list[Tree]:
    """The nodes under ``key``; none where it is absent."""
    return cast("list[Tree]", node.get(key) or [])


def kid(node: Tree, key: str) -> Tree:
    """The node under ``key``; an empty one where it is absent."""
    return cast("Tree", node.get(key) or {})


def span(node: Tree) -> tuple[int, int]:
    """Byte offsets of a node, from and to."""
    return int(kid(node, "Pos").get("Offset", 0)), int(kid(node, "End").get("Offset", 0))


def value(node: Tree, key: str = "Value") -> str:
    """A node's text; with ``key`` that of the literal under it."""
    if key == "Value":
        return str(node.get("Value") or "")
    return str(kid(node, key).get("Value") or "")


def items(value: object) -> list[Any]:
    """A value already known to be a list, for type checkers."""
    return cast("list[Any]", value)

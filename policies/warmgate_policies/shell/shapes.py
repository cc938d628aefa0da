"""Shapes of the shell's syntax that the run asks about: endless loops, jobs, breaks, code in quotes."""

from __future__ import annotations

import re
from typing import Any, cast

from warmgate_policies.shell.findings import UNKNOWN, Arg
from warmgate_policies.shell.trees import Tree, items, kid, kids
from warmgate_policies.shell.words import Value


def chdirs(stmt: Tree) -> bool:
    """Whether the statement is a plain cd, so that what follows ``&&`` runs only behind it."""
    command = kid(stmt, "Cmd")
    if command.get("Type") == "BinaryCmd" and command.get("Op") == "&&":
        return chdirs(command["Y"]) or chdirs(command["X"])
    return command.get("Type") == "CallExpr" and first_word(stmt) in ("cd", "pushd")


def first_word(stmt: Tree) -> str:
    """The first word of a simple command, as far as it is literal."""
    command = kid(stmt, "Cmd")
    args: list[Tree] = kids(command, "Args")
    if not args or command.get("Type") != "CallExpr":
        return ""
    return "".join(str(part.get("Value", "")) for part in kids(args[0], "Parts"))


def loop_value(item: Arg) -> Value:
    """What a loop variable holds for one item of the list."""
    if item.known and not item.glob:
        return Value(item.text, tags=item.tags)
    if item.glob and UNKNOWN not in item.text:
        return Value(UNKNOWN, "path", item.text, item.tags)
    return Value(UNKNOWN, item.shape, item.pattern, item.tags)


def endless(node: Tree) -> bool:
    """Whether the condition of a ``while`` or ``until`` is always met."""
    conditions: list[Tree] = kids(node, "Cond")
    if len(conditions) != 1:
        return False
    word = first_word(conditions[0])
    return word == "false" if node.get("Until") else word in (":", "true", "1")


def starts_jobs(node: object) -> bool:
    """Whether anything below the node runs in the background."""
    if isinstance(node, list):
        return any(starts_jobs(item) for item in items(cast("object", node)))
    if not isinstance(node, dict):
        return False
    tree = cast("Tree", node)
    return bool(tree.get("Background")) or any(starts_jobs(value) for value in tree.values())


def breaks(stmts: Any) -> bool:
    """Whether the statements can leave the loop around them."""
    return any(part in ("break", "exit", "return") for part in flat(stmts))


def flat(node: Any) -> list[str]:
    """The literal words below a node in order, with the operators between commands."""
    parts: list[str] = []
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(items(cast("object", item))))
        elif isinstance(item, dict):
            tree = cast("Tree", item)
            if tree.get("Type") == "Lit":
                parts.append(str(tree.get("Value", "")))
            if tree.get("Type") == "BinaryCmd":
                stack.extend([tree.get("Y"), _Mark(str(tree.get("Op"))), tree.get("X")])
                continue
            if tree.get("Background"):
                stack.append(_Mark("&"))
            stack.extend(value for key, value in reversed(tree.items()) if key not in ("Pos", "End"))
        elif isinstance(item, _Mark):
            parts.append(item)
    return parts


class _Mark(str):
    __slots__ = ()


def arithmetic_name(node: Any) -> str | None:
    """The variable that an arithmetic expression assigns."""
    if not isinstance(node, dict):
        return None
    tree = cast("Tree", node)
    if tree.get("Type") in ("UnaryArithm", "BinaryArithm") and ("=" in str(tree.get("Op")) or str(tree.get("Op")) in ("++", "--")):
        parts = kids(kid(tree, "X"), "Parts")
        return str(parts[0].get("Value")) if len(parts) == 1 and parts[0].get("Type") == "Lit" else None
    return None


def quoted_code(node: object) -> bool:
    """Whether a quoted or escaped part holds a substitution."""
    if isinstance(node, list):
        return any(quoted_code(item) for item in items(cast("object", node)))
    if not isinstance(node, dict):
        return False
    tree = cast("Tree", node)
    if tree.get("Type") == "SglQuoted":
        return re.search(r"\$\(|`|\$\{", str(tree.get("Value", ""))) is not None
    if tree.get("Type") == "Lit" and re.search(r"\\[$`]", str(tree.get("Value", ""))):
        return True
    return any(quoted_code(value) for key, value in tree.items() if key not in ("Pos", "End"))


def test_words(node: Any) -> list[Tree]:
    """The words of ``[[ … ]]``."""
    if not isinstance(node, dict):
        return []
    tree = cast("Tree", node)
    if tree.get("Type") == "Word" or "Parts" in tree:
        return [tree]
    return [word for key in ("X", "Y") for word in test_words(tree.get(key))]

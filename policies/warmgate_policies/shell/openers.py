"""Does the tree account for every place where something could start to run?

Three checks that do not trust the parser: every opener (backtick, ``$(``, ``${``, ``$[``, ``<(``, ``>(``) outside proven-inert text is the
start of a node; no comment swallows a line and no line continuation joins two tokens; a second parser sees no command that the
first missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from warmgate_policies.shell.trees import Tree, items, kid, kids

_OPENER = re.compile(rb"`|\$[({\[]|[<>]\(")
_UNDONE_IN_TICKS = re.compile(rb"\\[\\$`\"]")
"""Between backticks bash takes these backslashes off first, in single quotes too, once for each nesting; parsers differ in how."""
_HEADS = {"CmdSubst": "Left", "ParamExp": "Dollar", "ArithmExp": "Left", "ProcSubst": "OpPos"}


def nodes(tree: Any) -> Iterator[Tree]:
    """Every object of the tree, iteratively: depth must not be a way to crash."""
    stack: list[Any] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            found = cast("Tree", item)
            yield found
            stack.extend(found.values())
        elif isinstance(item, list):
            stack.extend(items(cast("object", item)))


def _at(node: Tree, key: str) -> int:
    return int(node.get(key, {}).get("Offset", 0))


def doubts_of(source: bytes, tree: Tree) -> tuple[list[str], bool]:
    """What speaks against the tree, and whether a line continuation joins tokens."""
    starts: set[int] = set()
    inert: list[tuple[int, int]] = []
    commands: set[int] = set()
    doubts: list[str] = []
    closers: set[int] = set()
    arithmetic: list[tuple[int, int]] = []
    for node in nodes(tree):
        kind = node.get("Type")
        if kind in _HEADS:
            starts.add(_at(node, _HEADS[kind]))
            starts.add(_at(node, "Pos"))
            if node.get("Backquotes"):
                closers.add(_at(node, "Right"))
                if _UNDONE_IN_TICKS.search(source, _at(node, "Left"), _at(node, "Right")):
                    doubts.append("backslashes between backticks can be read in two ways")
            if kind == "ArithmExp":
                arithmetic.append((_at(node, "Pos"), _at(node, "End")))
        elif kind == "SglQuoted":
            inert.append((_at(node, "Pos"), _at(node, "End")))
        elif kind in ("CallExpr", "DeclClause", "TestClause", "LetClause", "TimeClause", "CoprocClause"):
            commands.add(_at(node, "Pos"))
            for word in kids(node, "Args"):
                commands.add(_at(word, "Pos"))
        if "Hash" in node and "Text" in node:
            body = str(node["Text"])
            begin = _at(node, "Hash")
            stop = source.find(b"\n", begin)
            if "\n" in body or body.endswith(("\\", "\r")):
                doubts.append("a comment may hide the line after it")
            inert.append((begin, len(source) if stop < 0 else stop))
        if "Hdoc" in node and _quoted(kid(node, "Word")):
            body = node["Hdoc"]
            inert.append((_at(body, "Pos"), _at(body, "End")))
    inert.sort()
    _openers(source, starts, closers, inert, doubts)
    continued = _continuations(source, inert, doubts)
    _second(source, starts, commands, inert, sorted(arithmetic), doubts)
    return list(dict.fromkeys(doubts)), continued


def _quoted(word: Tree) -> bool:
    return any(part.get("Type") in ("SglQuoted", "DblQuoted") or "\\" in str(part.get("Value", "")) for part in kids(word, "Parts"))


def _inside(at: int, ranges: list[tuple[int, int]]) -> bool:
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][0] <= at:
            low = middle + 1
        else:
            high = middle
    return any(start <= at < end for start, end in ranges[max(0, low - 8) : low])


def _escapes(source: bytes, at: int) -> int:
    count = 0
    while at - count - 1 >= 0 and source[at - count - 1] == 0x5C:
        count += 1
    return count


def _openers(source: bytes, starts: set[int], closers: set[int], inert: list[tuple[int, int]], doubts: list[str]) -> None:
    in_ticks = False
    for found in _OPENER.finditer(source):
        at = found.start()
        if at in starts or at in closers:
            if source[at] == 0x60:
                in_ticks = at in starts and at not in closers
            continue
        if _inside(at, inert):
            continue
        escaped = _escapes(source, at)
        if escaped % 2 == 1 and not (in_ticks and source[at] == 0x60):
            continue
        if source[at : at + 1] in b"<>" and not _bare(source, at):
            continue
        doubts.append("an expansion starts where the parser sees none")
        return


def _bare(source: bytes, at: int) -> bool:
    """Whether ``<(`` can be a process substitution here. Inside double quotes it is text: an odd count of them on the line."""
    line = source[source.rfind(b"\n", 0, at) + 1 : at]
    return len(re.findall(rb'(?<!\\)"', line)) % 2 == 0


def _continuations(source: bytes, inert: list[tuple[int, int]], doubts: list[str]) -> bool:
    at = source.find(b"\\\n")
    while at >= 0:
        if not _inside(at, inert) and _escapes(source, at) % 2 == 0 and at > 0 and source[at - 1] not in b" \t\n":
            doubts.append("a line continuation joins two parts of a word")
            return True
        at = source.find(b"\\\n", at + 2)
    return False


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _second(
    source: bytes, starts: set[int], commands: set[int], inert: list[tuple[int, int]], arithmetic: list[tuple[int, int]], doubts: list[str]
) -> None:
    """The second parser's commands must be known to the first. It errs more often: heard only where it read all without an error."""
    root = _parser().parse(source).root_node
    if root.has_error:
        return
    cursor = root.walk()
    while True:
        node = cursor.node
        kind = node.type
        if kind in ("command_name", "command_substitution", "process_substitution"):
            at = node.start_byte
            known = at in (commands if kind == "command_name" else starts)
            numbers = kind == "command_name" and _inside(at, arithmetic)  # it reads $(( in a here-document as a subshell
            if not known and not numbers and not _inside(at, inert):
                doubts.append("two parsers disagree about what the command runs")
                return
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while True:
            if not cursor.goto_parent():
                return
            if cursor.goto_next_sibling():
                break

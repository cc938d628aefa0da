"""sed scripts: a small language whose ``e``, ``w`` and ``r`` reach outside; anything that does not parse is asked about."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import UNKNOWN, Arg

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_PLAIN = set("{}=dDgGhHnNpPqQxlFz")


class _Unreadable(Exception):
    pass


def judge(walker: Walker, script: Arg, who: str) -> None:
    """Judge a sed script."""
    text = script.text
    if UNKNOWN in text:
        if script.shape != "number":
            walker.find("ask", "dynamic.code", f"{who} runs a script that the text does not fix", script.start, script.end)
            return
        text = text.replace(UNKNOWN, "1")
    try:
        _commands(walker, text, script, who)
    except (_Unreadable, IndexError):
        walker.find("ask", "code.sed", f"{who} is given a script that cannot be read with certainty", script.start, script.end)


def _skip(pattern: str, text: str, at: int) -> int:
    """Behind what the pattern takes from here on."""
    found = re.compile(pattern).match(text, at)
    return found.end() if found is not None else at


def _delimited(text: str, at: int, mark: str) -> tuple[str, int]:
    """Up to the next unescaped mark. Brackets protect nothing here: that they do in patterns is :func:`_pattern`."""
    start = at
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == mark:
            return text[start:at], at + 1
        at += 1
    raise _Unreadable


def _pattern(text: str, at: int, mark: str) -> tuple[str, int]:
    start = at
    inside = False
    while at < len(text):
        char = text[at]
        if char == "\\" and not inside:
            at += 2
            continue
        if char == "[" and not inside:
            inside = True
            at += 1
            if at < len(text) and text[at] == "^":
                at += 1
            if at < len(text) and text[at] == "]":
                at += 1
            continue
        if char == "]" and inside:
            inside = False
        elif char == mark:
            if inside:
                raise _Unreadable  # implementations differ about a delimiter inside brackets
            return text[start:at], at + 1
        at += 1
    raise _Unreadable


def _address(text: str, at: int) -> int:
    while True:
        found = re.compile(r"\d+(~\d+)?|\$|[+~]\d+").match(text, at)
        if found:
            at = found.end()
        elif text[at : at + 1] == "/":
            _, at = _pattern(text, at + 1, "/")
            at = _skip(r"[IM]*", text, at)
        elif text[at : at + 1] == "\\" and at + 1 < len(text):
            _, at = _pattern(text, at + 2, text[at + 1])
            at = _skip(r"[IM]*", text, at)
        blank = re.compile(r"\s*,\s*").match(text, at)
        if blank:
            at = blank.end()
            continue
        return _skip(r"\s*!*\s*", text, at)


def _commands(walker: Walker, text: str, script: Arg, who: str) -> None:
    at = 0
    while at < len(text):
        at = _skip(r"[\s;]*", text, at)
        if at >= len(text):
            return
        if text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        at = _address(text, at)
        if at >= len(text):
            raise _Unreadable
        command = text[at]
        at += 1
        if command in "{}":
            continue
        if command == "s":
            at = _substitute(walker, text, at, script, who)
        elif command == "y":
            mark = text[at]
            _, at = _delimited(text, at + 1, mark)
            _, at = _delimited(text, at, mark)
        elif command in "aic":
            end = at
            while True:
                end = text.find("\n", end)
                if end < 0 or text[end - 1] != "\\":
                    break
                end += 1
            at = len(text) if end < 0 else end
        elif command in "btT:":
            at = _skip(r"[^;\n}]*", text, at)
        elif command in "rRwWe":
            end = text.find("\n", at)
            rest = text[at:] if end < 0 else text[at:end]
            at = len(text) if end < 0 else end
            _reach(walker, command, rest.strip(), script, who)
        elif command in _PLAIN:
            at = _skip(r"[ \t]*\d*", text, at)
        else:
            raise _Unreadable
        after = _skip(r"[ \t]*", text, at)
        if after < len(text) and text[after] not in ";\n}#":
            raise _Unreadable
        at = after


def _reach(walker: Walker, command: str, rest: str, script: Arg, who: str) -> None:
    if command == "e":
        walker.find("deny", "conceal.tool", f"{who} runs a program from its script", script.start, script.end)
        if rest:
            walker.code(rest, replace(script, text=rest))
    elif command in "rR":
        roles.read(walker, replace(script, text=rest), who)
    else:
        roles.write(walker, replace(script, text=rest, shape=None), who)


def _substitute(walker: Walker, text: str, at: int, script: Arg, who: str) -> int:
    mark = text[at]
    if mark in "\n\\":
        raise _Unreadable
    _, at = _pattern(text, at + 1, mark)
    _, at = _delimited(text, at, mark)
    while at < len(text) and text[at] in "gpiImMe0123456789w":
        flag = text[at]
        at += 1
        if flag == "e":
            walker.find("deny", "conceal.tool", f"{who} runs what it substitutes", script.start, script.end)
        elif flag == "w":
            end = text.find("\n", at)
            rest = text[at:] if end < 0 else text[at:end]
            _reach(walker, "w", rest.strip(), script, who)
            return len(text) if end < 0 else end
    return at

"""awk programs: strings and patterns taken out, what is left may not run, pipe, load or write elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import UNKNOWN, Arg

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|#[^\n]*|\w+|\|\||&&|>>|>=|<=|[^\s\w]|\n')


def judge(walker: Walker, program: Arg, who: str) -> None:
    """Judge an awk program."""
    text = program.text
    if UNKNOWN in text:
        if program.shape != "number":
            walker.find("ask", "dynamic.code", f"{who} runs a program that the text does not fix", program.start, program.end)
            return
        text = text.replace(UNKNOWN, "1")
    words = _tokens(text)
    if words is None:
        walker.find("ask", "code.awk", f"{who} is given a program that cannot be read with certainty", program.start, program.end)
        return
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        before = words[index - 1] if index else ""
        if word == "system":
            literal = words[index + 2] if index + 3 < len(words) and words[index + 1] == "(" and words[index + 3] == ")" else ""
            if literal.startswith('"'):
                walker.code(_text(literal), replace(program, text=_text(literal)))
            walker.find(
                "deny" if literal.startswith('"') else "ask",
                "conceal.tool",
                f"{who} runs a program from its script",
                program.start,
                program.end,
            )
        elif word == "|":
            literal = following if following.startswith('"') else before if before.startswith('"') else ""
            if literal in ('"sort"', '"sort -n"', '"sort -rn"', '"sort -nr"', '"cat"', '"cat 1>&2"', '"sort -u"'):
                continue
            if literal:
                walker.code(_text(literal), replace(program, text=_text(literal)))
                walker.find("deny", "conceal.tool", f"{who} pipes to or from a program", program.start, program.end)
            else:
                walker.find("ask", "conceal.tool", f"{who} pipes to or from a program", program.start, program.end)
        elif word in ("ARGV", "ARGC") and "=" in words[index : index + 6]:
            walker.find("ask", "code.awk", f"{who} chooses by its script which files it reads", program.start, program.end)
        elif word in ("ENVIRON", "PROCINFO"):
            walker.find("ask", "env.dump", f"{who} shows the environment", program.start, program.end)
        elif word == "@" or word.startswith("@"):
            walker.find("ask", "code.awk", f"{who} loads or calls what its text does not fix", program.start, program.end)
        elif word in (">", ">>") and _prints(words, index):
            _target(walker, program, words, index, who, append=word == ">>")
        elif word == "getline" and following == "<":
            literal = words[index + 2] if index + 2 < len(words) else ""
            _file(walker, program, literal, who)
        elif word == "<" and index and words[index - 2 : index - 1] == ["getline"]:
            _file(walker, program, following, who)


def _file(walker: Walker, program: Arg, literal: str, who: str) -> None:
    if literal.startswith('"'):
        roles.read(walker, replace(program, text=_text(literal)), who)
    else:
        walker.find("ask", "dynamic.target", f"{who} reads a file that its text does not fix", program.start, program.end)


def _target(walker: Walker, program: Arg, words: list[str], index: int, who: str, *, append: bool) -> None:
    literal = words[index + 1] if index + 1 < len(words) else ""
    after = words[index + 2] if index + 2 < len(words) else "}"
    if literal.startswith('"') and after in ("}", ";", "\n", ")"):
        roles.write(walker, replace(program, text=_text(literal), shape=None), who, append=append)
    else:
        walker.find("ask", "dynamic.target", f"{who} writes to a file that its text does not fix", program.start, program.end)


def _prints(words: list[str], index: int) -> bool:
    """Whether this ``>`` is a redirect: behind ``print`` in the same statement, outside brackets."""
    depth = 0
    for word in reversed(words[:index]):
        if word in (")", "]"):
            depth += 1
        elif word in ("(", "["):
            depth -= 1
            if depth < 0:
                return False
        elif word in (";", "{", "}", "\n") and depth == 0:
            return False
        elif word in ("print", "printf") and depth == 0:
            return True
    return False


def _text(literal: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), literal[1:-1])


def _tokens(text: str) -> list[str] | None:
    """Tokens without patterns and comments; None where a slash is neither surely a division nor surely a pattern."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\r":
            at += 1
            continue
        if text.startswith("\\\n", at):
            at += 2
            continue
        if text[at] == "/" and (
            not found or found[-1] in ("(", ",", "~", "!", "&&", "||", "{", "}", ";", "\n", "|", "in", "print", "return", "=")
        ):
            end = at + 1
            bracket = False
            while end < len(text) and (text[end] != "/" or bracket):
                if text[end] == "\\":
                    end += 1
                elif text[end] == "[":
                    bracket = True
                elif text[end] == "]":
                    bracket = False
                elif text[end] == "\n":
                    return None
                end += 1
            if end >= len(text):
                return None
            found.append("/re/")
            at = end + 1
            continue
        match = _TOKEN.match(text, at)
        if match is None or match.group() == '"':
            return None
        if not match.group().startswith("#"):
            found.append(match.group())
        at = match.end()
    return found

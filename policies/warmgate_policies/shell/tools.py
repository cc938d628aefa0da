"""The operator's word on tools that are no shell: which may be called, which are asked about, which are refused, by the name alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from warmgate.decision import Word
from warmgate.errors import OptionError, one_line
from warmgate.policy import Judgement

MAX_NAME = 200
"""Characters of a name or pattern in a list; model APIs end at 64 or 128."""
REASONS: dict[Word, str] = {
    "allow": "the operator allows the tool {name}",
    "ask": "the operator wants to be asked about the tool {name}",
    "deny": "the operator refuses the tool {name}",
}
_RUNS_COMMANDS = re.compile(r"(?i)bash|shell|exec|command|terminal|\bcmd|(^|[_.])(sh|run)([_.]|$)")
_NAME = re.compile(r"[\w.:/@*?\[\]!-]+")


def spellings(name: str) -> tuple[str, ...]:
    """The name of a tool of an MCP server both as hosts write it (``mcp__server__tool``) and as people do (``server.tool``)."""
    if name.startswith("mcp__") and "__" in name[5:]:
        return name, ".".join(name[5:].split("__", 1))
    if "." in name:
        return name, "mcp__" + "__".join(name.split(".", 1))
    return (name,)


@dataclass(frozen=True, slots=True)
class ToolWords:
    """Names or globs of tools under each word; deny counts before ask, ask before allow. Names are told apart by case.

    Raises:
        OptionError: A name that no tool can have, or one that takes shell commands: those are judged one by one.
    """

    shells: frozenset[str]
    deny: Sequence[str] = ()
    ask: Sequence[str] = ()
    allow: Sequence[str] = ()

    def __post_init__(self) -> None:
        for word, names in self._lists():
            for name in names:
                _check(name, f"shell_options.{word}_tools", self.shells, covers=word != "allow")

    def _lists(self) -> tuple[tuple[Word, Sequence[str]], ...]:
        return ("deny", self.deny), ("ask", self.ask), ("allow", self.allow)

    @property
    def version(self) -> str:
        """Changes with any list; empty without any."""
        if not (self.deny or self.ask or self.allow):
            return ""
        text = "\n".join(f"{word} {name}" for word, names in self._lists() for name in sorted(set(names)))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def judge(self, name: str) -> Judgement | None:
        """The operator's word on a tool; None where none of the lists names it."""
        for word, patterns in self._lists():
            if any(_covers(pattern, name, widely=word != "allow") for pattern in patterns):
                return Judgement(word, REASONS[word].format(name=one_line(name, 60)), "operator.tool")
        return None


def _covers(pattern: str, name: str, *, widely: bool) -> bool:
    """Whether a pattern is about the tool. A pattern that allows does not reach tools whose names say that they run commands."""
    named = spellings(name)
    if not _is_glob(pattern):
        return pattern in named
    if not widely and any(_RUNS_COMMANDS.search(one) for one in named):
        return False
    return any(fnmatchcase(one, pattern) for one in named)


def _is_glob(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[")


def _check(name: str, where: str, shells: Iterable[str], *, covers: bool) -> None:
    shown = one_line(name, 60)
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise OptionError(f"no tool can be called {shown!r}", where=where, mend="give names of tools, or patterns such as read_*")
    shell = next((one for one in sorted(shells) if name == one or (covers and _is_glob(name) and fnmatchcase(one, name))), None)
    if shell is None:
        return
    what = f"{shown} is a shell tool" if shell == name else f"{shown} covers {shell}, a shell tool"
    raise OptionError(
        f"{what}: its commands are judged one by one, not its name",
        where=where,
        mend="leave it out of the list; without the tool no command runs",
    )

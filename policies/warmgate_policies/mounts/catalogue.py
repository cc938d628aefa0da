"""Tools grouped into toolsets: what can be mounted together, what is always there, what needs what."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from warmgate.foreign import mapping, text
from warmgate.mounting import tool_name

BYTES_PER_TOKEN = 4
"""Bytes of compact JSON taken for one token where no tokenizer is at hand: the replay's own default, so that both price alike."""

_SERVER = re.compile(r"^(?:mcp__)?(?P<server>[^\s_./:]+(?:_[^\s_./:]+)*?)(?:__|\.|/|:)(?P<tool>.+)$")
"""``mcp__github__create_issue`` (Claude Code), ``github__create_issue``, ``github.create_issue``, ``github/create_issue``."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool schema as the agent could be given it.

    Attributes:
        name: Its name.
        description: Its own words, first line.
        tokens: What its schema takes in a prompt, in tokens (an estimate unless a counter was given).
        schema: The schema as it came.
    """

    name: str
    description: str
    tokens: int
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Toolset:
    """Tools that are mounted together.

    Attributes:
        name: Shown to the deciding model: an option or the subject of a question.
        description: What it is for; from the operator, or from its tools' own descriptions.
        tools: Names in the catalogue's order.
        tokens: What all its schemas take in a prompt.
    """

    name: str
    description: str
    tools: tuple[str, ...]
    tokens: int


class Catalogue:
    """The tools of one turn, grouped.

    Args:
        tools: Schemas in OpenAI's shape (or flat ones with a name), in their canonical order.
        groups: Toolset name → tool names or prefixes ending in ``*``; the first group that names a tool has it. Others are grouped by
            the server in their name; a tool without one is a toolset of its own, since nothing says what it belongs to.
        descriptions: Toolset name → what it is for.
        always: Tool names (or ``prefix*``) that are mounted in every set.
        needs: Tool name → names of tools that it cannot work without.

    Attributes:
        tools: Name → tool, in the order given; of two with one name the first.
        every: All names.
        names: The same, as a set.
        always: Tools that are mounted in every set.
        toolsets: Name → toolset.
        strange: What the options name and these tools do not have, in words; empty mostly.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]],
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        descriptions: Mapping[str, str] | None = None,
        always: Sequence[str] = (),
        needs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        found = (_tool(schema) for schema in tools)
        self.tools: dict[str, Tool] = {}
        for tool in found:
            if tool.name:
                self.tools.setdefault(tool.name, tool)
        self.every = tuple(self.tools)
        self.names = frozenset(self.tools)
        self._needs = {name: tuple(others) for name, others in (needs or {}).items()}
        self.always = frozenset(name for name in self.tools if _matches(name, always))
        members: dict[str, list[str]] = {}
        for name in self.tools:
            if name not in self.always:
                members.setdefault(_group(name, groups or {}), []).append(name)
        self.toolsets: dict[str, Toolset] = {}
        for name, names in members.items():
            given = (descriptions or {}).get(name)
            self.toolsets[name] = Toolset(
                name, given or _described([self.tools[n] for n in names]), tuple(names), sum(self.tools[n].tokens for n in names)
            )
        self._toolset = {tool: name for name, names in members.items() for tool in names}
        self.strange = self._strange(groups or {}, descriptions or {}, always)

    def expand(self, toolsets: Iterable[str], tools: Iterable[str] = ()) -> tuple[str, ...]:
        """Tool names of some toolsets and single tools, with what is always on and what they need, in the catalogue's order."""
        wanted = set(self.always)
        for name in toolsets:
            if (toolset := self.toolsets.get(name)) is not None:
                wanted.update(toolset.tools)
        wanted.update(name for name in tools if name in self.tools)
        waiting = list(wanted)
        while waiting:
            for other in self._needs.get(waiting.pop(), ()):
                if other in self.tools and other not in wanted:
                    wanted.add(other)
                    waiting.append(other)
        return tuple(name for name in self.tools if name in wanted)

    def toolset_of(self, tool: str) -> str | None:
        """The toolset that holds a tool; ``None`` for tools that are always on or unknown."""
        return self._toolset.get(tool)

    def mounted(self, tools: Iterable[str]) -> frozenset[str]:
        """Toolsets of which every tool is among ``tools``."""
        held = set(tools)
        return frozenset(t.name for t in self.toolsets.values() if held.issuperset(t.tools))

    def tokens(self, tools: Iterable[str]) -> int:
        """What the schemas of some tools take in a prompt."""
        return sum(self.tools[name].tokens for name in set(tools) if name in self.tools)

    def _strange(self, groups: Mapping[str, Sequence[str]], descriptions: Mapping[str, str], always: Sequence[str]) -> str:
        """What the operator named and these tools do not have, in words: mostly a slip of the pen, or a server that is not there."""
        patterns = {"always": always, "groups": [p for names in groups.values() for p in names]}
        patterns["needs"] = [n for name, others in self._needs.items() for n in (name, *others)]
        found = [
            f"{pattern!r} ({option})"
            for option, names in patterns.items()
            for pattern in dict.fromkeys(names)
            if not (pattern in self.tools or (option != "needs" and any(_matches(name, (pattern,)) for name in self.tools)))
        ]
        found += [f"{name!r} (descriptions)" for name in descriptions if name not in self.toolsets]
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return f"mount_options name what is not there: {', '.join(found[:3])}{more}" if found else ""


def _tool(schema: Mapping[str, Any]) -> Tool:
    function = mapping(schema.get("function")) or schema
    described = text(function.get("description")) or ""
    line = next((part.strip() for part in described.splitlines() if part.strip()), "")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError):  # a foreign object: its printed form is as good an estimate as any
        size = len(str(schema))
    return Tool(tool_name(schema), line, max(1, -(-size // BYTES_PER_TOKEN)), schema)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in patterns)


def _group(name: str, groups: Mapping[str, Sequence[str]]) -> str:
    for group, patterns in groups.items():
        if _matches(name, patterns):
            return group
    found = _SERVER.match(unicodedata.normalize("NFC", name))
    return found["server"] if found is not None else name


def _described(tools: Sequence[Tool]) -> str:
    """A few of the tools' own words, for a question: names first, since they say most in the least room."""
    if len(tools) == 1:
        return tools[0].description[:160]
    shown = ", ".join(tool.name for tool in tools[:6])
    return shown + (f" and {len(tools) - 6} more" if len(tools) > 6 else "")

"""The words that the parts of the shell policy exchange: findings about a command, and streams of data inside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from warmgate.decision import Word

RANK: dict[Word, int] = {"allow": 0, "ask": 1, "deny": 2}
"""How strict each word is; the worst of a command's findings is its verdict."""

UNKNOWN = "\0"
"""Stands in a resolved word for what the text does not fix. No command can carry this character itself."""


class Capped(Exception):
    """A limit was reached: the verdict is ask, with this sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason not to allow.

    Attributes:
        verdict: ``ask`` or ``deny``.
        rule: Name of the rule.
        reason: One plain sentence a person can act on.
        start: Byte offset of the site in the command.
        end: Byte offset behind it.
    """

    verdict: Word
    rule: str
    reason: str
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """What flows out of a command: the data itself where the text fixes it, else where it came from.

    Attributes:
        text: The data, where it is fixed; ``None`` otherwise.
        tags: Origins: ``net``, ``decoded``, ``secret``, ``dotenv``, ``env``, ``bulk`` (the workspace as a whole), ``outside``.
        shape: What the unknown data looks like: ``number``, ``word``, ``path`` (a path described by ``pattern``), or None.
        pattern: A glob that every path in it matches, where ``shape`` is ``path``.
        project: The data is a project file as it stands.
    """

    text: str | None = None
    tags: frozenset[str] = frozenset[str]()
    shape: str | None = None
    pattern: str | None = None
    project: bool = False

    def tagged(self, *tags: str) -> Stream:
        """The same stream with more origins."""
        return replace(self, tags=self.tags | frozenset(tags))


EMPTY = Stream(text="")
NOTHING_KNOWN = Stream()


def joined(first: Stream, second: Stream) -> Stream:
    """Two streams one after the other."""
    if first.text == "" and not first.tags:
        return second
    if second.text == "" and not second.tags:
        return first
    text = first.text + second.text if first.text is not None and second.text is not None else None
    same = first.shape == second.shape and first.pattern == second.pattern
    return Stream(text, first.tags | second.tags, first.shape if same else None, first.pattern if same else None)


@dataclass(slots=True)
class Arg:
    """One argument as the program would receive it.

    Attributes:
        text: The value, with :data:`UNKNOWN` where the text of the command does not fix it.
        start: Byte offset in the command.
        end: Byte offset behind it.
        glob: It holds an active ``*``, ``?`` or ``[``.
        split: It may become several arguments or none.
        shape: See :class:`Stream`; for a word that is one unknown piece.
        pattern: See :class:`Stream`.
        tags: See :class:`Stream`.
        spelled: How its spelling hides what it says, as a noun phrase; None for plain spelling.
        computed: Part of the value comes from a variable or a substitution.
        stream: What a process substitution delivers when the file is read.
        head: The plainly written beginning of the word, up to the first quote, backslash or expansion.
    """

    text: str
    start: int = 0
    end: int = 0
    glob: bool = False
    split: bool = False
    shape: str | None = None
    pattern: str | None = None
    tags: frozenset[str] = frozenset[str]()
    spelled: str | None = None
    computed: bool = False
    stream: Stream | None = None
    head: str = ""

    @property
    def known(self) -> bool:
        """Whether the text fixes the whole value."""
        return UNKNOWN not in self.text and not self.split


@dataclass(slots=True)
class Site:
    """One thing that would run.

    Attributes:
        argv: Program and arguments, resolved.
        env: Assignments in front of it.
        stdin: What it reads.
        start: Byte offset in the command.
        end: Byte offset behind it.
        sink: Where its output goes: ``file``, ``pipe`` or ``out``.
    """

    argv: list[Arg]
    env: list[tuple[str, Arg]] = field(default_factory=list[tuple[str, Arg]])
    stdin: Stream = NOTHING_KNOWN
    start: int = 0
    end: int = 0
    sink: str = "out"

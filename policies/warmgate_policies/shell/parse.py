"""A command's text to a syntax tree, with every reason to distrust that tree.

The parser is mvdan/sh (``shfmt``), run as its own binary by absolute path under limits of size, time and output. No parser reads bash as
bash does in every corner, so a tree counts as proof only when independent checks agree with it; see :mod:`.openers`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from warmgate_policies.shell.findings import Capped
from warmgate_policies.shell.openers import doubts_of

MAX_BYTES = 64 * 1024
"""Bytes of a command that are parsed. Agents write files by here-documents, hence not less."""
MAX_MARKS = 4000
"""Characters with a meaning to the shell, outside quoted here-documents: dense text costs the parser 9 µs a byte."""
MAX_NESTING = 60
"""Brackets, substitutions and compound commands inside each other, as a crude count over the text."""
MAX_TREE = 4_000_000
"""Bytes of JSON read from the parser."""
SECONDS = 3.0
"""Wall clock for one run of the parser; it needs 2 ms, but machines stall."""

_BODY = re.compile(rb"<<-?[ \t]*(['\"])([A-Za-z0-9_.-]+)\1[^\n]*\n(.*?)\n[ \t]*\2[ \t]*(?=\n|\)|$)", re.DOTALL)
_HERE = re.compile(r"<<-?[ \t]*['\"\\\\]?([A-Za-z0-9_]+)")
_SINGLE = re.compile(rb"'[^']*'")
_MARKS = re.compile(rb"[\s;|&$()<>{}`\"'\\]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f]"
)

Tree = dict[str, Any]
"""A node of shfmt's JSON tree; its ``Type`` says which."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tree and what speaks against it.

    Attributes:
        tree: The ``File`` node.
        source: The bytes that offsets in the tree count.
        doubts: Sentences; with any of them the command is never allowed.
        joined: The text with line continuations taken out, where that could read differently; judged as well.
    """

    tree: Tree
    source: bytes
    doubts: list[str] = field(default_factory=list[str])
    joined: str | None = None


@lru_cache(maxsize=1)
def binary() -> str:
    """Absolute path of the parser's binary: beside this interpreter, as its wheel installs it. PATH is never searched.

    Raises:
        FileNotFoundError: The wheel ``shfmt-py`` is not installed.
    """
    name = "shfmt.exe" if os.name == "nt" else "shfmt"
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), sysconfig.get_path("scripts", f"{os.name}_user")]
    for folder in folders:
        path = Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())
    raise FileNotFoundError("shfmt is not installed beside this Python; pip install shfmt-py")


def parse(text: str) -> Parsed:
    """The tree of ``text``.

    Raises:
        Capped: Too large, too dense, too deep, not text, or not bash; the sentence says which.
        OSError: The parser cannot be started.
    """
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise Capped("the command is not valid Unicode text") from None
    _limits(text, source)
    ended = False
    try:
        tree = _run(source)
    except Capped:
        # Bash ends an open here-document at the end of the text; the parser does not.
        marks = _HERE.findall(text)
        if not marks or len(source) > 8192:
            raise
        source = (text + "\n" + "\n".join(marks) + "\n").encode()
        tree = _run(source)
        ended = True
    doubts, continued = doubts_of(source, tree)
    if ended:
        doubts.append("a here-document has no end")
    joined = text.replace("\\\n", "") if continued else None
    if _INVISIBLE.search(text):
        doubts.append("the command holds invisible characters")
    return Parsed(tree, source, doubts, joined)


def _limits(text: str, source: bytes) -> None:
    if not text.strip():
        raise Capped("the command is empty")
    if len(source) > MAX_BYTES:
        raise Capped(f"the command has {len(source):,} bytes; at most {MAX_BYTES:,} are read")
    if _CONTROL.search(text):
        raise Capped("the command holds control characters")
    dense = _SINGLE.sub(b"''", _BODY.sub(b"", source))
    if len(_MARKS.findall(dense)) > MAX_MARKS:
        raise Capped(f"the command has more than {MAX_MARKS:,} words and marks")
    depth = deepest = 0
    for byte in dense:
        if byte in b"({":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b")}":
            depth -= 1
    ticks = max((len(run) for run in re.findall(rb"\\+", dense)), default=0)
    keywords = len(re.findall(rb"\b(?:if|while|until|for|case|select)\b", dense))
    if deepest > MAX_NESTING or ticks > 64 or keywords > 250:
        raise Capped("the command is nested too deeply to be read")


def _run(source: bytes) -> Tree:
    stdin, feed = os.pipe()
    drain, stdout = os.pipe()
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        pid = os.posix_spawn(
            binary(),
            [binary(), "--language-dialect=bash", "--to-json"],
            {"GOMAXPROCS": "1", "GOTRACEBACK": "none"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, devnull, 2),
                (os.POSIX_SPAWN_CLOSE, feed), (os.POSIX_SPAWN_CLOSE, drain),
            ],
        )  # fmt: skip
    except OSError:
        os.close(feed)
        os.close(drain)
        raise
    finally:
        os.close(stdin)
        os.close(stdout)
        os.close(devnull)
    try:
        output = _talk(source, feed, drain)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    _, status = os.waitpid(pid, 0)
    if status != 0 or not output:
        raise Capped("the command cannot be parsed as bash")
    try:
        return msgspec.json.decode(output, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise Capped("the command is nested too deeply to be read") from None


def _talk(source: bytes, feed: int, drain: int) -> bytes:
    """Writes and reads at once, so that neither side of the two pipes fills up; closes both ends."""
    end = time.monotonic() + SECONDS
    parts: list[bytes] = []
    size = 0
    os.set_blocking(feed, False)
    sent = 0
    try:
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise Capped("parsing took too long")
            readable, writable, _ = select.select([drain], [feed] if feed >= 0 else [], [], left)
            if writable:
                try:
                    sent += os.write(feed, source[sent : sent + 32768])
                except BrokenPipeError:
                    sent = len(source)
                if sent >= len(source):
                    os.close(feed)
                    feed = -1
            if readable:
                part = os.read(drain, 1 << 18)
                if not part:
                    return b"".join(parts)
                parts.append(part)
                size += len(part)
                if size > MAX_TREE:
                    raise Capped("the command is too complex to be read")
    finally:
        if feed >= 0:
            os.close(feed)
        os.close(drain)

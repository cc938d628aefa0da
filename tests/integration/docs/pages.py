"""The pages that people read, taken apart: blocks of code, and commands in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples/observability/README.md"]


class Block(NamedTuple):
    """A fenced block: its page relative to the checkout, the line of its fence, its language, its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


_FENCE = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def blocks(*languages: str) -> Iterator[Block]:
    """All fenced blocks of all pages in these languages; ``""`` is a fence without one."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for found in _FENCE.finditer(text):
            if found[2] in languages:
                line = text.count("\n", 0, found.start()) + 1
                yield Block(str(page.relative_to(ROOT)), line, found[2], textwrap.dedent(found[3]))


def command_lines(program: str) -> Iterator[tuple[str, str]]:
    """(place, command line) of ``program``: in blocks for a shell, and between backticks in the text."""
    for block in blocks("sh", "console", "text", ""):
        lines = block.text.replace("\\\n", " ").splitlines()
        prompt = block.language == "console"
        for line in lines:
            found = re.match(rf"(?:\$ )?(?:\.venv/bin/)?({program} .*)$" if not prompt else rf"\$ (?:\.venv/bin/)?({program} .*)$", line)
            if found:
                yield block.id, found[1]
    for page in PAGES:
        for found in re.finditer(rf"`({program} [^`\n]+)`", _FENCE.sub("", page.read_text("utf-8"))):
            yield str(page.relative_to(ROOT)), found[1]


LEFT_OUT = "…"


def transcripts() -> Iterator[tuple[str, str, list[str]]]:
    """(place, command line, the stretches of output that are shown of it) of each ``$`` line in console blocks."""
    for block in blocks("console"):
        for one in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = one.partition("\n")
            yield block.id, command, [stretch for stretch in re.split(rf"^{LEFT_OUT}$\n?", output, flags=re.MULTILINE) if stretch]

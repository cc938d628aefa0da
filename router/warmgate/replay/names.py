"""Which files a user means: names, directories and globs on the command line, turned into a list of traces."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR

from warmgate.errors import undecoded

STDIN = "-"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".log", ".gz")
"""What a file in a directory must end with to be taken for a trace. A file named by itself may be called anything."""

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


def expand(names: Sequence[str]) -> list[str]:
    """The traces that ``names`` stand for, sorted, each real file once.

    A directory stands for the traces in it and below it; hidden files, and files that do not end like a trace, are left out there. Symbolic
    links are followed, and a directory is entered once however many links lead to it. A glob may hold ``**``. What cannot be listed or
    looked at, and a name that stands for nothing, stays in the list under its own name, so that reading it says so and the others are read.
    """
    found: dict[str, str] = {}
    for name in names:
        alone = True
        for path in _files(name):
            alone = False
            found.setdefault(path if path == STDIN else os.path.realpath(path), path)
        if alone:
            found.setdefault(f"\0{name}", name)  # no path: realpath would take "" for the directory we are in
    return sorted(found.values())


def shown(path: str) -> str:
    r"""A name as one printable line, never empty: what is no UTF-8 or cannot be seen is escaped (``\xff``, ``\n``), blanks are quoted."""
    text = "".join(c if c.isprintable() else undecoded(c) or c.encode("unicode_escape").decode("ascii") for c in path)
    return text if text and text == text.strip() else f"'{text}'"


def _files(name: str) -> Iterator[str]:
    if name == STDIN:
        yield name
    elif name and _is_directory(name):
        yield from _walk(name)
    elif name and _exists(name):
        yield name
    elif glob.has_magic(name):
        yield from _matching(name)


def nothing(name: str) -> str:
    """Why there is nothing to read under a name that was kept by :func:`expand`."""
    if name and _is_directory(name):
        return "is a directory" if any(_walk(name)) else f"holds no trace: no file in it ends in {', '.join(SUFFIXES)}"
    return "matches no file" if glob.has_magic(name) else "no such file or directory"


def _mode(path: str) -> int | None:
    """Kind of a file, links followed; 0 when the system will not say, ``None`` when there is none."""
    try:
        return Path(path).stat().st_mode
    except OSError as fault:
        return None if fault.errno in _ABSENT else 0
    except ValueError:  # a NUL in the name
        return None


def _exists(path: str) -> bool:
    return _mode(path) is not None


def _is_directory(path: str) -> bool:
    return S_ISDIR(_mode(path) or 0)


def _like_a_trace(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)


def _walk(top: str, *, every: bool = False) -> Iterator[str]:
    """Trace-like (or all) files below ``top``, and directories that cannot be listed."""
    seen: set[tuple[int, int]] = set()
    stack = [top]
    while stack:
        directory = stack.pop()
        try:
            status = Path(directory).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if _enters(entry):
                        stack.append(entry.path)
                    elif every or _like_a_trace(entry.name):
                        yield entry.path
        except OSError:
            yield directory


def _enters(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory. A link to itself, or into a broken mount, is none: it must not hide its neighbours."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _matching(pattern: str) -> Iterator[str]:
    """What a glob matches. Files that end like no trace count only when nothing else matches: the user must have meant them."""
    matches = list(_deep(pattern)) if "**" in pattern.split("/") else _flat(pattern)
    files = [path for path in matches if not _is_directory(path)]
    yield from [path for path in files if _like_a_trace(path)] or files
    for path in matches:
        if _is_directory(path):
            yield from _walk(path)


def _flat(pattern: str) -> list[str]:
    try:
        found = glob.glob(pattern)  # noqa: PTH207 -- names stay as the user wrote them
    except ValueError:  # a NUL in the name
        return []
    return [f"./{path}" if path == STDIN else path for path in found]


def _deep(pattern: str) -> Iterator[str]:
    """A glob with ``**``. Python's own follows a loop of links until the path is too long, and two loops until nobody waits for it."""
    parts = [part for part in pattern.split("/") if part]
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = "/" if pattern.startswith("/") else ""
    top = root + "/".join(parts[:first]) or "."
    for path in _walk(top, every=True):
        if _is_directory(path) or _fits(os.path.relpath(path, top).split("/"), parts[first:]):
            yield path.removeprefix("./") if not pattern.startswith("./") else path


def _fits(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_fits(parts[i:], patterns[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _fits(parts[1:], patterns[1:])

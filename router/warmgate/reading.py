"""How the files that a user names are read: never more of them than makes sense, and every failure in one line."""

from __future__ import annotations

import os
import stat
import sys
from typing import BinaryIO

from warmgate.errors import InputError


def read_bytes(path: str, limit: int, *, where: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``.

    A file that is too long is refused by its size, before it is read; a pipe or a device as soon as it has given more than ``limit``.

    Args:
        path: The file, or ``-``.
        limit: Most bytes it may have.
        where: What to call it, such as the option that names it.

    Raises:
        InputError: It cannot be read, or is longer.
    """
    try:
        if path == "-":
            if sys.stdin is None:
                raise InputError("standard input is closed", where=where, mend="name a file")
            return _bounded(sys.stdin.buffer, limit, where)
        with open(path, "rb") as file:  # noqa: PTH123 - Path() would take what open() refuses
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size > limit:
                raise too_long(where, limit, status.st_size)
            return _bounded(file, limit, where)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise InputError(f"cannot be read ({reason})", where=where) from None


def _bounded(file: BinaryIO, limit: int, where: str) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise too_long(where, limit)
    return data


def too_long(where: str, limit: int, size: int | None = None) -> InputError:
    """The error for a file beyond its limit."""
    told = "is longer" if size is None else f"has {_size(size)}, more"
    return InputError(f"{told} than the {_size(limit)} that make sense here", where=where, mend="is it the right file?")


def _size(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB" if count >= 1 << 20 else f"{count:,} bytes"

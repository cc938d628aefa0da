"""Where results go: a file written whole or not at all, or standard output.

A file is written beside its target and then takes its place, with the mode of the one it replaces. A symbolic link stays, and what it
points to is replaced. Devices and pipes are written into. A path that leads to standard output (``/dev/stdout``) is taken for ``-``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISFIFO, S_ISREG
from typing import BinaryIO

from warmgate.errors import OutputError

_NAME = 40
"""Characters of the target's name in the name of the file beside it: a name has at most 255 bytes."""


def write_bytes(path: str, data: bytes) -> None:
    r"""Write ``data`` to ``path``, or to standard output for ``-``. A file appears complete or not at all.

    On a terminal, signs that could steer it or change the direction of text are spelt as JSON does (``\u202e``).

    Raises:
        OutputError: The path cannot be written.
    """
    if is_stdout(path):
        if sys.stdout is None:
            raise OutputError("is closed", where="standard output", mend="write to a file")
        sys.stdout.buffer.write(_seen(data) if sys.stdout.isatty() else data)
        sys.stdout.buffer.flush()
        return
    _write(path, lambda file: file.write(_seen(data) if file.isatty() else data), replace=True)


def check_writable(path: str) -> None:
    """Find out whether ``path`` can be written, before the work that it is for. Leaves everything as it was.

    Raises:
        OutputError: It cannot.
    """
    if not is_stdout(path):
        _write(path, lambda _file: None, replace=False)


def is_stdout(path: str) -> bool:
    """Whether ``path`` is standard output: ``-``, or a file or pipe that it leads to. A terminal is not: anyone may write there."""
    if path == "-":
        return True
    try:
        there, here = os.stat(path), os.fstat(sys.stdout.fileno())  # noqa: PTH116 -- a Path takes "" for "."
    except (OSError, ValueError, AttributeError):
        return False
    return (S_ISREG(here.st_mode) or S_ISFIFO(here.st_mode)) and os.path.samestat(there, here)


def _write(path: str, write: Callable[[BinaryIO], object], *, replace: bool) -> None:
    target, mode = _target(path)
    try:
        if mode is not None and not os.access(target, os.W_OK):
            raise PermissionError(None, "it is read-only")
        if mode is not None and not S_ISREG(mode):  # a device or a pipe: nothing to replace
            if replace:
                with target.open("wb") as file:
                    write(file)
            return
        beside = target.with_name(f".{target.name[:_NAME]}.{os.urandom(8).hex()}")
        try:  # whatever ends this, Ctrl-C included, takes the file away again
            with beside.open("xb") as file:
                write(file)
                if mode is not None:
                    os.fchmod(file.fileno(), S_IMODE(mode))
            if replace:
                beside.replace(target)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    except OSError as fault:
        raise OutputError(f"cannot be written ({fault.strerror or fault})", where=path) from fault


def _target(path: str) -> tuple[Path, int | None]:
    """The file that ``path`` leads to, and its mode where there is one."""
    if not path:
        raise OutputError("names no file", where="''")
    try:
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise OutputError("is a symbolic link that leads to itself", where=path)
        mode = target.stat().st_mode if target.exists() else None
    except ValueError as fault:  # a NUL in the name
        raise OutputError(f"cannot be written ({fault})", where=path) from fault
    except OSError as fault:
        raise OutputError(f"cannot be written ({fault.strerror or fault})", where=path) from fault
    if path.endswith(os.sep) or (mode is not None and S_ISDIR(mode)):
        raise OutputError("is a directory", where=path, mend="name a file in it")
    return target, mode


def _seen(data: bytes) -> bytes:
    """JSON text whose signs can all be seen."""
    said = re.sub(
        r"[^\x00-\x7e]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], data.decode("utf-8", "replace")
    )
    return said.encode("utf-8")

"""Where results go: a file written whole or not at all, or standard output."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from warmgate.errors import OutputError


def write_bytes(path: str, data: bytes) -> None:
    """Write ``data`` to ``path``, or to standard output for ``-``. A file appears complete or not at all.

    Raises:
        OutputError: The path cannot be written.
    """
    if path == "-":
        if sys.stdout is None:
            raise OutputError("is closed", where="standard output", mend="write to a file")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # /dev/stdout, a FIFO: nothing to replace
            target.write_bytes(data)
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise OutputError(f"cannot be written ({fault.strerror or fault})", where=path) from fault

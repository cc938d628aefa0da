"""Rust panics of the ``tokenizers`` library as ordinary errors, their text kept off the terminal.

A broken file can make the library panic. Python sees that as an exception outside ``Exception`` (PyO3 means it to end the process), and
Rust prints it, with a backtrace, to file descriptor 2.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from typing import TypeVar

T = TypeVar("T")

_lock = threading.Lock()


class Panic(Exception):
    """The library panicked."""


def contained(work: Callable[[], T]) -> T:
    """Run ``work`` with file descriptor 2 set aside; whatever else was written to it meanwhile is passed on. Costs some microseconds.

    Raises:
        Panic: The library panicked in it; says how, in one line.
    """
    with _lock:
        aside = _set_aside()
        try:
            kept = os.dup(2)
        except OSError:  # no standard error to keep clean
            kept = -1
        panicked = False
        try:
            if kept >= 0:
                os.dup2(aside, 2)
            return work()
        except BaseException as fault:
            if type(fault).__name__ != "PanicException":  # told by name: the class cannot be imported
                raise
            panicked = True
            raise Panic(str(fault).strip().partition("\n")[0] or "no reason given") from None
        finally:
            if kept >= 0:
                os.dup2(kept, 2)
                os.close(kept)
                _pass_on(aside, drop=panicked)


@cache
def _set_aside() -> int:
    """A file that takes what would have gone to the terminal."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _pass_on(aside: int, *, drop: bool) -> None:
    size = os.lseek(aside, 0, os.SEEK_CUR)
    if not size:
        return
    os.lseek(aside, 0, os.SEEK_SET)
    text = os.read(aside, size)
    os.lseek(aside, 0, os.SEEK_SET)
    os.ftruncate(aside, 0)
    if not drop:
        os.write(2, text)

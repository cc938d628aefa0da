"""The session that the code running now belongs to, for clients that cannot set a header a call."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[str | None] = ContextVar("warmgate_session", default=None)


@contextmanager
def session(name: str) -> Generator[None]:
    """Calls made inside the block, by this task or thread and those it starts, belong to session ``name``."""
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def current_session() -> str | None:
    """The innermost :func:`session` block's name."""
    return _current.get()

"""Doing a thing once, however often the graph is resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from langgraph.func import task  # pyright: ignore[reportMissingTypeStubs]


def once(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a task: a node that runs again after an interrupt gets what it returned from the checkpoint.

    Called, it gives a future: ``.result()`` for code that waits, ``await`` for code that awaits. What it returns must be JSON.
    """
    return cast("Callable[..., Any]", cast("Any", task(name=name))(function))

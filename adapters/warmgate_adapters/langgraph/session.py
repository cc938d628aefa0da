"""Which session a node's calls belong to: the thread, and, where a graph has several agents, which of them."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig

from warmgate.foreign import mapping, text

Naming: TypeAlias = str | Callable[[RunnableConfig], str] | None
"""An agent's name within its thread, or what makes the whole session key of a config."""


def session_of(config: RunnableConfig, kept: Any = None, naming: Naming = None) -> str:
    """A session's key.

    The thread's id; with an agent's name behind a slash where it has one. Inside a subgraph, where neither the name nor the channel tells
    which conversation this is, the path to the subgraph and its run: two branches never share a session.

    Args:
        config: The node's.
        kept: What the ``gate`` channel holds.
        naming: See :data:`Naming`.
    """
    if callable(naming):
        return naming(config)
    configurable = mapping(config.get("configurable"))
    thread = configurable.get("thread_id")
    known = _known(kept)
    if thread is None:
        made = next((session for session in known if session.startswith("run-")), None) or f"run-{token_hex(8)}"
        return f"{made.partition('/')[0]}/{naming}" if naming else made
    if naming:
        return f"{thread}/{naming}"
    around = (text(configurable.get("checkpoint_ns")) or "").split("|")[:-1]
    if not around:
        return str(thread)
    path = "/".join([str(thread), *(part.partition(":")[0] for part in around)])
    mine = [session for session in known if session.partition(":")[0] == path]
    if len(mine) == 1:
        return mine[0]  # the conversation goes on, though its subgraph runs anew
    return f"{path}:{around[-1].rpartition(':')[2][:8]}"


def _known(kept: Any) -> list[str]:
    found = mapping(kept)
    top = text(found.get("session"))
    return [*mapping(found.get("others")), *([top] if top is not None else [])]

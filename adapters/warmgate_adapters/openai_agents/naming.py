"""Which session a run belongs to."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

from agents import RunConfig, Session, ToolErrorFormatterArgs
from agents.run_context import RunContextWrapper
from agents.tracing import get_current_trace

from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate_adapters.core import words

_scope: ContextVar[str | None] = ContextVar("warmgate_session", default=None)


@contextmanager
def gate_session(session: str) -> Generator[None]:
    """Runs inside belong to this session, whatever their configuration says: for runs without tracing, where ``group_id`` is not seen.

    Args:
        session: Key of the conversation.
    """
    token = _scope.set(session)
    try:
        yield
    finally:
        _scope.reset(token)


def run_config(gate: Gate, session: str | Session, base: RunConfig | None = None) -> RunConfig:
    """A run configuration for a conversation: its ``group_id``, the header that keeps it on its worker, and the text of a person's no.

    Args:
        gate: The gate.
        session: The conversation's id, or the SDK's session, whose id it is.
        base: What else is wanted.

    Raises:
        OptionError: The session has no id.
    """
    named = session if isinstance(session, str) else session.session_id
    if not named:
        raise OptionError("has no id", where="the session", mend="name the conversation")
    config = base or RunConfig()
    return replace(
        config,
        group_id=config.group_id or named,
        tool_error_formatter=config.tool_error_formatter or _refused,
    )


def thread_of(context: RunContextWrapper[Any] | None = None) -> str | None:
    """The conversation that a run is part of; ``None`` where nobody named it."""
    scoped = _scope.get()
    if scoped:
        return scoped
    trace = get_current_trace()
    group = getattr(trace, "group_id", None)
    if isinstance(group, str) and group:
        return group
    config = getattr(context, "run_config", None)
    return cast("RunConfig", config).group_id if config is not None else None


def _refused(args: ToolErrorFormatterArgs[Any]) -> str | None:
    """What the model reads where a person said no; other errors keep the SDK's text."""
    return words.refused() if args.kind == "approval_rejected" else None

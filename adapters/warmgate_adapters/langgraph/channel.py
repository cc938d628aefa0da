"""The graph's state as the gate sees it: the ``gate`` channel and the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, cast

from langgraph.graph import MessagesState  # pyright: ignore[reportMissingTypeStubs]

from warmgate.errors import OptionError
from warmgate_adapters.core import merge

GateChannel: TypeAlias = Annotated[dict[str, Any], merge]
"""The type of the ``gate`` channel: JSON, merged where branches meet."""

MISSING = object()


class GateMessagesState(MessagesState):
    """Messages and the ``gate`` channel; derive a graph's state from it."""

    gate: GateChannel


def kept(state: Any, node: str) -> Any:
    """What the ``gate`` channel holds.

    Raises:
        OptionError: The graph's state has no such channel, so that nothing would be remembered: neither mounts nor a person's no.
    """
    found = field(state, "gate")
    if found is MISSING:
        raise OptionError(
            "the graph's state has no `gate` channel",
            where=node,
            mend="derive the state from warmgate_adapters.langgraph.GateMessagesState, or declare `gate: GateChannel` in it",
        )
    return found


def field(state: Any, name: str) -> Any:
    """A field of a state: dict, dataclass or model."""
    if isinstance(state, Mapping):
        return cast("Mapping[str, Any]", state).get(name, MISSING)
    return getattr(state, name, MISSING)

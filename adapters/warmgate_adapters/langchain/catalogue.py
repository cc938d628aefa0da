"""The tools an agent could be given, in one order for good: the order of a prompt's tools is part of its prefix."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from warmgate.gate import Gate
from warmgate.mounting import tool_name
from warmgate_adapters.core import GateState, Keeper
from warmgate_adapters.langgraph.messages import Tool, schemas


class Catalogue:
    """Every tool seen so far, and the keepers that know them. Safe across threads.

    A tool without a name of its own (a provider's built-in one) runs at the provider: the gate does not see its calls, and leaves it alone.

    Args:
        gate: The gate.
        tools: Tools known from the start; others are added at the end when a request carries them.
        on_ask: ``deny`` where nobody is there to approve.
        keeper: Other arguments of :class:`~warmgate_adapters.core.Keeper`.
    """

    def __init__(self, gate: Gate, tools: Sequence[Tool], on_ask: Literal["ask", "deny"], keeper: Mapping[str, Any]) -> None:
        self._gate = gate
        self._on_ask: Literal["ask", "deny"] = on_ask
        self._more = dict(keeper)
        self._lock = threading.Lock()
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._objects: dict[str, Tool] = {}
        self._keepers = self._made()
        self.add(tools)

    def keeper(self, *, attended: bool = True, state: GateState | None = None) -> Keeper:
        """Stands between the agent and the gate.

        Args:
            attended: Whether a person could be asked.
            state: The session's. A process that resumes a thread has seen no tools yet; their names are in there.
        """
        if not self._schemas and state is not None:
            names = dict.fromkeys((*(state.offered or ()), *(state.mounts or ()), *state.announced))
            stubs = [{"type": "function", "function": {"name": name}} for name in names]
            return Keeper(self._gate, stubs, on_ask=self._on_ask if attended else "deny", **self._more)
        return self._keepers[0 if attended else 1]

    def add(self, tools: Sequence[Tool]) -> None:
        """Take in a request's tools."""
        if all(self._objects.get(_name(tool)) is tool for tool in tools):
            return
        with self._lock:
            for tool, schema in zip(tools, schemas(tools), strict=True):
                name = tool_name(schema)
                if name:
                    self._objects[_name(tool)] = tool
                    self._schemas[name] = schema
            self._keepers = self._made()

    def select(self, tools: Sequence[Any], offered: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Of a request's tools, those that the session offers, in the catalogue's order; built-in ones behind them."""
        order = {name: place for place, name in enumerate(map(tool_name, offered))}
        named = sorted((tool for tool in tools if _name(tool) in order), key=lambda tool: order[_name(tool)])
        return [*named, *(tool for tool in tools if not _name(tool))]

    def _made(self) -> tuple[Keeper, Keeper]:
        known = tuple(self._schemas.values())
        return (
            Keeper(self._gate, known, on_ask=self._on_ask, **self._more),
            Keeper(self._gate, known, on_ask="deny", **self._more),
        )


def _name(tool: Any) -> str:
    if isinstance(tool, dict):
        return tool_name(cast("dict[str, Any]", tool))
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))

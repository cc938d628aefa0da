"""What the agent's prompts begin with: a middleware sees it, and a decision model that shares the worker's cache can begin alike."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from warmgate.gate import Gate

SESSIONS = 65_536
"""Sessions whose openings are known; of an older one a decision is asked as JSON until its next call."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a session's latest prompt began.

    Attributes:
        system: Its system message, in OpenAI's shape; ``None`` where it has none.
        tools: Schemas of its tools, in the order sent.
        first: Id of its first message after that.
        template_kwargs: What its call handed to the chat template.
        cache_salt: Its cache namespace.
        model: Its model, where it is not the settings' one.
    """

    system: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]]
    first: str | None
    template_kwargs: Mapping[str, Any]
    cache_salt: str | None = None
    model: str | None = None


class Openings:
    """Of all sessions of one gate. Safe across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[str, Opening] = OrderedDict()

    def of(self, session: str) -> Opening | None:
        """A session's."""
        return self._of.get(session)

    def note(self, session: str, opening: Opening) -> None:
        """Remember a session's."""
        with self._lock:
            self._of[session] = opening
            self._of.move_to_end(session)
            while len(self._of) > SESSIONS:
                self._of.popitem(last=False)


_openings: WeakKeyDictionary[Gate, Openings] = WeakKeyDictionary()
_made = threading.Lock()


def openings(gate: Gate) -> Openings:
    """Those of a gate: whoever uses the gate finds the same ones."""
    with _made:
        found = _openings.get(gate)
        if found is None:
            found = _openings[gate] = Openings()
        return found

"""Model calls whose mounts are decided and whose reply has not come: tried again, they decide nothing anew and announce the same."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from warmgate_adapters.core import GateState

SESSIONS = 4096
"""Calls remembered, newest. One that is forgotten is decided again when it is tried again."""


@dataclass(frozen=True, slots=True)
class _Call:
    checkpoint: GateState
    state: GateState


class Unfinished:
    """Of all sessions of one middleware. Safe across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, _Call] = OrderedDict()

    def of(self, checkpoint: GateState) -> GateState:
        """The state to go on from: that of a call that failed on this very checkpoint, else the checkpoint's own."""
        call = self._calls.get(checkpoint.session)
        return call.state if call is not None and call.checkpoint == checkpoint else checkpoint

    def begin(self, checkpoint: GateState, before: GateState, after: GateState) -> None:
        """A call is made.

        Args:
            checkpoint: The state as the checkpoint has it.
            before: The state that the decision was made on.
            after: The state after it. What it announced is owed until the reply is there.
        """
        owed = tuple(name for name in after.announced if name not in before.announced)
        state = after.with_(announce=owed, announced=before.announced)
        with self._lock:
            self._calls[checkpoint.session] = _Call(checkpoint, state)
            self._calls.move_to_end(checkpoint.session)
            while len(self._calls) > SESSIONS:
                self._calls.popitem(last=False)

    def end(self, state: GateState) -> None:
        """Its reply is there."""
        with self._lock:
            self._calls.pop(state.session, None)

"""What of a session's prompt its worker should still hold: the ledger's expectation for each read and call.

Tokens are counted where an engine counted them (usage); shared and reusable ones are predicted from the session's own requests alone, so
that they are a floor: prefixes shared with other sessions come on top and show as surplus.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from warmgate.prefix.ledger import Entry
from warmgate.workers.binding import Binding

SESSIONS = 65_536
"""Sessions remembered; one that was forgotten is expected to share nothing."""

Loss = Literal["worker_change", "worker_restart"]

Brought = Literal["read", "planted"]
"""By an aligned read, or by a plant and a read after it."""


@dataclass(slots=True)
class _Trail:
    worker: str
    restarts: int
    tokens: int = 0
    loss: Loss | None = None
    extended: Brought | None = None
    """How the coming call's prompt was brought to the worker since the last call, if it was."""


class Trails:
    """The sessions of one gate. Safe across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trails: OrderedDict[str, _Trail] = OrderedDict()

    def on(self, session: str, binding: Binding) -> Loss | None:
        """A session is about to use a worker. Says whether its prefix was lost since its last request, and why."""
        with self._lock:
            trail = self._trails.pop(session, None)
            loss: Loss | None = None
            if trail is None:
                trail = _Trail(binding.worker, binding.restarts)
            elif trail.worker != binding.worker:
                loss = "worker_change"
            elif trail.restarts < binding.restarts:
                loss = "worker_restart"
            if loss is not None:
                trail.worker, trail.restarts, trail.loss, trail.extended = binding.worker, binding.restarts, loss, None
            self._trails[session] = trail
            while len(self._trails) > SESSIONS:
                self._trails.popitem(last=False)
            return loss

    def counts(self, workers: Sequence[str]) -> dict[str, int]:
        """Sessions on each worker, those without any too."""
        found = dict.fromkeys(workers, 0)
        with self._lock:
            for trail in self._trails.values():
                found[trail.worker] = found.get(trail.worker, 0) + 1
        return found

    def forget(self, session: str) -> None:
        """A session has ended."""
        with self._lock:
            self._trails.pop(session, None)

    def reached(self, session: str, tokens: int) -> None:
        """The worker now holds the session's first ``tokens`` tokens."""
        with self._lock:
            trail = self._trails.get(session)
            if trail is not None:
                trail.tokens, trail.loss = tokens, None

    def extended(self, session: str, how: Brought = "read") -> None:
        """An aligned read restated the coming call's whole prompt."""
        with self._lock:
            if session in self._trails:
                self._trails[session].extended = how

    def called(self, session: str) -> Brought | None:
        """The agent's call was made. Whether an aligned read had come before it, and a plant before that."""
        with self._lock:
            trail = self._trails.get(session)
            if trail is None:
                return None
            extended, trail.extended = trail.extended, None
            return extended

    def held(self, session: str) -> tuple[int, Loss | None]:
        """Tokens of the session's prompt that were computed before, and why they are gone, if they are."""
        with self._lock:
            trail = self._trails.get(session)
            return (trail.tokens, trail.loss) if trail is not None else (0, None)


def entry(
    prompt_tokens: int | None,
    *,
    reads: int = 1,
    shared: int | None = None,
    unit: int | None = None,
    cached: int | None = None,
    loss: Loss | None = None,
    looked_up: bool = True,
) -> Entry:
    """The ledger entry of one request.

    Args:
        prompt_tokens: Tokens of all its prompts, as the engine counted them.
        reads: Prompts in it; each shares ``shared``.
        shared: Leading tokens that some earlier request of the session had, for each prompt; ``None``: not known.
        unit: Tokens that hits are a multiple of; without it nothing is predicted.
        cached: Cached tokens of all prompts, as the engine counted them.
        loss: Why the worker no longer holds them.
        looked_up: Whether such prompts are looked up in the cache at all.
    """
    reusable = None
    if shared is not None and unit:
        longest = shared if prompt_tokens is None else min(shared, max(0, prompt_tokens // reads - 1))
        reusable = reads * (longest // unit) * unit
    survived = cached if cached is not None else None if reusable is None else 0 if loss is not None or not looked_up else reusable
    cause = loss or ("not_read" if not looked_up else "unknown")
    return Entry(
        prompt_tokens=prompt_tokens,
        prompt_basis="measured" if prompt_tokens is not None else "predicted",
        shared=None if shared is None else reads * shared,
        reusable=reusable,
        survived=survived,
        survived_basis="measured" if cached is not None else "predicted",
        cause=cause if reusable is not None and survived is not None and survived < reusable else None,
        reported_cached=cached,
    )

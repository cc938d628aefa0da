"""A listener on a thread of its own: however slow, blocked or dead it is, whoever tells it goes on at once."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping

from warmgate.engines.events import emit
from warmgate.telemetry.protocol import Approval, CallSeen, Fallback, Fan, Finished, ReadSeen, Started, Telemetry
from warmgate.workers.counts import Counted

HELD = 10_000
"""Facts that wait for a listener. When one more comes, the oldest is dropped and counted."""

PATIENCE_S = 2.0
"""How long closing, and the end of Python, wait for what is held."""

Tell = Callable[[Telemetry], None]


class Aside:
    """Hands facts on from a thread of its own, in order.

    The thread begins with the first fact and ends with :meth:`close`; a fact after that begins a new one. A forked child starts its own.
    When nothing waits any more, a listener with a ``flush()`` is told to write what it holds back.

    Args:
        listener: Who is told.
        held: See :data:`HELD`.
    """

    def __init__(self, listener: Telemetry, held: int = HELD) -> None:
        self.listener = Fan(listener)
        self.dropped = 0
        """Facts that were dropped."""
        flush: Callable[[], None] | None = getattr(listener, "flush", None)
        self._flush: Tell | None = None if flush is None else lambda _: flush()
        self._facts: deque[Tell] = deque()
        self._limit = held
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._busy = False
        self._ending = False
        _alive.add(self)

    def decision_started(self, fact: Started) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.decision_started(fact))

    def decision_finished(self, fact: Finished) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.decision_finished(fact))

    def decision_failed(self, decision: str, code: str) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.decision_failed(decision, code))

    def read(self, fact: ReadSeen) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.read(fact))

    def agent_call(self, fact: CallSeen) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.agent_call(fact))

    def fallback(self, fact: Fallback) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.fallback(fact))

    def approval(self, fact: Approval) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.approval(fact))

    def counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """See :class:`~warmgate.telemetry.protocol.Telemetry`."""
        self._put(lambda one: one.counted(what, labels, number))

    def headers(self, decision: str) -> dict[str, str]:
        """None: a decision does not wait for this listener."""
        del decision
        return {}

    def drain(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until all that was told so far is handed on. False when the time is up."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._facts and not self._busy, patience_s)

    def close(self) -> None:
        """Hand on what is held, close the listener and end the thread; a listener that does not return is left behind."""
        thread = self._thread
        if thread is None or self._pid != os.getpid():
            return
        with self._wake:
            self._ending = True
            self._wake.notify_all()
        thread.join(PATIENCE_S)

    def _put(self, tell: Tell) -> None:
        with self._wake:
            if self._pid != os.getpid():
                self._pid, self._thread, self._busy = os.getpid(), None, False
                self._facts.clear()  # the parent's
            if len(self._facts) >= self._limit:
                self._facts.popleft()
                self.dropped += 1
                if self.dropped == 1:
                    emit(logging.WARNING, "telemetry.dropped", listener=type(self.listener.listeners[0]).__name__)
            self._facts.append(tell)
            if self._thread is None:
                self._ending = False
                self._thread = threading.Thread(target=self._run, name="warmgate-telemetry", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def _run(self) -> None:
        listener, flush = self.listener, self._flush
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._facts or self._ending)
                tell = self._facts.popleft() if self._facts else None
                last = not self._facts
                self._busy = True
            if tell is None:
                listener.close()
                with self._wake:
                    self._busy = False
                    self._wake.notify_all()
                    if not self._facts:
                        self._thread = None
                        return
                continue
            listener.tell(tell)
            if last and flush is not None:
                listener.tell(flush)


_alive: weakref.WeakSet[Aside] = weakref.WeakSet()


@atexit.register
def _last_words() -> None:
    """What is held when Python ends is handed on, as far as that is quick."""
    end = time.monotonic() + PATIENCE_S
    for one in list(_alive):
        if one.drain(max(0.0, end - time.monotonic())):
            one.close()

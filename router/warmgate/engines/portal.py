"""The sync face: one background thread with its own event loop, for code that cannot await.

Chosen over a second, synchronous client: engines, retries, deadlines and the chain exist once, connections stay pooled between
calls, and it works wherever the caller stands, a running event loop's own thread included (where the call blocks that loop, as any
sync call would). A call costs two thread switches, about 0.1 ms.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from warmgate.errors import OptionError

T = TypeVar("T")


class Portal:
    """A thread that runs an event loop. Started at the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal's loop and wait for it. Interrupting the wait cancels it.

        Raises:
            OptionError: Called from the portal's own thread, which would wait for itself.
        """
        loop = self._started()
        if threading.current_thread() is self._thread:
            work.close()
            raise OptionError("a sync call inside the portal's own loop would never end", mend="await the async method there")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            raise
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._pid != os.getpid():  # the thread did not come along through a fork
                self._loop = self._thread = None
                self._pid = os.getpid()
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="warmgate-portal", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Stop the loop and its thread; what still runs on it is cancelled. The next call starts another."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and self._pid == os.getpid() and thread is not threading.current_thread():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


_portal = Portal()
atexit.register(_portal.close)


def get_portal() -> Portal:
    """The process's portal."""
    return _portal

"""Something per event loop: connections belong to the loop that opened them."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One value for each running loop, made when first asked for. A fork starts empty: its parent's sockets are not its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, T] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    def get(self) -> T:
        """This loop's value."""
        if self._pid != os.getpid():
            self._values = weakref.WeakKeyDictionary()
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            value = self._values[loop] = self._make()
        return value

    def pop(self) -> T | None:
        """Forget and return this loop's value."""
        return self._values.pop(asyncio.get_running_loop(), None)

"""What one rendering of a chat template may cost: steps, characters, and processor time as a last resort."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import chain, islice
from time import thread_time
from typing import Any, TypeGuard, cast

from jinja2.runtime import str_join

from warmgate.alignment.template import TooCostly

STEPS = 20_000_000
"""Steps of a render, beside 32 for each character of the conversation: a step is one part of an expression, about 0.1 µs. Some published
templates look back through all messages for each of them, at 60 million steps for 4,000 messages."""

CHARACTERS = 256 << 20
"""Characters built by a render, its output included, or 64 times the conversation's."""

LONGEST = 8 << 20
"""Characters of one text, or of one list or object when written out; or 16 times the conversation's."""

SECONDS = 4.0
"""Processor time of a render, and as much again for every million characters of the conversation."""

PLAIN_NUMBER = 4096
"""Larger numbers handed to what builds text count as the characters they may ask for."""

_CHUNK = 2000  # steps between two looks at the clock


class Budget:
    """What is left for one render. The conversation is measured only once a budget looks spent, so ordinary renders never pay for that.

    Args:
        given: The variables handed to the template.
    """

    __slots__ = ("_characters", "_chunk", "_given", "_longest", "_measured", "_seconds", "_started", "_steps", "_weights")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._chunk = _CHUNK
        self._steps = STEPS
        self._characters = CHARACTERS
        self._longest = LONGEST
        self._seconds = SECONDS
        self._started: float | None = None
        self._weights: dict[int, tuple[Any, int]] = {}
        self._measured = False

    def tick(self, steps: int = 1) -> None:
        """Spend steps.

        Raises:
            TooCostly: None are left, or no time.
        """
        self._chunk -= steps
        if self._chunk < 0:
            self._look()

    def grow(self, size: int) -> None:
        """Spend characters on one text or list that is about to be built.

        Raises:
            TooCostly: It would be too long, or all were too many.
        """
        self._characters -= size
        if self._characters < 0 or size > self._longest:
            self._measure()
            if size > self._longest:
                raise TooCostly("builds a text far longer than the conversation")
            if self._characters < 0:
                raise TooCostly("builds far more text than the conversation holds")

    def kept(self, value: Any) -> Any:
        """``value``, just built from parts that each were within bounds."""
        if isinstance(value, str):
            self.grow(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self.grow(self._weight(value))
        return cast("Any", value)

    def sliced(self, value: Any) -> Any:
        """``value``, a part of something, with nothing in it twice that was there once."""
        if isinstance(value, str):
            self.grow(len(value))
        elif is_list(value):
            self.grow(8 * len(value))
        return cast("Any", value)

    def made(self, value: Any) -> Any:
        """``value``, a container that the template made.

        Raises:
            TooCostly: It would be too long when written out: lists of lists can be so exponentially.
        """
        self.grow(self._weight(value))
        return value

    def joined(self, values: Sequence[Any], join: Callable[[Iterable[Any]], str] = str_join) -> str:
        """Texts put together, as ``~`` does."""
        parts = [value if isinstance(value, str) else str(value) for value in values]
        self.grow(sum(map(len, parts)))
        return join(parts)

    def concat(self, parts: Iterable[str]) -> str:
        """A buffer's text: what a macro or a block prints."""
        parts = parts if isinstance(parts, list) else list(parts)
        self.grow(sum(map(len, parts)))
        return "".join(parts)

    def output(self, parts: Iterable[str]) -> str:
        """The whole output, counted while it comes."""
        kept: list[str] = []
        parts = iter(parts)
        total = 0
        while some := list(islice(parts, 64)):
            size = sum(map(len, some))
            total += size
            self._characters -= size
            if self._characters < 0 or total > self._longest:
                self._characters += size
                self.grow(size)
                if total > self._longest:
                    raise TooCostly("prints far more text than the conversation holds")
            kept += some
        return "".join(kept)

    def counted(self, values: Iterable[Any]) -> Generator[Any]:
        """The same values, some steps each."""
        for value in values:
            self.tick(4)
            yield value

    def _look(self) -> None:
        self._steps -= _CHUNK - self._chunk
        self._chunk = _CHUNK
        if self._started is None:
            self._started = thread_time()
        late = thread_time() - self._started > self._seconds
        if self._steps < 0 or late:
            self._measure()
            if self._steps < 0 or thread_time() - self._started > self._seconds:
                raise TooCostly("takes too long on this conversation: loops within loops, or without end?")

    def _measure(self) -> None:
        """Learn the conversation's size, once, and make room for it."""
        if self._measured:
            return
        self._measured = True
        size = sum(map(self._weight, self._given.values()))
        self._steps += 32 * size
        self._characters += max(0, 64 * size - CHARACTERS)
        self._longest = max(LONGEST, 16 * size)
        self._seconds += SECONDS * size / 1e6

    def _weight(self, value: Any) -> int:
        """About how many characters ``value`` has when written out. A container is looked into once."""
        if isinstance(value, str):
            return len(value) + 2
        if isinstance(value, int):
            return 8 + int(value).bit_length() // 3
        if not (is_dict(value) or is_list(value)):
            return 32 if not isinstance(value, bytes) else len(value)
        known = self._weights.get(id(value))
        if known is not None:
            return known[1]
        weight = self._weight
        size = 2 + 2 * len(value)
        parts: Iterable[Any] = chain.from_iterable(value.items()) if is_dict(value) else value
        for part in parts:
            size += len(part) + 2 if isinstance(part, str) else weight(part)
        self._weights[id(value)] = (value, size)  # held on to, so that its id stays its own
        return size


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether ``value`` is a list, a tuple or the like."""
    return isinstance(value, (list, tuple)) or (isinstance(value, Sequence) and not isinstance(value, (str, bytes, range)))


def is_dict(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether ``value`` is an object."""
    return isinstance(value, (dict, Mapping))

"""Which blocks were ever stored where: what L is measured against, and the evidence for a change of worker and for a restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

REMEMBERED = 1 << 20
"""Names per generation. Two generations are kept, so between one and two million of the latest blocks."""


_STRIDE = 64
"""Names that are looked up in one go."""


class Seen:
    """A set of names that forgets the oldest. Adding and asking are one or two dictionary look-ups.

    Args:
        limit: Names per generation.
    """

    __slots__ = ("_limit", "_old", "_young")

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._young: set[int] = set()
        self._old: set[int] = set()

    def __contains__(self, name: int) -> bool:
        return name in self._young or name in self._old

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, names: Iterable[int]) -> None:
        """Remember these as the latest."""
        self._young.update(names)
        if len(self._young) > self._limit:
            self._old, self._young = self._young, set()

    def leading(self, names: Sequence[int]) -> int:
        """How many names from the front are in it."""
        young, old = self._young, self._old
        count = 0
        while count < len(names) and young.issuperset(names[count : count + _STRIDE]):  # most prompts are known almost whole
            count += _STRIDE
        if count >= len(names):
            return len(names)
        for name in names[count:]:
            if name not in young and name not in old:
                break
            count += 1
        return count


class WorkerHistory:
    """What one worker stored in its present life, and in the one before."""

    __slots__ = ("limit", "now", "past")

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit = limit
        self.now = Seen(limit)
        self.past = Seen(limit)

    def __contains__(self, name: int) -> bool:
        return name in self.now or name in self.past

    def restarted(self) -> None:
        """A new life begins."""
        self.past, self.now = self.now, Seen(self.limit)

"""Whether a conversation still begins with the messages of its last turn, told at a cost far below that of looking into them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Message = Mapping[str, Any]

_COMMA = ord(",")
_CONTENT = operator.itemgetter("content")


class Seen:
    """The messages of one conversation's last turn.

    Agents hand in the same message objects turn after turn, or copies of them. An object that comes back is taken for unchanged where its
    ``content`` is; copies must be equal.

    Args:
        printed: Copies must be the same as JSON instead, which is what a server sees: key order counts, and ``true`` is not ``1``.
    """

    __slots__ = ("_compares_print", "_contents", "_known", "_messages", "_next", "_printed")

    def __init__(self, *, printed: bool = True) -> None:
        self._compares_print = printed
        self._messages: list[Message] = []
        self._contents: list[object] = []
        self._printed: bytes | None = None
        """The messages as JSON without its last bracket, where that is known."""
        self._next: bytes | None = None
        """The same of the messages last asked about."""
        self._known = 0

    def __len__(self) -> int:
        return len(self._messages)

    def known(self, messages: Sequence[Message]) -> int:
        """How many leading messages are those of the last turn: all of that turn's, or 0."""
        self._next = None
        self._known = len(self._messages) if self._begins(messages) else 0
        return self._known

    def keep(self, messages: Sequence[Message]) -> None:
        """Take these for the last turn's; to be called after :meth:`known` was asked about them."""
        self._contents = [*self._contents[: self._known], *_contents(messages[self._known :])]
        self._messages = list(messages)
        self._printed, self._next = self._next, None

    def _begins(self, messages: Sequence[Message]) -> bool:
        size = len(self._messages)
        if not size or len(messages) < size:
            return False
        now = list(messages[:size])
        if all(map(operator.is_, now, self._messages)):
            return _contents(now) == self._contents
        return self._alike(messages, now) if self._compares_print else now == self._messages

    def _alike(self, messages: Sequence[Message], now: list[Message]) -> bool:
        mine = self._printed or _printed(self._messages)
        whole = _printed(messages)
        if mine is None or whole is None:
            return now == self._messages and repr(now) == repr(self._messages)
        self._next = whole
        return whole.startswith(mine) and (len(whole) == len(mine) or whole[len(mine)] == _COMMA)


def _contents(messages: Sequence[Message]) -> list[object]:
    try:
        return list(map(_CONTENT, messages))
    except KeyError:  # a message of tool calls alone
        return [message.get("content") for message in messages]


def _printed(messages: Sequence[Message]) -> bytes | None:
    """As JSON, which tells ``1`` from ``1.0`` and ``True``, and one key order from another; None where JSON cannot say it."""
    try:
        return msgspec.json.encode(messages)[:-1]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None

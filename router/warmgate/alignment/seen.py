"""Whether a conversation still begins with the messages of its last turn, told at a cost far below that of looking into them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from warmgate.foreign import mapping

Message = Mapping[str, Any]

_COMMA = ord(",")


class Seen:
    """The messages of one conversation's last turn.

    Agents hand in the same message objects turn after turn, or copies of them. Objects that come back are compared with copies of what
    they held, texts shared: where nothing was edited in place each text is the very same object, so none is read. Copies must be equal.

    Args:
        printed: Copies must be the same as JSON instead, which is what a server sees: key order counts, and ``true`` is not ``1``.
    """

    __slots__ = ("_compares_print", "_held", "_known", "_messages", "_next", "_printed")

    def __init__(self, *, printed: bool = True) -> None:
        self._compares_print = printed
        self._messages: list[Message] = []
        """The objects; not kept where copies need no more than be equal."""
        self._held: list[object] = []
        """What the messages held, down to the last list; an agent may edit any of them in place."""
        self._printed: bytes | None = None
        """The messages as JSON without its last bracket, where that is known."""
        self._next: bytes | None = None
        """The same of the messages last asked about."""
        self._known = 0

    def __len__(self) -> int:
        return len(self._held)

    def known(self, messages: Sequence[Message]) -> int:
        """How many leading messages are those of the last turn: all of that turn's, or 0."""
        self._next = None
        self._known = len(self._held) if self._begins(messages) else 0
        return self._known

    def told(self, known: int) -> int:
        """Take another's word for :meth:`known`, who has just compared what these messages are made from."""
        self._next = None
        self._known = known if known == len(self._held) else 0
        return known

    def keep(self, messages: Sequence[Message]) -> None:
        """Take these for the last turn's; to be called after :meth:`known` was asked about them, or :meth:`told`."""
        del self._held[self._known :]
        self._held.extend(map(_copied, messages[self._known :]))
        if self._compares_print:
            self._messages = list(messages)
        self._printed, self._next = self._next, None

    def _begins(self, messages: Sequence[Message]) -> bool:
        size = len(self._held)
        if not size or len(messages) < size:
            return False
        now = messages[:size] if isinstance(messages, list) else list(messages[:size])
        if not self._compares_print or all(map(operator.is_, now, self._messages)):
            return _same(now, self._held)
        return self._alike(messages, now)

    def _alike(self, messages: Sequence[Message], now: list[Message]) -> bool:
        mine = self._printed or _printed(self._held)
        whole = _printed(messages)
        if mine is None or whole is None:
            return _same(now, self._held) and repr(now) == repr(self._held)
        self._next = whole
        return whole.startswith(mine) and (len(whole) == len(mine) or whole[len(mine)] == _COMMA)


def _same(now: list[Message], held: list[object]) -> bool:
    try:
        return now == held
    except RecursionError:  # nested without end
        return False


def _copied(value: Any) -> Any:
    """A copy of all that can be edited in place: mappings as dicts, lists, tuples and sets with what is in them. Leaves are shared."""
    try:
        return _copy(value)
    except RecursionError:
        return object()  # equal to nothing, so such a message is never known


def _copy(value: Any) -> Any:
    kind = type(cast("object", value))
    if kind is str or value is None:
        return value
    if kind is dict:
        return {key: one if type(one) is str else _copy(one) for key, one in value.items()}
    if kind is list:
        return [_copy(one) for one in value]
    if kind is tuple:
        return tuple([_copy(one) for one in value])
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in mapping(cast("object", value)).items()}
    return set(cast("set[object]", value)) if isinstance(value, set) else value


def _printed(messages: Sequence[Any]) -> bytes | None:
    """As JSON, which tells ``1`` from ``1.0`` and ``True``, and one key order from another; None where JSON cannot say it."""
    try:
        return msgspec.json.encode(messages)[:-1]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None

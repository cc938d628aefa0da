"""Conversations that grow: prompts that share their messages, and prompts continued from a provider's stored response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import overload

from warmgate.replay.trace import Message


class Grown(Sequence[Message]):
    """The first ``size`` messages of a conversation that others go on growing, without a copy.

    Args:
        messages: The growing list. Only appended to; messages already in it never change.
        size: Messages of this prompt, at most ``len(messages)``.
    """

    __slots__ = ("_messages", "_size")

    def __init__(self, messages: list[Message], size: int) -> None:
        self._messages = messages
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Message]:
        return islice(self._messages, self._size)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._size)
            return self._messages[start:stop] if step == 1 else [self._messages[i] for i in range(start, stop, step)]
        if not -self._size <= index < self._size:
            raise IndexError(index)
        return self._messages[index + self._size if index < 0 else index]

    def extends(self, earlier: Sequence[Message]) -> bool:
        """Whether this is a later prompt of the same conversation, told without looking at its messages."""
        return isinstance(earlier, Grown) and self._goes_on(earlier._messages, earlier._size)  # noqa: SLF001 -- of its own class

    def _goes_on(self, messages: list[Message], size: int) -> bool:
        return messages is self._messages and size <= self._size

    def __repr__(self) -> str:
        return f"Grown({list(self)!r})"


@dataclass(slots=True)
class Threads:
    """Conversations that a provider keeps: a request sends its newest messages and the id of the response before them.

    The system prompt belongs to each request alone (OpenAI's Responses API drops ``instructions`` between turns).
    """

    _kept: dict[str, list[Message]] = field(default_factory=dict[str, list[Message]])

    def whole(self, previous: str, sent: Sequence[Message]) -> list[Message] | None:
        """The prompt the model saw, or ``None`` where the response it goes on from is not in the trace."""
        if (before := self._kept.get(previous)) is None:
            return None
        lead = _lead(sent)
        return [*lead, *before, *sent[len(lead) :]]

    def keep(self, response: str, prompt: Sequence[Message], answer: Message | None) -> None:
        """Remember a conversation up to the answer with the id ``response``."""
        if answer is not None:
            self._kept[response] = [*prompt[len(_lead(prompt)) :], answer]


def _lead(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[:1] if messages and messages[0].get("role") in ("system", "developer") else ()

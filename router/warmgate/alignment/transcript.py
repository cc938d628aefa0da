"""An agent's prompt text, kept up to date turn by turn at a cost that follows the new messages.

Most templates print a longer conversation as the shorter one plus the new messages. Some do not always: thinking is stripped from earlier
turns once a new user turn begins, tool results are grouped. So the new messages are rendered behind a short stretch of context, and whether
that equals the whole rendering is checked against a whole rendering once for each *shape* of growth (roles, tool calls, thinking, tools
present); shapes that failed are rendered whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmgate.alignment.seen import Seen
from warmgate.alignment.template import ChatTemplate, arguments
from warmgate.errors import TemplateError
from warmgate.foreign import mappings

Message = Mapping[str, Any]

STUB: Message = {"role": "user", "content": "x"}
"""Stands for the turn that a stretch of context belongs to."""


@dataclass(slots=True)
class Growth:
    """What a turn added to a transcript.

    Attributes:
        text: The whole prompt text without its generation prompt.
        kept: Leading characters that are the previous text's, unchanged.
        rendered: Messages that went through the template for this turn.
    """

    text: str
    kept: int
    rendered: int


@dataclass(slots=True)
class Transcript:
    """The rendered conversation of one session.

    Args:
        template: The agent model's chat template.
        shapes: Verdicts on shapes of growth, shared by all sessions of a (model, template).
    """

    template: ChatTemplate
    shapes: dict[tuple[object, ...], bool]
    text: str = ""
    _seen: Seen = field(default_factory=Seen)
    _messages: list[Message] = field(default_factory=list[Message])
    _tools: Sequence[Mapping[str, Any]] = ()
    _kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    _thinks: bool = False

    def known(self, messages: Sequence[Message]) -> int:
        """How many leading messages are those rendered last: all of these, or 0."""
        return self._seen.known(messages)

    def grow(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any], known: int | None = None
    ) -> Growth:
        """Bring the transcript to ``messages``.

        Args:
            messages: The conversation.
            tools: Its tool schemas.
            kwargs: Its template arguments.
            known: What :meth:`known` just said of ``messages``, where it was asked.

        Raises:
            TemplateError: The template refuses the conversation; the transcript keeps its last good state.
        """
        kwargs = arguments(kwargs)
        before = self.text
        size = self.known(messages) if known is None else self._seen.told(known)
        news = messages[size:]
        if not (size and _printed_alike(tools, self._tools) and dict(kwargs) == dict(self._kwargs)):
            return self._whole(messages, tools, kwargs, before)
        if not news:
            return Growth(before, len(before), 0)
        thinks = self._thinks or any(map(_thinks, news))
        shape = (bool(tools), thinks, *map(_shape, self._tail()), None, *map(_shape, news))
        fits = self.shapes.get(shape)
        suffix = None if fits is False else self._suffix(news, kwargs)
        if suffix is None:
            self.shapes[shape] = False
            return self._whole(messages, tools, kwargs, before)
        if fits is None:
            growth = self._whole(messages, tools, kwargs, before)
            self.shapes[shape] = growth.text == before + suffix
            return growth
        kept = len(before)
        del before  # a string that nobody else holds grows in place; a fresh copy of a long one costs more than all else here
        text, self.text = self.text, ""
        text += suffix
        self.text = text
        self._keep(messages)
        self._thinks = thinks
        return Growth(text, kept, len(news))

    def _keep(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)
        self._seen.keep(messages)

    def _tail(self) -> list[Message]:
        """The last messages, back to the last user or assistant message: what the rendering of the next ones may depend on."""
        for index in range(len(self._messages) - 1, -1, -1):
            if self._messages[index].get("role") in ("user", "assistant"):
                return self._messages[index:]
        return self._messages[-1:]

    def _suffix(self, news: Sequence[Message], kwargs: Mapping[str, Any]) -> str | None:
        context = self._tail()
        if context[0].get("role") != "user":
            context = [STUB, *context]
        try:
            short = self.template.render(context, None, add_generation_prompt=False, **kwargs)
            long = self.template.render([*context, *news], None, add_generation_prompt=False, **kwargs)
        except TemplateError:
            return None
        return long[len(short) :] if long.startswith(short) else None

    def _whole(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any], before: str) -> Growth:
        text = self.template.render(messages, tools, add_generation_prompt=False, **kwargs)
        self.text = text
        self._keep(messages)
        self._tools, self._kwargs = tools, dict(kwargs)
        self._thinks = any(map(_thinks, messages))
        return Growth(text, len(before) if text.startswith(before) else 0, len(messages))


def _shape(message: Message) -> tuple[object, ...]:
    """What a template's rendering of a message may depend on, beside its text."""
    content = message.get("content")
    calls = message.get("tool_calls")
    kind = "none" if content is None else "empty" if content == "" else type(content).__name__
    blank = isinstance(content, str) and content != content.strip()
    return (message.get("role"), kind, blank, len(calls) if calls else 0, _thinks(message), *sorted(k for k in message if k != "content"))


def _thinks(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, list):
        return any(part.get("type") in ("thinking", "reasoning") for part in mappings(message.get("content")))
    return bool(message.get("reasoning_content") or message.get("reasoning")) or (isinstance(content, str) and "</think>" in content)


def _same(a: Message, b: Message) -> bool:
    """Equal, and printed alike: a template prints dictionaries in key order."""
    return a is b or (a == b and repr(a) == repr(b))


def _printed_alike(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    return a is b or (len(a) == len(b) and all(map(_same, a, b)))

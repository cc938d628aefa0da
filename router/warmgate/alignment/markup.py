r"""Forged control markup in message content.

A message that spells out a template's control markup becomes control tokens when it is rendered: a tool's output could close its own turn
and open a system turn. Found before rendering, such content is flagged, and can be rewritten visibly where it enters the conversation, so
that the agent's prompt and the decision's still agree.
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmgate.alignment.recipe import Recipe
from warmgate.alignment.seen import Seen
from warmgate.alignment.template import flat_part
from warmgate.foreign import items

MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z][A-Z_]{1,30}\]|</?s>")
"""What control markup looks like in templates: ``<|im_start|>``, ``</think>``, ``[INST]``."""

OWN_OUTPUT = ("think", "tool_call", "tools", "function", "parameter", "arg_key", "arg_value", "|channel", "channel|", "|tool_call")
"""Words of markup that a model's own messages hold rightly. Turn markup is never among them."""

_BRACKETS = str.maketrans(
    {"＜": "<", "＞": ">", "‹": "<", "›": ">", "〈": "<", "〉": ">", "⟨": "<", "⟩": ">", "｜": "|", "∣": "|", "ǀ": "|"}
)


@dataclass(frozen=True, slots=True)
class Forgery:
    """Control markup found in a message.

    Attributes:
        message: Index of the message from 0.
        field: ``content``, ``tool_calls``, ``reasoning_content`` or ``name``.
        marker: The control markup it spells or imitates.
        lookalike: Whether it only imitates it (other brackets, invisible characters, other case): no control token, but a model may
            read it as one.
    """

    message: int
    field: str
    marker: str
    lookalike: bool


class Markup:
    """The control markup of one (tokenizer, template).

    Args:
        markers: Strings that become control tokens: the tokenizer's added tokens and the markup the template prints.
    """

    def __init__(self, markers: Iterable[str]) -> None:
        self.markers = tuple(sorted({m for m in markers if len(m) > 1}, key=lambda m: (-len(m), m)))
        self._exact = _any_of(self.markers)
        folded = {_fold(m): m for m in self.markers}
        folded.pop("", None)
        self._folded = folded
        self._similar = _any_of(sorted(folded, key=len, reverse=True))

    @classmethod
    def of(cls, recipe: Recipe, added_tokens: Iterable[str] = ()) -> Markup:
        """Markup of a template taken apart by :func:`~warmgate.alignment.recipe.learn`, with the tokenizer's added tokens where known."""
        printed = (recipe.before, recipe.between, recipe.after, recipe.before_user, recipe.after_user, recipe.opens_user)
        return cls([*(m for text in printed for m in MARKER.findall(text)), *(t for t in added_tokens if not t.isspace())])

    def find(self, messages: Sequence[Mapping[str, Any]], start: int = 0) -> list[Forgery]:
        """Forged markup in ``messages[start:]``, at most one finding a field.

        The parts of one message are judged joined, since templates join them. Thinking and tool-call markup in an assistant's own
        messages is not forged.
        """
        found: list[Forgery] = []
        for index in range(start, len(messages)):
            message = messages[index]
            own = message.get("role") == "assistant"
            for name, text in _fields(message):
                marker = self._in(text, own=own)
                if marker is not None:
                    found.append(Forgery(index, name, *marker))
        return found

    def neutralise(self, text: str) -> str:
        r"""Rewrite control markup visibly: ``<|im_start|>`` becomes ``<\|im_start|>``. Text without any comes back as it is."""
        if self._exact is not None:
            text = self._exact.sub(lambda m: f"{m[0][0]}\\{m[0][1:]}", text)
        if self._similar is not None and self._imitated(text, own=False) is not None:
            text = re.sub(r"([<＜‹〈⟨\[])(?!\\)", r"\1\\", _visible(text))
        return text

    def _in(self, text: str, *, own: bool) -> tuple[str, bool] | None:
        if self._exact is not None:
            for match in self._exact.finditer(text):
                if not (own and _own_output(match[0])):
                    return match[0], False
        marker = self._imitated(text, own=own)
        return None if marker is None else (marker, True)

    def _imitated(self, text: str, *, own: bool) -> str | None:
        if self._similar is None or not any(c in text for c in "<＜‹〈⟨["):
            return None
        for match in self._similar.finditer(_fold(text)):
            marker = self._folded[match[0]]
            if not (own and _own_output(marker)):
                return marker
        return None


class Lookout:
    """Finds forged markup turn by turn: messages of a conversation that were looked at in an earlier turn are not looked at again.

    Safe across threads.

    Args:
        markup: What to look for.
        sessions: Conversations remembered; a forgotten one is looked at whole.
    """

    def __init__(self, markup: Markup, sessions: int = 4096) -> None:
        self._markup = markup
        self._limit = sessions
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[Seen, list[Forgery]]] = OrderedDict()

    def find(self, session: str, messages: Sequence[Mapping[str, Any]]) -> list[Forgery]:
        """What :meth:`Markup.find` finds in all of ``messages``."""
        with self._lock:
            held = self._sessions.get(session)
            seen, found = held if held is not None else (Seen(printed=False), [])
            known = seen.known(messages)
            found = [*(found if known else ()), *self._markup.find(messages, known)]
            seen.keep(messages)
            self._sessions[session] = seen, found
            self._sessions.move_to_end(session)
            while len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)
            return found


def _fields(message: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    content = message.get("content")
    yield "content", content if isinstance(content, str) else "".join(map(flat_part, items(content)))
    for name in ("reasoning_content", "reasoning", "name", "tool_call_id"):
        value = message.get(name)
        if isinstance(value, str):
            yield name, value
    if calls := message.get("tool_calls"):
        yield "tool_calls", json.dumps(calls, ensure_ascii=False, default=str)


def _own_output(marker: str) -> bool:
    return marker.strip("</>").split("=")[0] in OWN_OUTPUT


def _any_of(texts: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, texts))) if texts else None


def _visible(text: str) -> str:
    """Without characters that print nothing (format characters, variation selectors)."""
    return "".join(c for c in text if unicodedata.category(c) != "Cf" and not "\ufe00" <= c <= "\ufe0f")


def _fold(text: str) -> str:
    """One spelling for all that looks alike: compatibility forms, invisible characters, brackets, blanks inside, case."""
    text = unicodedata.normalize("NFKC", _visible(text).translate(_BRACKETS)).translate(_BRACKETS)
    return re.sub(r"(?<=[<|\[/])\s+|\s+(?=[|>\]])", "", text).casefold()

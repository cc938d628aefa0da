r"""Forged control markup in what a turn hands over.

Text that spells out a template's control markup becomes control tokens when it is rendered: a tool's output could close its own turn
and open a system turn. Found before rendering, such text is flagged, and can be rewritten visibly where it enters the conversation, so
that the agent's prompt and the decision's still agree.

What counts as control markup (:class:`Markup`): the floor of :mod:`warmgate.alignment.markers`, whatever the template, and above it what
the model's own template and tokenizer hold. A false alarm costs little: for one turn no answer widens a mount or allows a call.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from warmgate.alignment.fields import message_fields, strings
from warmgate.alignment.markers import FLOOR, KNOWN, MARKER, fold, opens, own_output, printed_by
from warmgate.alignment.recipe import Recipe
from warmgate.alignment.seen import Seen
from warmgate.alignment.template import ChatTemplate
from warmgate.turn import ProposedCall, Turn

TOOLS = -1
"""``Forgery.message`` of what stands in the tools, the proposed calls or the template's arguments; the field says which."""

AUTHORS = ("assistant", "system", "developer")
"""Roles whose messages may name a model's own output markup: the model's own, and the application's instructions on how to answer."""

LISTS = 64
"""Lists of tools remembered as searched."""


@dataclass(frozen=True, slots=True)
class Forgery:
    """Control markup found in a message.

    Attributes:
        message: Index of the message from 0; :data:`TOOLS` where it stands in no message.
        field: Name of the message's field, or ``tools``, ``proposed_calls``, ``template_kwargs``.
        marker: The control markup it spells or imitates.
        lookalike: Whether it only imitates it (other brackets, letters or case, invisible characters, HTML entities): no control token,
            but a model may read it as one.
    """

    message: int
    field: str
    marker: str
    lookalike: bool

    @property
    def where(self) -> str:
        """The place, for a person."""
        return self.field.replace("_", " ") if self.message < 0 else f"message {self.message} ({self.field})"


class Markup:
    """The control markup of one (tokenizer, template), above the floor.

    Args:
        markers: Strings that become control tokens: the tokenizer's added tokens and the markup the template prints.
    """

    def __init__(self, markers: Iterable[str] = ()) -> None:
        self.markers = tuple(sorted({m for m in markers if len(m) > 1 and not m.isspace()}, key=lambda m: (-len(m), m)))
        beyond = [m for m in self.markers if FLOOR.fullmatch(m) is None]
        self._bracketed = all("<" in m or "[" in m for m in beyond)
        """Whether text without an opening bracket can hold none of them."""
        self._exact = re.compile("|".join([*map(re.escape, beyond), FLOOR.pattern]))
        self._folded = {fold(m).casefold(): m for m in (*KNOWN, *self.markers)}
        self._folded.pop("", None)
        # Words in square brackets are held against their case: a[inst] and [think] are ordinary code.
        squares = sorted({fold(m) for m in (*KNOWN, *self.markers) if m.startswith("[")}, key=len, reverse=True)
        others = sorted((f for f in self._folded if not f.startswith("[")), key=len, reverse=True)
        self._similar = re.compile("|".join([*(f"(?i:{re.escape(f)})" for f in others), *map(re.escape, squares)]))

    @classmethod
    def of(cls, recipe: Recipe, added_tokens: Iterable[str] = ()) -> Markup:
        """Markup of a template taken apart by :func:`~warmgate.alignment.recipe.learn`, with the tokenizer's added tokens where known."""
        printed = (recipe.before, recipe.between, recipe.after, recipe.before_user, recipe.after_user, recipe.opens_user)
        return cls([*(m for text in printed for m in MARKER.findall(text)), *added_tokens])

    @classmethod
    def of_template(cls, template: ChatTemplate, recipe: Recipe | None = None, added_tokens: Iterable[str] = ()) -> Markup:
        """All that a template prints by its own text, turns of tools included, beside what :meth:`of` finds."""
        own = cls.of(recipe, added_tokens).markers if recipe is not None else tuple(added_tokens)
        return cls([*own, *printed_by(template)])

    def find(self, messages: Sequence[Mapping[str, Any]], start: int = 0) -> list[Forgery]:
        """Forged markup in ``messages[start:]``, at most one finding a field.

        The text parts of one message are judged joined, since templates join them; the arguments of tool calls also as what their JSON
        means, since templates parse them. Thinking and tool-call markup in an assistant's own messages is not forged.
        """
        found: list[Forgery] = []
        for index in range(start, len(messages)):
            own = messages[index].get("role") in AUTHORS
            found.extend(Forgery(index, name, *marker) for name, marker in self._first(message_fields(messages[index]), own=own))
        return found

    def find_in(self, what: Any, field: str) -> list[Forgery]:
        """The first forged markup in the strings and keys of anything else: tools, proposed calls, facts."""
        return [Forgery(TOOLS, name, *marker) for name, marker in self._first(((field, text) for text in strings(what)), own=False)]

    def neutralise(self, text: str) -> str:
        r"""Rewrite control markup visibly: ``<|im_start|>`` becomes ``<\|im_start|>``. Text without any comes back as it is."""
        text = self._exact.sub(lambda m: f"{m[0][0]}\\{m[0][1:]}", text)
        if self._imitated(text, own=False) is not None:
            text = opens(text)
            if self._imitated(text, own=False) is not None:  # an entity written with invisible characters inside
                text = opens(fold(text))
        return text

    def _first(self, fields: Iterable[tuple[str, str]], *, own: bool) -> Iterable[tuple[str, tuple[str, bool]]]:
        """The first marker of each field."""
        found: dict[str, tuple[str, bool]] = {}
        for name, text in fields:
            if name not in found and (marker := self._in(text, own=own)) is not None:
                found[name] = marker
        return found.items()

    def _in(self, text: str, *, own: bool) -> tuple[str, bool] | None:
        if self._bracketed and text.isascii() and "<" not in text and "[" not in text and "&" not in text:
            return None
        for match in self._exact.finditer(text):
            if not (own and own_output(match[0])):
                meant = self._folded.get(fold(match[0]).casefold(), match[0])  # <|IM_START|> looks like a token and is none
                return meant, meant != match[0]
        marker = self._imitated(text, own=own)
        return None if marker is None else (marker, True)

    def _imitated(self, text: str, *, own: bool) -> str | None:
        folded = fold(text)
        if self._bracketed and "<" not in folded and "[" not in folded:
            return None
        for match in self._similar.finditer(folded):
            marker = self._folded[match[0].casefold()]
            if not (own and own_output(marker)):
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
        self._lists: OrderedDict[bytes, list[Forgery]] = OrderedDict()
        self._latest: tuple[bytes, list[Forgery]] = (b"", [])

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

    def find_turn(self, turn: Turn) -> list[Forgery]:
        """All of a turn: its messages, the tools it could be given, the calls to judge, the arguments of its template."""
        found = [*self.find(turn.session, turn.messages), *self._tools(turn.tools)]
        if turn.proposed_calls:
            found += self._markup.find_in([_shown(call) for call in turn.proposed_calls], "proposed_calls")
        if turn.template_kwargs:
            found += self._markup.find_in(turn.template_kwargs, "template_kwargs")
        return found

    def forget(self, session: str) -> None:
        """Drop what is kept of a session."""
        with self._lock:
            self._sessions.pop(session, None)

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> list[Forgery]:
        if not tools:
            return []
        try:
            text = msgspec.json.encode(tools)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return self._markup.find_in(tools, "tools")
        latest = self._latest
        if text == latest[0]:  # most turns bring the same list again, and comparing is quicker than hashing
            return latest[1]
        key = hashlib.blake2b(text, digest_size=16).digest()
        with self._lock:
            found = self._lists.get(key)
        if found is None:
            found = self._markup.find_in(tools, "tools")
            with self._lock:
                self._lists[key] = found
                while len(self._lists) > LISTS:
                    self._lists.popitem(last=False)
        self._latest = text, found
        return found


def _shown(call: ProposedCall) -> tuple[object, ...]:
    return (call.id, call.name, call.arguments)

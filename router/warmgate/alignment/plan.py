"""From a turn to the state a decision is asked on: aligned where the template allows it, JSON with a named reason where not."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import msgspec

from warmgate.alignment.opening import ending
from warmgate.alignment.recipe import THINKING_OFF, Recipe, closes_user, learn, opens_user
from warmgate.alignment.served import Served
from warmgate.alignment.template import ChatTemplate, arguments
from warmgate.alignment.transcript import Message, Transcript
from warmgate.errors import TemplateError
from warmgate.foreign import items, mapping, mappings, sendable

MEDIA = ("image_url", "image", "input_audio", "audio", "video_url", "video")
"""Content parts that systemone puts before all text, so that a prompt holding them cannot be restated."""

DEEPEST = 64
"""Levels of a message that a JSON state shows; deeper ones, and a value that holds itself, are left out."""

OPENINGS = 256
"""Generation prompts held; they differ by the shape of a conversation's end, and by arguments, which may come from users."""


@dataclass(frozen=True, slots=True)
class State:
    """What a decision is asked on.

    Attributes:
        kind: ``aligned`` or ``json``.
        instructions: System text of the decision; ``None`` to leave the field out.
        state: Text of the decision's user turn, before the question.
        shared_characters: Leading characters that the decision's prompt and the agent's prompt have in common, by construction.
        reason: Why the state is not aligned; ``None`` if it is.
        rendered: Messages that went through the template for this turn.
        text: The agent's prompt text without its generation prompt, also where the template cannot be aligned: engines that extend a prompt
            rather than restate it need no more. Empty where it could not be rendered.
    """

    kind: Literal["aligned", "json"]
    instructions: str | None
    state: str
    shared_characters: int
    reason: str | None = None
    rendered: int = 0
    text: str = ""


@dataclass(slots=True)
class _Session:
    transcript: Transcript
    served: Served = field(default_factory=Served)
    split: tuple[str | None, int] | None = None
    """Instructions, and where in the text the state begins."""
    checked: bool = False
    grown: int = -1
    """Messages in the transcript, where its last growth went well."""


class Planner:
    """Plans decision states for one (model, chat template).

    Args:
        template: The agent model's chat template.
        gate_kwargs: Template arguments of the decision itself; thinking is off there.
        sessions: Sessions whose transcripts are kept; older ones are rendered whole when they return.

    Safe across threads as long as each call is made under :attr:`lock` (:func:`warmgate.alignment.fetch.drive` does so).
    """

    def __init__(self, template: ChatTemplate, gate_kwargs: Mapping[str, Any] = THINKING_OFF, sessions: int = 4096) -> None:
        self.template = template
        self.lock = threading.Lock()
        self.gate_kwargs = dict(gate_kwargs)
        self.recipe: Recipe | None = None
        self.refusal: str | None = None
        try:
            self.recipe = learn(template, gate_kwargs)
        except TemplateError as fault:
            self.refusal = fault.what
        self.opens_user = self.recipe.opens_user if self.recipe is not None else opens_user(template, gate_kwargs)
        self.closes_user = self.recipe.after_user if self.recipe is not None else closes_user(template, gate_kwargs)
        self._openings: dict[str, str] = {}
        self._limit = sessions
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._shapes: dict[tuple[object, ...], bool] = {}

    def plan(
        self,
        session: str,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> State:
        """The state for the decision before the agent's call on ``messages`` and ``tools``.

        Args:
            session: Key of the agent conversation.
            messages: The messages of the agent's call about to happen.
            tools: Its tool schemas, in the order sent.
            template_kwargs: Its template arguments.
        """
        held = self._held(session)
        known = held.served.known(messages)
        if (part := next((p for m in messages[known:] for p in _parts(m) if p in MEDIA), None)) is not None:
            return json_state(messages, f"a message holds {part}, and media are placed before all text")
        shown = held.served.messages(messages, known)
        told = known if known == held.grown else None  # else the transcript looks for itself
        held.grown = -1
        try:
            growth = held.transcript.grow(shown, held.served.tools(tools), template_kwargs or {}, told)
            held.grown = len(messages)
        except TemplateError as fault:
            return json_state(messages, f"the chat template refuses the conversation: {fault.what}")
        text = growth.text
        if self.recipe is None:
            return json_state(messages, f"the chat template cannot be aligned: {self.refusal}", growth.rendered, text)
        if held.split is None or growth.kept < held.split[1]:
            held.checked = False
            held.split = self._split(text)
        if held.split is None:
            return json_state(messages, self._unaligned(text), growth.rendered, text)
        instructions, start = held.split
        state = text[start:]
        state += self.recipe.opens_user  # in place: another copy of a long text costs more than all else here
        if not held.checked:
            prompt = self.prompt(instructions, state, "?")
            if not prompt.startswith(text):
                why = f"the template alters restated text at character {_agree(prompt, text):,}"
                return json_state(messages, why, growth.rendered, text)
            held.checked = True
        return State("aligned", instructions, state, len(text), None, growth.rendered, text)

    def prompt(self, instructions: str | None, state: str, question: str) -> str:
        """The decision's prompt text as ``/v1/systemone`` renders it."""
        return self.template.render(decision_messages(instructions, state, question), **self.gate_kwargs)

    def opening(self, messages: Sequence[Message], template_kwargs: Mapping[str, Any] | None = None) -> str:
        """What the agent's generation prompt appends behind messages that end like these; empty where it is nothing or cannot be told.

        Rendered once for each shape of an end (:mod:`.opening`).
        """
        probe, given = ending(messages), arguments(template_kwargs or {})
        key = repr((probe, given))
        found = self._openings.get(key)
        if found is None:
            try:
                short = self.template.render(probe, None, add_generation_prompt=False, **given)
                long = self.template.render(probe, None, add_generation_prompt=True, **given)
            except TemplateError:
                short, long = "", ""
            if len(self._openings) > OPENINGS:
                self._openings.clear()
            found = self._openings[key] = long[len(short) :] if long.startswith(short) else ""
        return found

    def opened(
        self, text: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], template_kwargs: Mapping[str, Any] | None = None
    ) -> str | None:
        """The same by rendering the whole conversation, for openings that depend on more than its end; ``None`` where it cannot be told.

        Args:
            text: The conversation's text without its generation prompt.
            messages: The conversation.
            tools: Its tool schemas.
            template_kwargs: Its template arguments.
        """
        served = Served()
        try:
            whole = self.template.render(
                served.messages(messages), served.tools(tools), add_generation_prompt=True, **arguments(template_kwargs or {})
            )
        except TemplateError:
            return None
        return whole[len(text) :] if whole.startswith(text) else None

    def forget(self, session: str) -> None:
        """Drop what is kept of a session."""
        self._sessions.pop(session, None)

    def _held(self, session: str) -> _Session:
        held = self._sessions.get(session)
        if held is None:
            held = self._sessions[session] = _Session(Transcript(self.template, self._shapes))
            while len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session)
        return held

    def _split(self, text: str) -> tuple[str | None, int] | None:
        """Cut the agent's text into instructions and state; with a system turn if it has one, else without."""
        assert self.recipe is not None
        before, between = self.recipe.before, self.recipe.between
        if text.startswith(before):
            cut = text.find(between, len(before))
            # a first user turn without a system turn may also begin with A and hold a B further on, between two turns
            if cut >= 0 and not (text.startswith(self.recipe.before_user) and len(self.recipe.before_user) > len(before)):
                return text[len(before) : cut], cut + len(between)
        if text.startswith(self.recipe.before_user):
            return None, len(self.recipe.before_user)
        return None

    def _unaligned(self, text: str) -> str:
        assert self.recipe is not None
        if not text.startswith(self.recipe.before):
            at = _agree(text, self.recipe.before)
            return f"the agent's prompt begins otherwise than a decision's, at character {at:,}"
        return "the agent's prompt has no place where a user turn begins after the system text"


def decision_messages(instructions: str | None, state: str, question: str) -> list[Message]:
    """The conversation that ``/v1/systemone`` renders."""
    turns: list[Message] = [{"role": "user", "content": f"{state}\n\n{question}"}]
    return turns if instructions is None else [{"role": "system", "content": instructions}, *turns]


def json_state(messages: Sequence[Message], reason: str, rendered: int = 0, text: str = "") -> State:
    """The conversation as JSON Lines, append-only: a later state begins with the earlier one, so decisions share with each other."""
    lines = (msgspec.json.encode(sendable(_plain(message, ())), order="deterministic").decode() for message in messages)
    return State("json", None, "\n".join(lines), 0, reason, rendered, text)


def _plain(value: Any, within: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (Mapping, list, tuple)):
        if id(cast("object", value)) in within or len(within) > DEEPEST:
            return "…"
        within = (*within, id(cast("object", value)))
        if isinstance(value, Mapping):
            return {str(k): _plain(v, within) for k, v in mapping(value).items() if v is not None}
        return [_plain(v, within) for v in items(value)]
    return str(value)


def _parts(message: Message) -> list[str]:
    return [str(part.get("type")) for part in mappings(message.get("content"))]


def _agree(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

"""The state of a turn, asynchronously: which planner serves the model, does the server agree, and has it kept agreeing?

One :class:`Planning` per gate. A model's template is given by the settings or fetched once from its server (:mod:`.fetch`); each kind of
turn is checked once by the server's own ids (:mod:`.verify`); every agent call that is reported back is compared with its prediction
(:mod:`.drift`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmgate.alignment.drift import Cause, Drift, cause_of
from warmgate.alignment.fetch import drive, fetch
from warmgate.alignment.markers import MARKER, UNKNOWN, added_tokens
from warmgate.alignment.markup import Forgery, Lookout, Markup
from warmgate.alignment.plan import OPENINGS, Planner, State, json_state
from warmgate.alignment.remote import Ids, Remote
from warmgate.alignment.template import ChatTemplate
from warmgate.alignment.verify import Checked, kind_of_turn, verify
from warmgate.engines._base import AgentPrompt
from warmgate.engines.loops import PerLoop
from warmgate.errors import EngineError, RouteAbsent, TemplateError
from warmgate.turn import Turn

RETRY_S = 60.0
"""Until a server that gave no template is asked again."""

COUNTED = 4096
"""Sessions whose token counts are kept; others are counted whole when they return."""

PROBE: Sequence[Mapping[str, Any]] = ({"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Two."})
"""A fixed conversation: its ids change when the template does."""


@dataclass(frozen=True, slots=True)
class Planned:
    """How a turn is asked about.

    Attributes:
        state: What engines that render a prompt themselves are given.
        prompt: What engines that extend the agent's prompt are given; ``None`` where it is not known.
        notes: What a person should know.
    """

    state: State
    prompt: AgentPrompt | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """A reported prompt length beside the predicted one.

    Attributes:
        predicted: Tokens; ``None`` where they could not be counted.
        opening: How many of them are the generation prompt's.
        cause: Why they disagree; ``None`` where they agree or nothing is known.
        note: What a person should know.
    """

    predicted: int | None
    opening: int = 0
    cause: Cause | None = None
    note: str | None = None


@dataclass(slots=True)
class _Model:
    planner: Planner | None = None
    given: bool = False
    lookout: Lookout | None = None
    why_not: str = ""
    retry_at: float = 0.0
    probe: str = ""
    checks: dict[tuple[object, ...], Checked] = field(default_factory=dict[tuple[object, ...], Checked])
    drift: Drift = field(default_factory=Drift)
    counted: OrderedDict[str, tuple[int, int, int]] = field(default_factory=OrderedDict[str, tuple[int, int, int]])
    openings: dict[str, int] = field(default_factory=dict[str, int])


class Planning:
    """Plans the decisions of one gate. Usable from several event loops.

    Args:
        template: The agent model's chat template; without one it is fetched.
        extend: Whether an engine that extends the agent's prompt is in use (``prefix_read``).
        clock: Seconds; a test hands in its own.
    """

    def __init__(self, template: ChatTemplate | None = None, *, extend: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._template = template
        self._extend = extend
        self._clock = clock
        self._models: dict[str, _Model] = {}
        self._made = threading.Lock()
        self._locks: PerLoop[dict[str, asyncio.Lock]] = PerLoop(dict)
        self._common = Lookout(Markup(UNKNOWN.values()))
        self._shared = Planner(template) if template is not None else None

    def forged(self, model: str, turn: Turn) -> list[Forgery]:
        """Forged control markup in a turn for this model: its own, or that of the families in wide use where its own is not known yet."""
        lookout = self._model(model).lookout
        return (lookout if lookout is not None else self._common).find_turn(turn)

    def drift(self, model: str) -> Drift:
        """How predictions for this model have fared."""
        return self._model(model).drift

    def restarted(self, model: str) -> None:
        """A worker of this model restarted: what was learnt from servers is learnt again."""
        entry = self._model(model)
        entry.checks.clear()
        if not entry.given:
            self._models.pop(model, None)

    def forget(self, session: str) -> None:
        """Drop what is kept of a session."""
        self._common.forget(session)
        for entry in list(self._models.values()):
            entry.counted.pop(session, None)
            if entry.lookout is not None:
                entry.lookout.forget(session)
            if entry.planner is not None:
                with entry.planner.lock:
                    entry.planner.forget(session)

    async def prepare(self, model: str, remote: Remote) -> None:
        """Have a planner for the model, if one can be had; see :meth:`plan` for what becomes of it if not."""
        entry = self._model(model)
        if self._settled(entry):
            return
        async with self._locks.get().setdefault(model, asyncio.Lock()):
            if self._settled(entry):  # by the one who held the lock
                return
            try:
                template = await fetch(remote)
                planner = await drive(template, threading.Lock(), lambda: Planner(template), remote)
                entry.probe = await drive(template, planner.lock, lambda: _probe(planner), remote)
            except RouteAbsent:
                entry.why_not, entry.retry_at = "the server has no /tokenize to render by", self._clock() + RETRY_S
            except EngineError as fault:
                entry.why_not = f"the server did not render: {fault.what}"  # asked again at the next turn
            except TemplateError as fault:
                entry.why_not, entry.retry_at = f"the server's template is of no use: {fault.what}", self._clock() + RETRY_S
            else:
                entry.planner, entry.lookout = planner, Lookout(_markup(planner))

    def _settled(self, entry: _Model) -> bool:
        return entry.planner is not None or self._clock() < entry.retry_at

    async def plan(
        self, turn: Turn, tools: Sequence[Mapping[str, Any]], model: str, remote: Remote, *, block: int | None = None, check: bool = True
    ) -> Planned:
        """How to ask about a turn.

        Args:
            turn: The turn.
            tools: The tools of the agent's call, which its prompt begins with.
            model: The agent's model.
            remote: Its worker.
            block: Tokens of a cache block there.
            check: Whether there is time to compare ids where this kind of turn was not checked yet.
        """
        await self.prepare(model, remote)
        entry = self._model(model)
        planner = entry.planner
        if planner is None:
            why = f"no chat template is given (Settings.chat_template), and {entry.why_not}"
            return Planned(json_state(turn.messages, why), await self._by_ids(None, turn, tools, remote))
        try:
            state = await self._state(planner, turn, tools, remote)
        except EngineError as fault:
            return Planned(json_state(turn.messages, f"the server did not render the conversation: {fault.what}"))
        notes: list[str] = []
        if state.kind == "aligned" and entry.drift.refusal is not None:
            return Planned(json_state(turn.messages, entry.drift.refusal), await self._by_ids(planner, turn, tools, remote))
        checked = await self._checked(entry, planner, state, turn, tools, remote, block) if check else None
        if checked is not None and checked.outcome == "skipped" and checked.reason is not None:
            notes.append(checked.reason)
        if checked is not None and checked.outcome == "differs":
            state = json_state(turn.messages, checked.reason or "the server's ids differ", state.rendered, state.text)
        if state.text and (checked is None or checked.text_agrees is not False):
            prompt: AgentPrompt | None = AgentPrompt(state.text, before=planner.opens_user, after=planner.closes_user)
        else:
            prompt = await self._by_ids(planner, turn, tools, remote)
        return Planned(state, prompt, tuple(notes))

    async def compare(self, turn: Turn, tools: Sequence[Mapping[str, Any]], model: str, reported: int, remote: Remote) -> Compared:
        """Compare the length of the agent's call with its prediction, and count what comes out.

        Args:
            turn: The turn whose call it was.
            tools: The tools it carried.
            model: Its model.
            reported: ``usage.prompt_tokens``.
            remote: Its worker, whose tokenizer counts.
        """
        await self.prepare(model, remote)
        entry = self._model(model)
        planner = entry.planner
        if planner is None:
            return Compared(None, note=f"prompt lengths are not predicted: {entry.why_not}")
        try:
            state = await self._state(planner, turn, tools, remote)
            if not state.text:
                return Compared(None, note=f"prompt lengths are not predicted: {state.reason}")
            opening = await drive(planner.template, planner.lock, lambda: planner.opening(turn.messages, turn.template_kwargs), remote)
            opens = await self._opens(entry, opening, remote)
            predicted = await self._count(entry, turn.session, state.text, remote) + opens
            if predicted != reported:  # pieces may tokenize otherwise than the whole, and an opening depend on more than the end
                opened = await drive(
                    planner.template,
                    planner.lock,
                    lambda: planner.opened(state.text, turn.messages, tools, turn.template_kwargs),
                    remote,
                )
                opening = opening if opened is None else opened
                opens = await self._opens(entry, opening, remote)
                predicted = len(await remote.ids(state.text + opening))
            if predicted == reported:
                entry.drift.hit()
                return Compared(predicted, opens)
            changed = bool(entry.probe) and await self._probe_changed(entry, remote)
        except RouteAbsent:
            return Compared(None, note="prompt lengths are not predicted: this server has no /tokenize to count by")
        except EngineError as fault:
            return Compared(None, note=f"the prompt's length could not be predicted this time: {fault.what}")
        cause = cause_of(turn.messages, template_changed=changed)
        ended = entry.drift.miss(cause, predicted, reported)
        note = f"the agent's prompt has {reported:,} tokens where {predicted:,} were predicted ({cause.replace('_', ' ')})"
        if cause == "template_changed" and not entry.given:
            self._models.pop(model, None)  # the next turn fetches the new one
            note += "; the template is fetched anew"
        elif ended:
            note += f"; from now on the state is JSON: {entry.drift.refusal}"
        return Compared(predicted, opens, cause, note)

    async def tokens(self, turn: Turn, model: str, text: str, remote: Remote) -> int | None:
        """Tokens of a turn's prompt without its generation prompt; ``None`` where the worker cannot count."""
        try:
            return await self._count(self._model(model), turn.session, text, remote)
        except EngineError:
            return None

    async def _state(self, planner: Planner, turn: Turn, tools: Sequence[Mapping[str, Any]], remote: Remote) -> State:
        def work() -> State:
            return planner.plan(turn.session, turn.messages, tools, turn.template_kwargs)

        return await drive(planner.template, planner.lock, work, remote)

    async def _checked(
        self,
        entry: _Model,
        planner: Planner,
        state: State,
        turn: Turn,
        tools: Sequence[Mapping[str, Any]],
        remote: Remote,
        block: int | None,
    ) -> Checked | None:
        """The check of this kind of turn: remembered, or made now."""
        if not state.text:
            return None
        kind = kind_of_turn(turn.messages, tools, turn.template_kwargs)
        found = entry.checks.get(kind)
        if found is None:
            found = await verify(remote, state, turn.messages, tools, turn.template_kwargs, planner.gate_kwargs, block=block)
            if found.for_good and len(entry.checks) < 1024:
                entry.checks[kind] = found
        return found

    async def _by_ids(self, planner: Planner | None, turn: Turn, tools: Sequence[Mapping[str, Any]], remote: Remote) -> AgentPrompt | None:
        """The agent's prompt by the server's own ids: right on any template, and the whole conversation is sent for it."""
        if not self._extend or planner is None:
            return None
        try:
            ids: Ids = await remote.chat_ids(turn.messages, tools, turn.template_kwargs, add_generation_prompt=False)
        except EngineError:
            return None
        return AgentPrompt(ids, before=planner.opens_user, after=planner.closes_user)

    async def _count(self, entry: _Model, session: str, text: str, remote: Remote) -> int:
        """Tokens of a session's prompt; only what was added since the last count is sent."""
        length, mark, tokens = entry.counted.pop(session, (0, 0, 0))
        if length and length <= len(text) and hash(text[:length]) == mark:
            tokens += len(await remote.ids(text[length:]))
        else:
            tokens = len(await remote.ids(text))
        entry.counted[session] = (len(text), hash(text), tokens)
        while len(entry.counted) > COUNTED:
            entry.counted.popitem(last=False)
        return tokens

    async def _opens(self, entry: _Model, opening: str, remote: Remote) -> int:
        """Tokens of a generation prompt."""
        if opening not in entry.openings:
            if len(entry.openings) > OPENINGS:
                entry.openings.clear()
            entry.openings[opening] = len(await remote.ids(opening))
        return entry.openings[opening]

    async def _probe_changed(self, entry: _Model, remote: Remote) -> bool:
        now = await remote.chat_ids(PROBE, None, None, add_generation_prompt=False)
        return now != await remote.ids(entry.probe)

    def _model(self, model: str) -> _Model:
        with self._made:
            entry = self._models.get(model)
            if entry is None:
                entry = self._models[model] = _Model()
                if self._shared is not None:
                    entry.planner, entry.given, entry.lookout = self._shared, True, Lookout(_markup(self._shared))
                    entry.probe = _probe(self._shared)
            return entry


def _probe(planner: Planner) -> str:
    try:
        return planner.template.render(PROBE, None, add_generation_prompt=False)
    except TemplateError:
        return ""


def _markup(planner: Planner) -> Markup:
    around = () if planner.recipe is not None else MARKER.findall(planner.opens_user + planner.closes_user)
    return Markup.of_template(planner.template, planner.recipe, [*around, *added_tokens(Path(planner.template.name))])

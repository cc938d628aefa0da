"""What the parts of this adapter know together: which run is which session, what a session has, what was judged of its latest message.

The SDK hands its hooks, its model, its approval callbacks and its tools different halves of the truth; they meet here, one desk a gate.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from uuid import uuid4
from weakref import WeakKeyDictionary

from agents.run_context import RunContextWrapper

from warmgate.decision import Decision
from warmgate.foreign import mapping, text
from warmgate.gate import Gate
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Ask, Execute, GateState, Keeper, Outcome, Record, Reject, merge, words
from warmgate_adapters.core.state import place
from warmgate_adapters.openai_agents.naming import thread_of
from warmgate_adapters.openai_agents.shapes import calls_since_the_user_spoke

KEPT = "warmgate"
"""Key in a run's context, where that is a mapping: what a session has goes with the run's state, and so outlives the process."""

HELD = 65_536
"""Sessions, and runs, that are remembered; older ones begin anew, with every tool mounted and nothing approved."""

_V = TypeVar("_V")


@dataclass
class Session:
    """One agent's conversation.

    Attributes:
        key: Its key.
        thread: The conversation that its run is part of.
        state: What is kept of it.
        keeper: Stands between it and the gate, with the tools of its latest call.
        messages: Those of its latest call, in OpenAI's shape.
        user_turn: Which of the user's turns that is.
        batch: Identifies the model's latest message: the length of the conversation it answers.
        placed: Announcements: number of items that precede it → its text.
        outcomes: Id of a call and its binding → what becomes of it.
        patches: Binding of a patch of one file → id of the call it is part of, which editors are not told.
    """

    key: str
    thread: str
    state: GateState
    keeper: Keeper
    messages: Sequence[Mapping[str, Any]] = ()
    user_turn: int | None = None
    batch: str = ""
    placed: dict[int, str] = field(default_factory=dict[int, str])
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict[tuple[str, str], Outcome])
    patches: dict[str, str] = field(default_factory=dict[str, str])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Call:
    """A call of the model that is about to happen, or has.

    Attributes:
        session: Whose.
        run: The run's context.
        items: What the SDK sends.
        routed: Whether a :class:`~warmgate_adapters.openai_agents.GatedModel` made it.
    """

    session: Session
    run: weakref.ref[RunContextWrapper[Any]]
    items: Sequence[Any]
    routed: bool = False


class Desk:
    """Of one gate. Safe across threads."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.listeners: list[Callable[[str, Decision], None]] = []
        self._lock = threading.Lock()
        self._runs: dict[int, tuple[weakref.ref[Any], str, str]] = {}
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._calls: OrderedDict[int, Call] = OrderedDict()
        self._said: OrderedDict[tuple[str, str, str, str], None] = OrderedDict()

    # -- whose run it is -----------------------------------------------------------------------------------------------------------

    def key(self, context: RunContextWrapper[Any], agent: str | None = None) -> str:
        """Key of the session: the thread's name for the agent that was in it first, with the agent's name behind it for others.

        Agents differ in instructions and tools, so that their prompts share nothing and what is mounted for one says nothing of another.

        Args:
            context: Of the run, or of one of its tool calls: these share one ``usage``.
            agent: Name of the agent; ``None`` where the SDK does not say: the one whose model was called last.
        """
        return self._named(context, agent, leads=True)[1]

    def _named(self, context: RunContextWrapper[Any], agent: str | None, *, leads: bool) -> tuple[str, str]:
        usage, number = context.usage, id(context.usage)
        known = self._runs.get(number)
        if known is not None and known[0]() is not usage:
            known = None
        thread = known[1] if known is not None else thread_of(context) or f"run-{uuid4().hex}"
        if agent is None:
            agent = known[2] if known is not None else ""
        with self._lock:
            if known is None or (leads and known[2] != agent):
                self._runs[number] = (weakref.ref(usage, lambda _: self._runs.pop(number, None)), thread, agent)
            owner = self._owners.get(thread) or text(mapping(_kept(context).get("owners")).get(thread)) or agent
            if owner:
                _keep(self._owners, thread, owner)
        return thread, thread if not agent or agent == owner else f"{thread}/{agent}"

    # -- what it has ---------------------------------------------------------------------------------------------------------------

    def session(
        self,
        context: RunContextWrapper[Any],
        agent: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        more: Mapping[str, Any] | None = None,
        *,
        leads: bool = False,
    ) -> Session:
        """The session of a run.

        Args:
            context: Of the run or a tool call.
            agent: Name of its agent, where known.
            tools: Tools to know of a session that is met for the first time.
            more: Other arguments of its keeper.
            leads: Whether the agent's model is about to be called: until the next such call the run is this agent's.

        Raises:
            OptionError: Its context holds what this version cannot read.
        """
        thread, key = self._named(context, agent, leads=leads)
        found = self._sessions.get(key)
        if found is None:
            kept = _kept(context)
            found = Session(key, thread, GateState.read(kept.get("gate"), key), Keeper(self.gate, tools, **(more or {})))
            found.batch = text(mapping(kept.get("batch")).get(key)) or ""
            found.placed = {int(number): str(said) for number, said in mapping(mapping(kept.get("placed")).get(key)).items()}
        with self._lock:
            return _keep(self._sessions, key, self._sessions.get(key, found))

    def keep(self, session: Session, context: RunContextWrapper[Any], state: GateState) -> None:
        """Keep a session's state, in the run's context too where that can hold it."""
        session.state = state
        carried = context.context
        if isinstance(carried, MutableMapping):
            kept = _kept(context)
            cast("MutableMapping[str, Any]", carried)[KEPT] = {
                "gate": merge(kept.get("gate"), state.to_json()),
                "batch": {**mapping(kept.get("batch")), session.key: session.batch},
                "placed": {**mapping(kept.get("placed")), session.key: {str(n): said for n, said in session.placed.items()}},
                "owners": {**mapping(kept.get("owners")), session.thread: self._owners.get(session.thread, "")},
            }

    def known(self, key: str) -> Session | None:
        """A session that was met."""
        return self._sessions.get(key)

    def decided(self, session: Session, decision: Decision | None) -> None:
        """Tell those who listen."""
        if decision is not None:
            for listener in self.listeners:
                listener(session.key, decision)

    # -- from the hook before the model's call to the model --------------------------------------------------------------------------

    def begin(self, session: Session, context: RunContextWrapper[Any], items: Sequence[Any]) -> None:
        """Hand a call over to the model, which gets the very same list of items."""
        with self._lock:
            while self._calls and next(iter(self._calls.values())).run() is None:
                self._calls.popitem(last=False)
            _keep(self._calls, id(items), Call(session, weakref.ref(context), items))

    def begun(self, items: Any) -> Call | None:
        """The call that these items are of."""
        call = self._calls.get(id(items))
        return call if call is not None and call.items is items else None

    def end(self, context: RunContextWrapper[Any]) -> Call | None:
        """The call of a run that has been answered, or broke off."""
        with self._lock:
            for number, call in reversed(self._calls.items()):
                if call.run() is context:
                    del self._calls[number]
                    return call
        return None

    # -- what becomes of calls -------------------------------------------------------------------------------------------------------

    async def judge(self, session: Session, context: RunContextWrapper[Any], calls: Sequence[ProposedCall]) -> None:
        """Judge those not judged yet, together."""
        async with session.lock:
            todo = [call for call in calls if (call.id, session.keeper.binding(call)) not in session.outcomes]
            if not todo:
                return
            judged = await session.keeper.judge(session.state, session.messages, todo, batch=session.batch, user_turn=session.user_turn)
            for call, outcome in zip(todo, judged.outcomes, strict=True):
                session.outcomes[call.id, session.keeper.binding(call)] = outcome
            self.keep(session, context, judged.state)
            self.decided(session, judged.decision)

    async def outcome(self, session: Session, context: RunContextWrapper[Any], call: ProposedCall) -> Outcome:
        """What becomes of a call as it is now."""
        await self.judge(session, context, (call,))
        return session.outcomes[call.id, session.keeper.binding(call)]

    async def hosted(self, session: Session, call: ProposedCall) -> Outcome:
        """What becomes of a call to a tool that the provider lists: it stands in no request of ours, so it is judged beside the session."""
        schema: dict[str, Any] = {"type": "function", "function": {"name": call.name, "parameters": {"type": "object"}}}
        judged = await Keeper(self.gate, (schema,)).judge(GateState(session=f"{session.key}/{call.name}"), session.messages, (call,))
        return judged.outcomes[0]

    async def last_word(
        self, session: Session, context: RunContextWrapper[Any], call: ProposedCall, *, attended: bool, as_proposed: bool
    ) -> Execute | Reject:
        """Innermost, just before a call runs.

        Args:
            session: Its session.
            context: Of the call.
            call: As it is about to run.
            attended: Whether a person could have been asked.
            as_proposed: Whether these are the arguments that the SDK holds an approval against.
        """
        record = session.state.verdicts.get(place(session.batch, call.id))
        outcome = await self.outcome(session, context, call)
        if not isinstance(outcome, Ask):
            return outcome
        if not attended:
            return Reject(call, words.unattended(outcome.record.reason), "unattended", outcome.record)
        if as_proposed and _approved(context, call) and (record is None or record.binding == outcome.binding):
            self._heard(session, outcome, approved=True)
            # The approval stays where the SDK has it, in the run: kept with the session it could be taken for that of a later run.
            _, execute = session.keeper.approve(session.state, outcome, batch=session.batch)
            session.outcomes[call.id, execute.binding] = execute
            return execute
        rejected = Reject(call, words.changed(call.name), "changed", outcome.record)
        session.outcomes[call.id, outcome.binding] = rejected  # a second look must not find the verdict that the first one made
        return rejected

    def _heard(self, session: Session, ask: Ask, *, approved: bool) -> None:
        """Tell the gate a person's word, once: the SDK shows it again at each call of the model."""
        said = (session.key, ask.record.decision, ask.call.id, ask.binding)
        with self._lock:
            new = said not in self._said
            _keep(self._said, said, None)
        if new:
            session.keeper.heard(ask, approved=approved)

    def note_refusals(self, session: Session, context: RunContextWrapper[Any], items: Sequence[Any]) -> None:
        """A person's no in this user turn holds against the same call under any id."""
        for call in calls_since_the_user_spoke(items):
            if context.is_tool_approved(call.name, call.id) is False and (call.id, "") not in session.outcomes:
                binding = session.keeper.binding(call)
                ends = f"/{call.id}"
                records = (one for at, one in reversed(session.state.verdicts.items()) if at.endswith(ends) and one.binding == binding)
                record = next(records, Record(binding="", verdict="ask", reason="a person refused it", source="person"))
                ask = Ask(call, record.binding, record)
                self._heard(session, ask, approved=False)
                state, refused = session.keeper.refuse(session.state, ask, session.messages, user_turn=session.user_turn)
                session.outcomes[call.id, ""] = refused
                self.keep(session, context, state)


_desks: WeakKeyDictionary[Gate, Desk] = WeakKeyDictionary()
_made = threading.Lock()


def desk(gate: Gate) -> Desk:
    """The gate's."""
    with _made:
        found = _desks.get(gate)
        if found is None:
            found = _desks[gate] = Desk(gate)
        return found


def keeper_arguments(agent: Any) -> Mapping[str, Any]:
    """What the agent's model knows of its calls (its name, its salt): part of the binding of a verdict, so all must know it."""
    return mapping(getattr(getattr(agent, "model", None), "keeper_arguments", None))


NOBODY = "warmgate-no-such-call"


def _approved(context: RunContextWrapper[Any], call: ProposedCall) -> bool:
    """Whether a person approved this call by itself. An "always" for a tool was said without having seen the call: it lifts no ask."""
    if context.is_tool_approved(call.name, NOBODY) is True:
        return False
    return context.is_tool_approved(call.name, call.id) is True


def _kept(context: RunContextWrapper[Any]) -> Mapping[str, Any]:
    carried = context.context
    return mapping(cast("Mapping[str, Any]", carried).get(KEPT)) if isinstance(carried, Mapping) else {}


def _keep(held: OrderedDict[Any, _V], key: Any, value: _V) -> _V:
    held[key] = value
    held.move_to_end(key)
    while len(held) > HELD:
        held.popitem(last=False)
    return value

"""The gate as adapters use it: never raises where a turn can go on, never runs what was not judged.

Mounting fails open to what the session has; whatever goes wrong about a call, a person decides. Each method exists for code that awaits and
for code that cannot (``_sync``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from warmgate.answers import Usage
from warmgate.decision import Decision, Mounts, Observation, binding_of
from warmgate.gate import Gate
from warmgate.mounting import Held, tool_name
from warmgate.turn import ProposedCall, Turn
from warmgate_adapters.core import words
from warmgate_adapters.core.outcomes import Ask, Execute, Outcome, Reject
from warmgate_adapters.core.state import GateState, Record, Refusal, place

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Mounted:
    """Before an agent's call.

    Attributes:
        state: To be kept.
        tools: Schemas that the request must carry, in their order.
        announcement: Text of a message to append to the conversation for good, before the call; ``None`` mostly.
        decision: The gate's; ``None`` where it gave none.
        fault: Why not.
    """

    state: GateState
    tools: tuple[Mapping[str, Any], ...]
    announcement: str | None = None
    decision: Decision | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Before the calls of one message run.

    Attributes:
        state: To be kept.
        outcomes: One for each call, in order.
        decision: The gate's; ``None`` where nothing had to be decided, or it gave none.
        fault: Why not.
    """

    state: GateState
    outcomes: tuple[Outcome, ...]
    decision: Decision | None = None
    fault: str | None = None


class Keeper:
    """Stands between an agent and its gate. Holds nothing of a session: that is in the :class:`GateState` it is given and gives back.

    Args:
        gate: The gate.
        tools: Every tool the agent could be given, as OpenAI's schemas in their canonical order.
        on_ask: ``deny`` where nobody is there to approve.
        prompt: System message that the agent's calls carry in front of the conversation, where it is not among the messages.
        model: Model or LoRA of the agent's calls, where it is not the settings' one.
        cache_salt: See :class:`warmgate.turn.Turn`.
        template_kwargs: See :class:`warmgate.turn.Turn`.
    """

    def __init__(
        self,
        gate: Gate,
        tools: Sequence[Mapping[str, Any]],
        *,
        on_ask: Literal["ask", "deny"] = "ask",
        prompt: str | None = None,
        model: str | None = None,
        cache_salt: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.gate = gate
        self.tools = tuple(tools)
        self.names = tuple(map(tool_name, self.tools))
        self.on_ask = on_ask
        self.prompt = prompt
        self.model = model
        self.cache_salt = cache_salt
        self.template_kwargs = dict(template_kwargs or {})

    # -- before the agent's call -------------------------------------------------------------------------------------------------------

    async def mount(self, state: GateState, messages: Messages, *, user_turn: int | None = None) -> Mounted:
        """Decide what the agent may call.

        Args:
            state: The session's.
            messages: Those of the coming call, in OpenAI's shape.
            user_turn: See :class:`warmgate.turn.Turn`.
        """
        state = self._own(state)
        turn = self._turn(state, messages, (), user_turn)
        return self._mounted(state, turn, *await self._decide(turn))

    def mount_sync(self, state: GateState, messages: Messages, *, user_turn: int | None = None) -> Mounted:
        """See :meth:`mount`."""
        state = self._own(state)
        turn = self._turn(state, messages, (), user_turn)
        return self._mounted(state, turn, *self._decide_sync(turn))

    def offered(self, state: GateState) -> tuple[Mapping[str, Any], ...]:
        """The schemas that the session's requests carry."""
        state = self._own(state)
        names = state.offered if state.offered is not None else state.mounts
        if names is None or names == self.names:
            return self.tools
        offered = frozenset(names)
        return tuple(tool for tool, name in zip(self.tools, self.names, strict=True) if name in offered)

    @property
    def body(self) -> dict[str, Any]:
        """What a call's body must carry, since the decision's does: else they share no prefix."""
        salt = self.cache_salt or self.gate.settings.cache_salt
        made: dict[str, Any] = {} if salt is None else {"cache_salt": salt}
        return {**made, "chat_template_kwargs": self.template_kwargs} if self.template_kwargs else made

    # -- before the calls it proposes --------------------------------------------------------------------------------------------------

    async def judge(
        self, state: GateState, messages: Messages, calls: Sequence[ProposedCall], *, batch: str = "", user_turn: int | None = None
    ) -> Judged:
        """An outcome for each call, all from one decision.

        Args:
            state: The session's.
            messages: The conversation up to, and without, the message that proposes the calls.
            calls: Its calls.
            batch: Identifies that message. Verdicts in the state for the same message and calls are used again; without it none is.
            user_turn: See :class:`warmgate.turn.Turn`.
        """
        state = self._own(state)
        turn = self._turn(state, messages, calls, user_turn)
        todo = self._todo(state, turn, batch)
        decision, fault = await self._decide(replace(turn, proposed_calls=tuple(todo.values()))) if todo else (None, None)
        return self._judged(state, turn, batch, todo, decision, fault)

    def judge_sync(
        self, state: GateState, messages: Messages, calls: Sequence[ProposedCall], *, batch: str = "", user_turn: int | None = None
    ) -> Judged:
        """See :meth:`judge`."""
        state = self._own(state)
        turn = self._turn(state, messages, calls, user_turn)
        todo = self._todo(state, turn, batch)
        decision, fault = self._decide_sync(replace(turn, proposed_calls=tuple(todo.values()))) if todo else (None, None)
        return self._judged(state, turn, batch, todo, decision, fault)

    def approve(self, state: GateState, ask: Ask, *, batch: str = "") -> tuple[GateState, Execute]:
        """A person says yes to exactly this call. An edited call is another one: :meth:`judge` it."""
        record = msgspec.structs.replace(ask.record, approved=True)
        return state.with_(verdicts={place(batch, ask.call.id): record}), Execute(ask.call, ask.binding, record)

    def heard(self, ask: Ask, *, approved: bool) -> None:
        """Tell the gate a person's word on a call that was put to them: a label for ``warmgate calibrate``.

        To be said once for each question, where a resumed run does not pass again. An edit is no word on the call that was asked about, and
        a question that came from no decision labels nothing.
        """
        record = ask.record
        if record.decision:
            self.gate.approval(record.decision, record.call or ask.call.id, ask.binding, approved=approved, tool=ask.call.name)

    def refuse(
        self, state: GateState, ask: Ask, messages: Messages, *, message: str = "", user_turn: int | None = None
    ) -> tuple[GateState, Reject]:
        """A person says no, and no policy lifts it: the same call, under any id, is rejected in this user turn and asked about later."""
        turn = self._turn(state, messages, (), user_turn)
        refusal = Refusal(user_turn=turn.user_turns, message=message)
        return state.with_(refused={_key(ask.call): refusal}), Reject(ask.call, words.refused(message), "refused", ask.record)

    # -- innermost, just before a call runs --------------------------------------------------------------------------------------------

    def binding(self, call: ProposedCall) -> str:
        """Of a call, under the policy and model as they are now."""
        policy = self.gate.calls
        named = f"{policy.name} {policy.version}" if policy is not None else "none"
        return binding_of(call, policy=named, model=self.model or self.gate.settings.model)

    def holds(self, execute: Execute, call: ProposedCall) -> bool:
        """Whether a call about to run is the one that was judged, with these very arguments, under the policy and model of now."""
        return self.binding(call) == execute.binding

    async def recheck(self, execute: Execute | None, state: GateState, messages: Messages, call: ProposedCall) -> Execute | Reject:
        """The last word on a call about to run: one that was not judged so is judged anew, and rejected where only a person could allow it.

        Args:
            execute: What was judged under this id; ``None`` where nothing was.
            state: The session's.
            messages: As for :meth:`judge`.
            call: As it is about to run.
        """
        if execute is not None and self.holds(execute, call):
            return execute
        return self._rechecked((await self.judge(state, messages, (call,))).outcomes[0])

    def recheck_sync(self, execute: Execute | None, state: GateState, messages: Messages, call: ProposedCall) -> Execute | Reject:
        """See :meth:`recheck`."""
        if execute is not None and self.holds(execute, call):
            return execute
        return self._rechecked(self.judge_sync(state, messages, (call,)).outcomes[0])

    # -- after the agent's call --------------------------------------------------------------------------------------------------------

    async def observe(self, state: GateState, messages: Messages, usage: Mapping[str, Any] | Usage | None) -> Observation | None:
        """What survived of the agent's call. ``None`` where that cannot be said; never an error of the call.

        Args:
            state: The session's.
            messages: Those of the call.
            usage: ``usage`` of the reply, in OpenAI's shape.
        """
        try:
            return await self.gate.observe(self._turn(state, messages, (), None), usage)
        except Exception:  # noqa: BLE001 -- the reply is there; bookkeeping must not lose it
            return None

    def observe_sync(self, state: GateState, messages: Messages, usage: Mapping[str, Any] | Usage | None) -> Observation | None:
        """See :meth:`observe`."""
        try:
            return self.gate.observe_sync(self._turn(state, messages, (), None), usage)
        except Exception:  # noqa: BLE001 -- as above
            return None

    # -- inside ------------------------------------------------------------------------------------------------------------------------

    def _foreign(self, *names: Sequence[str] | None) -> bool:
        """Whether these are another agent's tools: of a second graph under the same thread, or from before all of them were renamed."""
        there = {name for some in names for name in some or ()}
        return bool(there) and bool(self.names) and there.isdisjoint(self.names)

    def _own(self, state: GateState) -> GateState:
        """The state; without its tools where none of them is this agent's: it would be left with none, and its prefix is another anyway."""
        if not self._foreign(state.mounts, state.offered, state.announced):
            return state
        return msgspec.structs.replace(state, mounts=None, offered=None, announce=(), announced=(), user_turn=None)

    def _turn(self, state: GateState, messages: Messages, calls: Sequence[ProposedCall], user_turn: int | None) -> Turn:
        """The turn. A gate that holds nothing of the session, or something else (an older checkpoint was taken up), is told what it has.

        It tells its mount policy before the decision.
        """
        held = self.gate.memory.of(state.session)
        if state.mounts is None and held is not None and self._foreign(held.tools, held.offered):
            self.gate.memory.forget(state.session)
        elif state.mounts is not None and self.gate.settings.mounts_mode == "enforce":
            offered = state.offered if state.offered is not None else state.mounts
            if held is None or (held.tools, held.offered) != (state.mounts, offered):
                self.gate.memory.keep(state.session, Held(state.user_turn or 0, state.mounts, offered))
        if self.prompt is not None:
            messages = [{"role": "system", "content": self.prompt}, *messages]
        return Turn(
            state.session,
            messages,
            self.tools,
            tuple(calls),
            template_kwargs=self.template_kwargs,
            cache_salt=self.cache_salt,
            model=self.model,
            user_turn=user_turn,
        )

    async def _decide(self, turn: Turn) -> tuple[Decision | None, str | None]:
        try:
            return await self.gate.decide(turn), None
        except Exception as fault:  # noqa: BLE001 -- an agent outlives its gate: mounts keep, calls are put to a person
            return None, str(fault) or type(fault).__name__

    def _decide_sync(self, turn: Turn) -> tuple[Decision | None, str | None]:
        try:
            return self.gate.decide_sync(turn), None
        except Exception as fault:  # noqa: BLE001 -- as above
            return None, str(fault) or type(fault).__name__

    def _mounted(self, state: GateState, turn: Turn, decision: Decision | None, fault: str | None) -> Mounted:
        if decision is None:
            return Mounted(state, self.offered(state), None, None, fault)
        mounts = decision.mounts
        offered = self._offered(state, mounts)
        wanted = dict.fromkeys((*state.announce, *mounts.announce))
        announced = tuple(tool for tool in self.tools if tool_name(tool) in wanted and tool_name(tool) not in offered) if wanted else ()
        later = state.with_(
            decision=decision.id,
            worker=decision.worker,
            headers=dict(decision.headers),
            mounts=mounts.tools,
            offered=offered,
            announce=(),
            announced=tuple(dict.fromkeys((*state.announced, *map(tool_name, announced)))),
            user_turn=turn.user_turns,
        )
        return Mounted(later, self.offered(later), words.announcement(announced) if announced else None, decision)

    def _offered(self, state: GateState, mounts: Mounts) -> tuple[str, ...]:
        """The list of the request. What was announced stays out of it, though a policy that was restarted may not know that."""
        offered = mounts.offered if mounts.offered is not None else mounts.tools
        before = state.offered
        if before is None or mounts.strategy == "remount" or offered == before:
            return offered
        added = [name for name in offered if name not in before]
        if added and set(added) <= set(state.announced) and set(before) <= set(offered):
            held = self.gate.memory.of(state.session)
            if held is not None:
                self.gate.memory.keep(state.session, Held(held.user_turn, held.tools, before))
            return before
        return offered

    def _todo(self, state: GateState, turn: Turn, batch: str) -> dict[int, ProposedCall]:
        """The calls that need a verdict, by their position; ids are made distinct, since a verdict goes by id."""
        todo: dict[int, ProposedCall] = {}
        ids: set[str] = set()
        for number, call in enumerate(turn.proposed_calls):
            if self._standing(state, turn, call) is None and self._kept(state, batch, call) is None:
                name = call.id if call.id and call.id not in ids else f"{call.id}#{number}"
                ids.add(name)
                todo[number] = ProposedCall(name, call.name, call.arguments)
        return todo

    def _standing(self, state: GateState, turn: Turn, call: ProposedCall) -> Reject | None:
        """What is rejected whatever a policy would say."""
        mounted = state.mounts if state.mounts is not None else self.names
        if call.name not in self.names:
            return Reject(call, words.unknown(call.name, mounted), "unknown")
        if call.name not in mounted:
            return Reject(call, words.unmounted(call.name, mounted), "unmounted")
        refusal = state.refused.get(_key(call))
        if refusal is not None and refusal.user_turn == turn.user_turns:
            return Reject(call, words.refused(refusal.message), "refused")
        return None

    def _kept(self, state: GateState, batch: str, call: ProposedCall) -> Record | None:
        """The verdict that this very call got before."""
        record = state.verdicts.get(place(batch, call.id)) if batch else None
        return record if record is not None and record.binding == self.binding(call) else None

    def _judged(
        self,
        state: GateState,
        turn: Turn,
        batch: str,
        todo: Mapping[int, ProposedCall],
        decision: Decision | None,
        fault: str | None,
    ) -> Judged:
        records: dict[str, Record] = {}
        outcomes: list[Outcome] = []
        changes: dict[str, Any] = {}
        if decision is not None:
            changes = {"decision": decision.id, "worker": decision.worker, "headers": dict(decision.headers)}
            mounts = decision.mounts
            if state.mounts is None or mounts.changed:
                changes |= {"mounts": mounts.tools, "offered": self._offered(state, mounts), "user_turn": turn.user_turns}
            if mounts.announce:
                changes["announce"] = tuple(dict.fromkeys((*state.announce, *mounts.announce)))
        later = state.with_(**changes) if changes else state
        had = state if state.mounts is not None else later  # what the model had when it proposed these
        for number, call in enumerate(turn.proposed_calls):
            standing = self._standing(had, turn, call)
            if standing is not None:
                outcomes.append(standing)
                continue
            record = self._kept(state, batch, call)
            if record is None:
                record = self._record(call, todo[number].id, decision, fault)
                records[place(batch, call.id)] = record
            outcomes.append(self._outcome(later, call, record))
        if records:
            later = later.with_(verdicts=records)
        return Judged(later, tuple(outcomes), decision, fault)

    def _record(self, call: ProposedCall, name: str, decision: Decision | None, fault: str | None) -> Record:
        verdict = decision.verdicts.get(name) if decision is not None else None
        if decision is not None and verdict is not None:
            return Record.of(verdict, self.binding(call), decision.id, call.id)
        shadow = self.gate.settings.calls_mode == "shadow"
        why = f"the gate is unavailable ({fault})" if fault else "the gate gave no verdict"
        return Record(binding=self.binding(call), verdict="ask", reason=f"{why}, so a person decides", source="unavailable", shadow=shadow)

    def _outcome(self, state: GateState, call: ProposedCall, record: Record) -> Outcome:
        if record.approved:
            return Execute(call, record.binding, record)
        was_refused = _key(call) in state.refused
        word = "allow" if record.shadow else record.verdict
        reason = record.reason
        if was_refused and word == "allow":
            word, reason = "ask", "a person refused this very call earlier in the session"
        if word == "allow":
            return Execute(call, record.binding, record)
        if word == "deny":
            return Reject(call, words.denied(reason), "denied", record)
        if self.on_ask == "deny" or self.gate.settings.on_ask == "deny":
            return Reject(call, words.unattended(reason), "unattended", record)
        return Ask(call, record.binding, msgspec.structs.replace(record, verdict="ask", reason=reason))

    def _rechecked(self, outcome: Outcome) -> Execute | Reject:
        if isinstance(outcome, Ask):
            return Reject(outcome.call, words.changed(outcome.call.name), "changed", outcome.record)
        return outcome


def _key(call: ProposedCall) -> str:
    """A call, whatever the policy and model: what a person refuses."""
    return binding_of(call, policy="", model="")

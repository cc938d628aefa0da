"""The node in place of ToolNode: a call runs after it was judged, as it was judged, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import interrupt

from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Execute, GateState, Judged, Keeper, Outcome, Reject, outcome_from_json, outcome_to_json, words
from warmgate_adapters.langgraph import answers, events
from warmgate_adapters.langgraph.channel import field, kept
from warmgate_adapters.langgraph.flow import Decide, Plan, Ready, Step, plan
from warmgate_adapters.langgraph.messages import (
    Tool,
    as_messages,
    before_last_call,
    openai_messages,
    proposed,
    schemas,
    user_turns,
)
from warmgate_adapters.langgraph.once import once
from warmgate_adapters.langgraph.session import Naming, session_of

Result: TypeAlias = Any
"""What a tool call comes to: a ToolMessage, a Command, or a list of these."""

Wrapper: TypeAlias = Callable[[ToolCallRequest, Callable[[ToolCallRequest], Result]], Result]
AsyncWrapper: TypeAlias = Callable[[ToolCallRequest, Callable[[ToolCallRequest], Awaitable[Result]]], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class _Work:
    """The calls of one message."""

    keeper: Keeper
    state: GateState
    messages: list[dict[str, Any]]
    calls: list[ProposedCall]
    batch: str
    user_turn: int
    keeps: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """The same with what is to be done about them."""

    work: _Work
    plan: Plan

    def of(self, call: ProposedCall) -> tuple[int, Ready | None]:
        """What was planned for a call of the message; of two under one id, for the one with these arguments."""
        wanted = self.work.keeper.binding(call)
        for number, one in enumerate(self.work.calls):
            if one.id == call.id and self.work.keeper.binding(one) == wanted:
                return number, self.plan.ready[number]
        return -1, None

    def told(self, number: int, result: Result) -> Result:
        """The model hears of a person's change in the call's result: its own message stays as it is, and so does the prefix."""
        if number not in self.plan.edited or not isinstance(result, ToolMessage) or not isinstance(result.content, str):
            return result
        call = self.plan.ready[number].call
        changed = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False, default=str)
        return result.model_copy(update={"content": f"A person changed this call to {changed}.\n{result.content}"})


_running: ContextVar[_Run] = ContextVar("warmgate_tool_run")


class GatedToolNode(ToolNode):
    """A :class:`~langgraph.prebuilt.ToolNode` whose calls pass the gate.

    All calls of the model's message are judged by one request. A rejected one gets a result that says why. Those a person must decide about
    are put into one ``interrupt()``, in the shapes of LangChain's human-in-the-loop; without a checkpointer nobody can answer, and they are
    rejected. Just before a call runs its binding is computed again: a wrapper that changed the call has it judged anew.

    Args:
        tools: As :class:`GateNode`'s.
        gate: The gate.
        agent: As :class:`GateNode`'s.
        on_ask: ``deny`` where nobody is there to approve.
        messages_key: The channel of the conversation.
        wrap_tool_call: As :class:`~langgraph.prebuilt.ToolNode`'s; the gate stands inside it.
        awrap_tool_call: The same for async.
        keeper: As :class:`GateNode`'s.
        node: Other arguments of ToolNode: ``name``, ``tags``, ``handle_tool_errors``.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        gate: Gate,
        *,
        agent: Naming = None,
        on_ask: Literal["ask", "deny"] = "ask",
        messages_key: str = "messages",
        wrap_tool_call: Wrapper | None = None,
        awrap_tool_call: AsyncWrapper | None = None,
        keeper: Mapping[str, Any] | None = None,
        **node: Any,
    ) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            [cast("Any", tool) for tool in tools if not isinstance(tool, dict)],
            messages_key=messages_key,
            wrap_tool_call=self._wrapped,
            awrap_tool_call=self._awrapped,
            **node,
        )
        self.keeper = Keeper(gate, schemas(tools), on_ask=on_ask, **(keeper or {}))
        self._alone = Keeper(gate, schemas(tools), on_ask="deny", **(keeper or {}))
        self.agent = agent
        self.messages_key = messages_key
        self._outer = wrap_tool_call
        self._aouter = awrap_tool_call

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 -- Runnable's name
        """Judge, ask, run.

        Raises:
            OptionError: The state has no ``gate`` channel, or holds what this version cannot read.
        """
        config = ensure_config(config)
        work = self._work(input, config)
        with _as_running(_Run(work, self._planned(work))) as run:
            return _with_state(super().invoke(input, config, **kwargs), run)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 -- as above
        """See :meth:`invoke`."""
        config = ensure_config(config)
        work = self._work(input, config)
        with _as_running(_Run(work, await self._aplanned(work))) as run:
            return _with_state(await super().ainvoke(input, config, **kwargs), run)

    # -- what is to be done ------------------------------------------------------------------------------------------------------------

    def _work(self, given: Any, config: RunnableConfig) -> _Work:
        raw, kind = self._parse_input(given)
        state = self._extract_state(given, config)
        listed = as_messages(state if isinstance(state, list) else field(state, self.messages_key))
        channel: Any = {} if isinstance(state, list) else kept(state, "GatedToolNode")
        before, last = before_last_call(listed)
        # Pregel's own key; its value is None where a graph was compiled without one. Absent: interrupt() itself refuses.
        attended = bool(mapping(config.get("configurable")).get("__pregel_checkpointer", True))
        return _Work(
            self.keeper if attended else self._alone,
            GateState.read(channel, session_of(config, channel, self.agent)),
            openai_messages(before),
            [proposed(call) for call in raw],
            str(last.id) if last is not None and last.id else "",
            user_turns(before),
            keeps=kind != "list",
        )

    def _planned(self, work: _Work) -> Plan:
        flow = self._flow(work)
        step, fresh = _next(flow, None), False
        while not isinstance(step, Plan):
            if isinstance(step, Decide):
                fresh, answer = self._decided(work, step)
            else:
                answer = interrupt(answers.question(step.asks, step.problem))
                if once("warmgate.answered", _same)(fresh).result():
                    answer = None
            step = _next(flow, answer)
        return step

    async def _aplanned(self, work: _Work) -> Plan:
        flow = self._flow(work)
        step, fresh = _next(flow, None), False
        while not isinstance(step, Plan):
            if isinstance(step, Decide):
                fresh, answer = await self._adecided(work, step)
            else:
                answer = interrupt(answers.question(step.asks, step.problem))
                if await once("warmgate.answered", _asame)(fresh):
                    answer = None
            step = _next(flow, answer)
        return step

    def _flow(self, work: _Work) -> Generator[Step, Any, Plan]:
        return plan(work.keeper, work.state, work.messages, work.calls, batch=work.batch, user_turn=work.user_turn)

    def _decided(self, work: _Work, step: Decide) -> tuple[bool, Any]:
        """The outcomes, and whether they were decided just now: then nobody can have seen what is asked about yet."""
        ran: list[Judged] = []

        def judge() -> dict[str, Any]:
            calls = tuple(step.calls.values())
            ran.append(work.keeper.judge_sync(step.state, work.messages, calls, batch=work.batch, user_turn=work.user_turn))
            return _stored(ran[-1])

        stored = once("warmgate.judge", judge)().result()
        return bool(ran), _restored(step, stored, ran)

    async def _adecided(self, work: _Work, step: Decide) -> tuple[bool, Any]:
        ran: list[Judged] = []

        async def judge() -> dict[str, Any]:
            calls = tuple(step.calls.values())
            ran.append(await work.keeper.judge(step.state, work.messages, calls, batch=work.batch, user_turn=work.user_turn))
            return _stored(ran[-1])

        stored = await once("warmgate.judge", judge)()
        return bool(ran), _restored(step, stored, ran)

    # -- doing it ----------------------------------------------------------------------------------------------------------------------

    def _wrapped(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Result]) -> Result:
        """Outside of a user's wrapper: rejected calls end here. Inside of it: the last look before the call runs."""
        run = _running.get()
        number, ready = run.of(proposed(request.tool_call))
        if isinstance(ready, Reject):
            return run.told(number, _rejection(ready))

        def inner(final: ToolCallRequest) -> Result:
            word = run.work.keeper.recheck_sync(ready, run.plan.state, run.work.messages, proposed(final.tool_call))
            rejected = self._last(word, final)
            return _rejection(rejected) if rejected is not None else execute(final)

        request = self._as_planned(request, ready)
        return run.told(number, inner(request) if self._outer is None else self._outer(request, inner))

    async def _awrapped(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Result]]) -> Result:
        """See :meth:`_wrapped`."""
        run = _running.get()
        number, ready = run.of(proposed(request.tool_call))
        if isinstance(ready, Reject):
            return run.told(number, _rejection(ready))

        async def inner(final: ToolCallRequest) -> Result:
            word = await run.work.keeper.recheck(ready, run.plan.state, run.work.messages, proposed(final.tool_call))
            rejected = self._last(word, final)
            return _rejection(rejected) if rejected is not None else await execute(final)

        request = self._as_planned(request, ready)
        if self._aouter is not None:
            return run.told(number, await self._aouter(request, inner))
        if self._outer is None:
            return run.told(number, await inner(request))
        loop = asyncio.get_running_loop()
        blocking = self._outer

        def waits(final: ToolCallRequest) -> Result:
            return asyncio.run_coroutine_threadsafe(inner(final), loop).result()

        return run.told(number, await asyncio.to_thread(blocking, request, waits))

    def _as_planned(self, request: ToolCallRequest, ready: Execute | None) -> ToolCallRequest:
        """The call as a person left it."""
        if ready is None or proposed(request.tool_call) == ready.call:
            return request
        call = {**request.tool_call, "name": ready.call.name, "args": dict(mapping(ready.call.arguments))}
        return request.override(tool_call=cast("Any", call), tool=cast("Any", self.tools_by_name.get(ready.call.name)))

    def _last(self, word: Execute | Reject, request: ToolCallRequest) -> Reject | None:
        """Why a call does not run after all. What was judged is a call to a tool of this node, not to one put in its place."""
        if isinstance(word, Execute) and request.tool is not self.tools_by_name.get(word.call.name):
            return Reject(word.call, words.changed(word.call.name), "changed", word.record)
        return word if isinstance(word, Reject) else None


def _next(flow: Generator[Step, Any, Plan], answer: Any) -> Step | Plan:
    try:
        return flow.send(answer)
    except StopIteration as end:
        return cast("Plan", end.value)


def _stored(judged: Judged) -> dict[str, Any]:
    return {"state": judged.state.to_json(), "outcomes": [outcome_to_json(outcome) for outcome in judged.outcomes]}


def _restored(step: Decide, stored: Mapping[str, Any], ran: Sequence[Judged]) -> tuple[GateState, dict[int, Outcome]]:
    """What was decided, now or before the graph was interrupted."""
    calls = zip(step.calls.items(), stored["outcomes"], strict=True)
    outcomes = {number: outcome_from_json(one, call) for (number, call), one in calls}
    for judged in ran:
        for outcome in outcomes.values():
            events.judged(step.state.session, outcome, judged.decision)
    return GateState.read(stored["state"], step.state.session), outcomes


def _same(fresh: bool) -> bool:
    """As a task: kept with the checkpoint, so that an answer stays what it was found to be.

    An answer that is there before its question could be shown was given to another one: the state was changed after an interrupt, and the
    run resumed as if it had not been.
    """
    return fresh


async def _asame(fresh: bool) -> bool:
    return fresh


def _rejection(rejected: Reject) -> ToolMessage:
    return ToolMessage(rejected.text, name=rejected.call.name, tool_call_id=rejected.call.id, status="error")


@contextmanager
def _as_running(run: _Run) -> Generator[_Run]:
    token = _running.set(run)
    try:
        yield run
    finally:
        _running.reset(token)


def _with_state(result: Any, run: _Run) -> Any:
    if not run.work.keeps:
        return result
    update = {"gate": run.plan.state.to_json()}
    return [*result, update] if isinstance(result, list) else {**result, **update}

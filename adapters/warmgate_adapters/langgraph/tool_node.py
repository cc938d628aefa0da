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

from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Execute, GateState, Keeper, Reject, words
from warmgate_adapters.langgraph.channel import field, kept
from warmgate_adapters.langgraph.flow import Plan, Ready
from warmgate_adapters.langgraph.messages import (
    Tool,
    as_messages,
    before_last_call,
    openai_messages,
    proposed,
    schemas,
    user_turns,
)
from warmgate_adapters.langgraph.session import Naming, session_of
from warmgate_adapters.langgraph.settling import Proposal, asettle, settle

Result: TypeAlias = Any
"""What a tool call comes to: a ToolMessage, a Command, or a list of these."""

Wrapper: TypeAlias = Callable[[ToolCallRequest, Callable[[ToolCallRequest], Result]], Result]
AsyncWrapper: TypeAlias = Callable[[ToolCallRequest, Callable[[ToolCallRequest], Awaitable[Result]]], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class _Run:
    """The calls of one message, what is to be done about them, and whether the node's output may keep the state."""

    proposal: Proposal
    plan: Plan
    keeps: bool

    def of(self, call: ProposedCall) -> tuple[int, Ready | None]:
        """What was planned for a call of the message; of two under one id, for the one with these arguments."""
        wanted = self.proposal.keeper.binding(call)
        for number, one in enumerate(self.proposal.calls):
            if one.id == call.id and self.proposal.keeper.binding(one) == wanted:
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

    All calls of the model's message are judged together. A rejected one gets a result that says why. Those a person must decide about
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
        proposal, keeps = self._proposal(input, config)
        with _as_running(_Run(proposal, settle(proposal), keeps)) as run:
            return _with_state(super().invoke(input, config, **kwargs), run)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 -- as above
        """See :meth:`invoke`."""
        config = ensure_config(config)
        proposal, keeps = self._proposal(input, config)
        with _as_running(_Run(proposal, await asettle(proposal), keeps)) as run:
            return _with_state(await super().ainvoke(input, config, **kwargs), run)

    # -- what is to be done ------------------------------------------------------------------------------------------------------------

    def _proposal(self, given: Any, config: RunnableConfig) -> tuple[Proposal, bool]:
        raw, kind = self._parse_input(given)
        state = self._extract_state(given, config)
        listed = as_messages(state if isinstance(state, list) else field(state, self.messages_key))
        channel: Any = {} if isinstance(state, list) else kept(state, "GatedToolNode")
        before, last = before_last_call(listed)
        # Pregel's own key; its value is None where a graph was compiled without one. Absent: interrupt() itself refuses.
        attended = bool(mapping(config.get("configurable")).get("__pregel_checkpointer", True))
        proposal = Proposal(
            self.keeper if attended else self._alone,
            GateState.read(channel, session_of(config, channel, self.agent)),
            openai_messages(before),
            [proposed(call) for call in raw],
            str(last.id) if last is not None and last.id else "",
            user_turns(before),
        )
        return proposal, kind != "list"

    # -- doing it ----------------------------------------------------------------------------------------------------------------------

    def _wrapped(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Result]) -> Result:
        """Outside of a user's wrapper: rejected calls end here. Inside of it: the last look before the call runs."""
        run = _running.get()
        number, ready = run.of(proposed(request.tool_call))
        if isinstance(ready, Reject):
            return run.told(number, _rejection(ready))

        def inner(final: ToolCallRequest) -> Result:
            word = run.proposal.keeper.recheck_sync(ready, run.plan.state, run.proposal.messages, proposed(final.tool_call))
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
            word = await run.proposal.keeper.recheck(ready, run.plan.state, run.proposal.messages, proposed(final.tool_call))
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
    if not run.keeps:
        return result
    update = {"gate": run.plan.state.to_json()}
    return [*result, update] if isinstance(result, list) else {**result, **update}

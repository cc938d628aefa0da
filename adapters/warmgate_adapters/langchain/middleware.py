"""The gate as a middleware of LangChain's agents: mounts before a model call, verdicts after it, a last look before a tool call runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from langchain.agents.middleware.types import AgentMiddleware, ContextT, ExtendedModelResponse, ModelRequest, ModelResponse, ResponseT
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolRuntime
from langgraph.runtime import Runtime
from langgraph.types import Command

from warmgate.decision import binding_of
from warmgate.errors import OptionError
from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Ask, Execute, GateState, Judged, Keeper, Mounted, Reject, words
from warmgate_adapters.core.state import place
from warmgate_adapters.langchain.catalogue import Catalogue
from warmgate_adapters.langchain.prompts import Opening, openings
from warmgate_adapters.langchain.state import Edited, GateAgentState, UserTurn, user_turn
from warmgate_adapters.langchain.unfinished import Unfinished
from warmgate_adapters.langgraph import events
from warmgate_adapters.langgraph.flow import Plan
from warmgate_adapters.langgraph.messages import ANNOUNCES, Tool, before_last_call, openai_messages, proposed, usage_of
from warmgate_adapters.langgraph.session import Naming, session_of
from warmgate_adapters.langgraph.settling import Proposal, asettle, settle

Result: TypeAlias = ToolMessage | Command[Any]


@dataclass(frozen=True, slots=True)
class _Before:
    """A model call about to be made."""

    keeper: Keeper
    kept: GateState
    state: GateState
    system: Mapping[str, Any] | None
    messages: list[dict[str, Any]]
    turn: UserTurn


@dataclass(frozen=True, slots=True)
class _Last:
    """A tool call about to run."""

    keeper: Keeper
    state: GateState
    request: ToolCallRequest
    call: ProposedCall
    execute: Execute | None
    batch: str
    turn: UserTurn
    before: Sequence[AnyMessage]
    edited: bool


class GateMiddleware(AgentMiddleware[GateAgentState, ContextT, ResponseT]):
    """Puts an agent's calls under a gate. It stands last in ``middleware``.

    Before the model's call the gate says which tools the request carries, and where it goes: the session's header is on it. After the call
    the gate is told its usage, and all calls that the model proposes are judged together. Rejected ones get a result that says why;
    those a person must decide about are put into one ``interrupt()``, in the shapes of LangChain's HumanInTheLoopMiddleware. Just before
    a call runs its binding is computed again: a middleware that changed the call has it judged anew.

    Args:
        gate: The gate.
        tools: The agent's tools, where they should be known before its first call.
        agent: The agent's name, where a thread has several; or what makes a session's key of a config. Without it a session is a thread,
            and each subagent in it has its own.
        on_ask: ``deny`` where nobody is there to approve. Without a checkpointer nobody is.
        announce_as: Role of the message that announces tools: ``user`` for templates that take a system message at the start alone.
        keeper: ``model``, ``cache_salt`` and ``template_kwargs`` of the agent's calls, where they are not the settings' ones.
    """

    state_schema = GateAgentState

    def __init__(
        self,
        gate: Gate,
        *,
        tools: Sequence[Tool] = (),
        agent: Naming = None,
        on_ask: Literal["ask", "deny"] = "ask",
        announce_as: Literal["system", "user"] = "system",
        keeper: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.announce_as = announce_as
        self.gate = gate
        self.agent = agent
        self.catalogue = Catalogue(gate, tools, on_ask, keeper or {})
        self._openings = openings(gate)
        self._unfinished = Unfinished()

    # -- the model's call --------------------------------------------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[ContextT], handler: Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT]]
    ) -> ExtendedModelResponse[ResponseT]:
        """Mount, call, observe."""
        call = self._before(request)
        mounted = call.keeper.mount_sync(call.state, call.messages, user_turn=call.turn["number"])
        request, announcement = self._mounted(request, call, mounted)
        response = handler(request)
        seen = call.keeper.observe_sync(mounted.state, self._sent(call, announcement), _usage(response))
        events.survived(mounted.state.session, seen)
        return self._response(response, mounted, call, announcement)

    async def awrap_model_call(
        self, request: ModelRequest[ContextT], handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]]
    ) -> ExtendedModelResponse[ResponseT]:
        """See :meth:`wrap_model_call`."""
        call = self._before(request)
        mounted = await call.keeper.mount(call.state, call.messages, user_turn=call.turn["number"])
        request, announcement = self._mounted(request, call, mounted)
        response = await handler(request)
        seen = await call.keeper.observe(mounted.state, self._sent(call, announcement), _usage(response))
        events.survived(mounted.state.session, seen)
        return self._response(response, mounted, call, announcement)

    def _before(self, request: ModelRequest[ContextT]) -> _Before:
        self.catalogue.add(request.tools)
        keeper = self.catalogue.keeper()
        kept = mapping(request.state)
        checkpoint = self._state(kept)
        system = None if request.system_message is None else openai_messages([request.system_message])[0]
        messages = openai_messages(request.messages)
        turn = user_turn(request.messages, cast("UserTurn | None", kept.get("gate_turn")))
        state = self._unfinished.of(checkpoint)
        return _Before(keeper, checkpoint, state, system, messages if system is None else [system, *messages], turn)

    def _mounted(
        self, request: ModelRequest[ContextT], call: _Before, mounted: Mounted
    ) -> tuple[ModelRequest[ContextT], AnyMessage | None]:
        """The request as it is to be sent."""
        events.mounted(mounted)
        state = mounted.state
        settings = dict(request.model_settings)
        headers = state.headers or {self.gate.settings.session_header: state.session}
        settings["extra_headers"] = {**mapping(settings.get("extra_headers")), **headers}
        if body := call.keeper.body:
            own = mapping(getattr(request.model, "extra_body", None))
            settings["extra_body"] = {**own, **mapping(settings.get("extra_body")), **body}
        keeper, first = call.keeper, next((message.id for message in request.messages), None)
        opening = Opening(call.system, mounted.tools, first, keeper.template_kwargs, keeper.cache_salt, keeper.model)
        self._openings.note(state.session, opening)
        request = request.override(tools=self.catalogue.select(request.tools, mounted.tools), model_settings=settings)
        self._unfinished.begin(call.kept, call.state, state)
        if mounted.announcement is None:
            return request, None
        kind = SystemMessage if self.announce_as == "system" else HumanMessage
        message = kind(mounted.announcement, additional_kwargs={ANNOUNCES: list(state.announced)})
        return request.override(messages=[*request.messages, message]), message

    def _sent(self, call: _Before, announcement: AnyMessage | None) -> list[dict[str, Any]]:
        return call.messages if announcement is None else [*call.messages, *openai_messages([announcement])]

    def _response(
        self, response: ModelResponse[ResponseT], mounted: Mounted, call: _Before, announcement: AnyMessage | None
    ) -> ExtendedModelResponse[ResponseT]:
        """The reply, and behind it what the checkpoint keeps. The announcement comes before the reply, as it was sent."""
        self._unfinished.end(mounted.state)
        if announcement is not None:
            response = ModelResponse([announcement, *response.result], response.structured_response)
        update = {"gate": mounted.state.to_json(), "gate_turn": call.turn}
        return ExtendedModelResponse(response, Command(update=update))

    # -- the calls it proposes ---------------------------------------------------------------------------------------------------------

    def after_model(self, state: GateAgentState, runtime: Runtime[ContextT]) -> dict[str, Any] | None:
        """Judge all calls that the model proposed, and ask about those that need a person."""
        proposal = self._proposal(state)
        return None if proposal is None else self._settled(proposal, settle(proposal))

    async def aafter_model(self, state: GateAgentState, runtime: Runtime[ContextT]) -> dict[str, Any] | None:
        """See :meth:`after_model`."""
        proposal = self._proposal(state)
        return None if proposal is None else self._settled(proposal, await asettle(proposal))

    def _proposal(self, state: GateAgentState) -> Proposal | None:
        messages = state["messages"]
        before, last = before_last_call(messages)
        if last is None:
            return None
        answered = {message.tool_call_id for message in messages[len(before) + 1 :] if isinstance(message, ToolMessage)}
        calls = [proposed(call) for call in last.tool_calls if call.get("id") not in answered]  # structured output is answered already
        if not calls:
            return None
        kept = self._state(state)
        keeper = self.catalogue.keeper(attended=_attended(ensure_config()), state=kept)
        turn = user_turn(before, state.get("gate_turn"))
        return Proposal(keeper, kept, self._conversation(kept, before), calls, last.id or "", turn["number"])

    def _settled(self, proposal: Proposal, plan: Plan) -> dict[str, Any]:
        """What the checkpoint keeps. Rejected calls go on to the tools as well, and end there: results keep the order of their calls."""
        edits: dict[str, Edited] = {}
        for number in plan.edited:
            call = plan.ready[number].call
            edits[_edited(proposal.calls[number])] = Edited(name=call.name, args=dict(mapping(call.arguments)))
        return {"gate": plan.state.to_json(), "gate_edits": edits}

    # -- innermost, just before a call runs --------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]) -> Result:
        """Run a call that was judged as it is; judge it where it was not.

        Raises:
            OptionError: Another middleware stands behind this one and could still change the call.
        """
        last = self._last(request, handler)
        word: Execute | Reject | None = last.execute
        if word is None:
            messages, turn = self._conversation(last.state, last.before), last.turn["number"]
            word = self._word(last, last.keeper.judge_sync(last.state, messages, (last.call,), batch=last.batch, user_turn=turn))
        return _told(_rejection(word, last) if isinstance(word, Reject) else handler(last.request), last)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]) -> Result:
        """See :meth:`wrap_tool_call`."""
        last = self._last(request, handler)
        word: Execute | Reject | None = last.execute
        if word is None:
            messages, turn = self._conversation(last.state, last.before), last.turn["number"]
            word = self._word(last, await last.keeper.judge(last.state, messages, (last.call,), batch=last.batch, user_turn=turn))
        return _told(_rejection(word, last) if isinstance(word, Reject) else await handler(last.request), last)

    def _last(self, request: ToolCallRequest, handler: object) -> _Last:
        if "_chain_" in getattr(handler, "__qualname__", ""):
            raise OptionError(
                "another middleware that wraps tool calls stands behind it and could change a call after it was judged",
                where="GateMiddleware",
                mend="put it last in create_agent(middleware=[...])",
            )
        kept = mapping(request.state)
        runtime = cast("ToolRuntime[Any, Any]", cast("Any", request).runtime)
        self.catalogue.add(runtime.tools)
        state = self._state(kept, runtime.config)
        before, message = before_last_call(cast("Sequence[AnyMessage]", kept.get("messages", ())))
        call = proposed(request.tool_call)
        edits = mapping(kept.get("gate_edits"))
        edit = cast("Edited | None", edits.get(_edited(call), edits.get(call.id)))  # by its id alone in older checkpoints
        edited = edit is not None and message is not None and any(proposed(one) == call for one in message.tool_calls)
        if edit is not None and edited:
            request = _replaced(request, edit)
            call = proposed(request.tool_call)
        keeper = self.catalogue.keeper(attended=_attended(runtime.config), state=state)
        batch = message.id or "" if message is not None else ""
        return _Last(
            keeper,
            state,
            request,
            call,
            _planned(keeper, state, batch, request, call),
            batch,
            user_turn(before, cast("UserTurn | None", kept.get("gate_turn"))),
            before,
            edited,
        )

    def _word(self, last: _Last, judged: Judged) -> Execute | Reject:
        """A call that is not the one judged before runs only if the gate allows it by itself: nobody can be asked here."""
        outcome = judged.outcomes[0]
        if judged.decision is not None:
            events.judged(last.state.session, outcome, judged.decision)
        if isinstance(outcome, Ask) or (isinstance(outcome, Execute) and _swapped(last.request)):
            return Reject(outcome.call, words.changed(outcome.call.name), "changed", outcome.record)
        return outcome

    def needs_review(self, request: ToolCallRequest) -> bool:
        """For ``when`` of LangChain's HumanInTheLoopMiddleware: False where the gate rejected the call, or a person approved it here."""
        kept = mapping(request.state)
        state = self._state(kept)
        _, message = before_last_call(cast("Sequence[AnyMessage]", kept.get("messages", ())))
        call = proposed(request.tool_call)
        record = state.verdicts.get(place(message.id or "" if message is not None else "", call.id))
        if record is None:
            return state.mounts is None or call.name in state.mounts  # a call to an unmounted tool gets no verdict
        return record.shadow or (record.verdict == "allow" and not record.approved)

    # -- both --------------------------------------------------------------------------------------------------------------------------

    def _state(self, kept: Mapping[str, Any], config: Any = None) -> GateState:
        channel = kept.get("gate")
        return GateState.read(channel, session_of(config or ensure_config(), channel, self.agent))

    def _conversation(self, state: GateState, messages: Sequence[AnyMessage]) -> list[dict[str, Any]]:
        opening = self._openings.of(state.session)
        system = [dict(opening.system)] if opening is not None and opening.system is not None else []
        return [*system, *openai_messages(messages)]


def _usage(response: ModelResponse[Any]) -> dict[str, Any] | None:
    return next((usage_of(message) for message in reversed(response.result) if isinstance(message, AIMessage)), None)


def _planned(keeper: Keeper, state: GateState, batch: str, request: ToolCallRequest, call: ProposedCall) -> Execute | None:
    """What was decided about exactly this call, to this tool; ``None`` where it must be judged."""
    record = state.verdicts.get(place(batch, call.id))
    if record is None or _swapped(request):
        return None
    if not (record.approved or record.shadow or record.verdict == "allow"):
        return None
    execute = Execute(call, record.binding, record)
    return execute if keeper.holds(execute, call) else None


def _swapped(request: ToolCallRequest) -> bool:
    """Whether the tool that is to run is another one than the agent has under this name."""
    own = _own(request, request.tool_call["name"])
    return own is not None and request.tool is not own


def _replaced(request: ToolCallRequest, edit: Edited) -> ToolCallRequest:
    """The call as a person left it."""
    call = {**request.tool_call, "name": edit["name"], "args": edit["args"]}
    return request.override(tool_call=cast("Any", call), tool=cast("Any", _own(request, edit["name"])))


def _edited(call: ProposedCall) -> str:
    """Place of an edit: of two calls under one id only the one that a person changed is replaced."""
    return place(binding_of(call, policy="", model=""), call.id)


def _own(request: ToolCallRequest, name: str) -> BaseTool | None:
    runtime = cast("ToolRuntime[Any, Any]", cast("Any", request).runtime)
    return next((tool for tool in runtime.tools if tool.name == name), None)


def _attended(config: Any) -> bool:
    """Whether a person could answer: the run has a checkpointer. The key is Pregel's own; its value is None where there is none."""
    return bool(mapping(mapping(config).get("configurable")).get("__pregel_checkpointer", True))


def _rejection(rejected: Reject, last: _Last) -> ToolMessage:
    return ToolMessage(rejected.text, name=rejected.call.name, tool_call_id=last.call.id, status="error")


def _told(result: Result, last: _Last) -> Result:
    """The model hears of a person's change in the call's result: its own message stays as it is, and so does the prefix."""
    if not last.edited or not isinstance(result, ToolMessage) or not isinstance(result.content, str):
        return result
    return result.model_copy(update={"content": f"{_changed(last.call)}\n{result.content}"})


def _changed(call: ProposedCall) -> str:
    said = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False, default=str)
    return f"A person changed this call to {said}."

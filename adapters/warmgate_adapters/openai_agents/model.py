"""The agent's model: it is given the tools its session offers, and its calls go to the session's worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from agents import Handoff, Model, ModelResponse, ModelSettings, ModelTracing, Tool, TResponseInputItem
from agents.agent_output import AgentOutputSchemaBase
from agents.items import TResponseStreamEvent
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.responses.response_prompt_param import ResponsePromptParam

from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.mounting import tool_name
from warmgate.workers import AsyncStickyTransport2
from warmgate_adapters.core import Keeper
from warmgate_adapters.openai_agents.desk import Call, desk
from warmgate_adapters.openai_agents.naming import thread_of
from warmgate_adapters.openai_agents.shapes import catalogue, handoff_schema, messages_of, schema_of

PLACEHOLDER = "http://session.invalid/v1"
"""Scheme, host and port are replaced by those of the session's worker."""

Items = str | list[TResponseInputItem]


def sticky_client(gate: Gate, **arguments: Any) -> AsyncOpenAI:
    """An ``AsyncOpenAI`` whose calls go to the worker of the session that their header names, and, where that is lost, to the next.

    Args:
        gate: The gate; its pool is not closed with the client.
        arguments: Of AsyncOpenAI. ``api_key`` is the workers'.
    """
    settings = gate.settings
    transport = AsyncStickyTransport2(gate.pool, session_header=settings.session_header)
    given: dict[str, Any] = {"base_url": PLACEHOLDER, "api_key": settings.api_key or "none"}
    given["http_client"] = DefaultAsyncHttpxClient(transport=transport)
    return AsyncOpenAI(**{**given, **arguments})


def sticky_model(gate: Gate, client: AsyncOpenAI | None = None, **more: Any) -> GatedModel:
    """The settings' model on the session's worker, for ``Agent(model=…)``.

    Args:
        gate: The gate.
        client: Instead of :func:`sticky_client`'s.
        more: Of :class:`GatedModel`.
    """
    model = more.get("model") or gate.settings.model
    return GatedModel(OpenAIChatCompletionsModel(model, client or sticky_client(gate)), gate, **more)


@dataclass(frozen=True, slots=True)
class _Request:
    items: Items
    settings: ModelSettings
    tools: list[Tool]
    handoffs: list[Handoff[Any, Any]]


class GatedModel(Model):
    """A model whose requests carry the tools their session offers.

    Tools that are not offered are left out of the request alone: the SDK still knows them, so that a call to one gets an answer instead of
    ending the run, as it would with ``is_enabled``. Works with :class:`GateHooks`, which say whose call it is; without them every tool is
    sent, and the call still goes to the worker of the run's ``group_id``.

    Args:
        model: What makes the calls.
        gate: The gate.
        announce_as: Role of messages that add tools. Some chat templates take a system message at the start alone.
        keeper: Arguments of :class:`~warmgate_adapters.core.Keeper`: ``model``, ``cache_salt``, ``template_kwargs``.
    """

    def __init__(self, model: Model, gate: Gate, /, *, announce_as: Literal["system", "user"] = "system", **keeper: Any) -> None:
        self.inner = model
        self._gate = gate
        self._desk = desk(gate)
        self._announce_as = announce_as
        self.keeper_arguments = keeper

    async def get_response(
        self,
        system_instructions: str | None,
        input: Items,  # noqa: A002 -- Model's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        """See :class:`agents.Model`."""
        sent = await self._request(system_instructions, input, model_settings, tools, handoffs)
        return await self.inner.get_response(
            system_instructions,
            sent.items,
            sent.settings,
            sent.tools,
            output_schema,
            sent.handoffs,
            tracing,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Items,  # noqa: A002 -- Model's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """See :class:`agents.Model`. Events are handed on as they come."""
        if model_settings.include_usage is None:
            model_settings = replace(model_settings, include_usage=True)
        sent = await self._request(system_instructions, input, model_settings, tools, handoffs)
        async for event in self.inner.stream_response(
            system_instructions,
            sent.items,
            sent.settings,
            sent.tools,
            output_schema,
            sent.handoffs,
            tracing,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        ):
            yield event

    async def close(self) -> None:
        """Close what makes the calls."""
        client = getattr(self.inner, "_client", None)
        await self.inner.close()
        if isinstance(client, AsyncOpenAI):
            await client.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """See :class:`agents.Model`."""
        return self.inner.get_retry_advice(request)

    # -- inside ------------------------------------------------------------------------------------------------------------------------

    async def _request(
        self, instructions: str | None, items: Items, settings: ModelSettings, tools: list[Tool], handoffs: list[Handoff[Any, Any]]
    ) -> _Request:
        """The request as it is sent."""
        call = self._desk.begun(items)
        settings = self._with_body(settings)
        if call is None or isinstance(items, str):
            return _Request(items, self._with_headers(settings, {}, thread_of()), tools, handoffs)
        session = call.session
        session.keeper = Keeper(self._gate, catalogue(tools, handoffs), **self.keeper_arguments)
        session.messages = self._messages(instructions, self._announced(call))
        mounted = await session.keeper.mount(session.state, session.messages, user_turn=session.user_turn)
        if mounted.announcement is not None:
            session.placed[len(items)] = mounted.announcement
            session.messages = self._messages(instructions, self._announced(call))
        context = call.run()
        if context is not None:
            self._desk.keep(session, context, mounted.state)
        self._desk.decided(session, mounted.decision)
        call.routed = True
        offered = {tool_name(tool) for tool in mounted.tools}
        kept = [tool for tool in tools if (schema := schema_of(tool)) is None or tool_name(schema) in offered]
        transfers = [one for one in handoffs if tool_name(handoff_schema(one)) in offered]
        if settings.tool_choice not in (None, "auto", "required", "none") and settings.tool_choice not in offered:
            settings = replace(settings, tool_choice=None)  # a server refuses a request that forces a tool which it does not list
        return _Request(self._announced(call), self._with_headers(settings, mounted.state.headers, session.key), kept, transfers)

    def _announced(self, call: Call) -> list[TResponseInputItem]:
        """The conversation with each announcement where it was first made: the prompt of each call begins with that of the one before."""
        placed = call.session.placed
        if not placed:
            return list(call.items)
        made: list[TResponseInputItem] = []
        for number in range(len(call.items) + 1):
            if number in placed:
                made.append(cast("TResponseInputItem", {"role": self._announce_as, "content": placed[number]}))
            if number < len(call.items):
                made.append(call.items[number])
        return made

    def _messages(self, instructions: str | None, items: list[TResponseInputItem]) -> list[dict[str, Any]]:
        model = getattr(self.inner, "model", self._gate.settings.model)
        client = getattr(self.inner, "_client", None)
        return messages_of(instructions, items, str(model), str(client.base_url) if isinstance(client, AsyncOpenAI) else "")

    def _with_body(self, settings: ModelSettings) -> ModelSettings:
        """Salt and template arguments, which the decision carries as well."""
        body = Keeper(self._gate, (), **self.keeper_arguments).body
        if not body:
            return settings
        return replace(settings, extra_body={**mapping(cast("Any", settings.extra_body)), **body})

    def _with_headers(self, settings: ModelSettings, headers: dict[str, str], session: str | None) -> ModelSettings:
        if not headers and session is None:
            return settings
        named = headers or {self._gate.settings.session_header: cast("str", session)}
        return replace(settings, extra_headers={**cast("dict[str, str]", settings.extra_headers or {}), **named})

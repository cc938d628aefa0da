"""The SDK's hooks: what a call was about before it, what it cost and what it proposes after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent, Handoff, ModelResponse, RunContextWrapper, RunHooks, TResponseInputItem

from warmgate.decision import Observation
from warmgate.gate import Gate
from warmgate_adapters.core import Keeper
from warmgate_adapters.openai_agents.desk import desk, keeper_arguments
from warmgate_adapters.openai_agents.shapes import catalogue, messages_of, proposed, usage_of, user_turns


class GateHooks(RunHooks[Any]):
    """For ``Runner.run(…, hooks=GateHooks(gate))``. Hooks only watch: what enforces is :func:`gated_tools`.

    Before a call of the model they hand session and conversation to the :class:`GatedModel`; after it they tell the gate its usage and have
    all proposed calls judged together. One object may serve any number of runs at once.

    Args:
        gate: The gate.
        observed: Called with the session's key and what was seen of each call of its model.
    """

    def __init__(self, gate: Gate, observed: Callable[[str, Observation], None] | None = None) -> None:
        self.gate = gate
        self._desk = desk(gate)
        self._observed = observed

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """The session of the coming call; a person's refusals since the last one.

        Raises:
            OptionError: The run's context holds a state that this version cannot read.
        """
        session = self._desk.session(context, agent.name, leads=True)
        session.keeper = Keeper(self.gate, catalogue(agent.tools), **keeper_arguments(agent))
        session.messages = messages_of(system_prompt, input_items, self.gate.settings.model)
        session.user_turn = user_turns(input_items)
        session.batch = str(len(input_items))
        session.outcomes.clear()
        session.patches.clear()
        self._desk.note_refusals(session, context, input_items)
        self._desk.begin(session, context, input_items)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """What survived of the call, and a verdict on all that it proposes."""
        call = self._desk.end(context)
        session = call.session if call is not None else self._desk.session(context, agent.name, catalogue(agent.tools))
        seen = await session.keeper.observe(session.state, session.messages, usage_of(response))
        if seen is not None:
            self._tell(session.key, seen)
        calls = [one for one in map(proposed, self._local(response.output, agent)) if one is not None]
        if calls:
            await self._desk.judge(session, context, calls)

    def _tell(self, session: str, seen: Observation) -> None:
        if self._observed is not None:
            self._observed(session, seen)

    def _local(self, output: Sequence[Any], agent: Agent[Any]) -> list[Any]:
        """Without handoffs: these are no tool calls to the SDK."""
        handoffs = {getattr(one, "tool_name", None) or _transfer(one) for one in agent.handoffs}
        return [item for item in output if getattr(item, "name", None) not in handoffs]


def _transfer(agent: Any) -> str:
    return Handoff.default_tool_name(agent)

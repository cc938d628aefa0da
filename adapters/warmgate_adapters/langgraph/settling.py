"""From the calls of the model's message to what becomes of each, inside one node; what was decided there is never decided again.

Each step is a task of LangGraph's, whose result the checkpoint keeps; a node that was interrupted runs anew and finds it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langgraph.types import interrupt

from warmgate.turn import ProposedCall
from warmgate_adapters.core import GateState, Judged, Keeper, Outcome, outcome_from_json, outcome_to_json
from warmgate_adapters.langgraph import answers, events
from warmgate_adapters.langgraph.flow import Decide, Plan, Step, plan
from warmgate_adapters.langgraph.once import once


@dataclass(frozen=True, slots=True)
class Proposal:
    """Calls that the model proposed.

    Attributes:
        keeper: Stands between them and the gate.
        state: The session's.
        messages: Up to the message that proposes them.
        calls: Those still to be answered.
        batch: Id of that message.
        user_turn: Which of the user's turns this is.
    """

    keeper: Keeper
    state: GateState
    messages: Sequence[Mapping[str, Any]]
    calls: Sequence[ProposedCall]
    batch: str
    user_turn: int

    def story(self) -> Generator[Step, Any, Plan]:
        """See :func:`warmgate_adapters.langgraph.flow.plan`."""
        return plan(self.keeper, self.state, self.messages, self.calls, batch=self.batch, user_turn=self.user_turn)


def settle(proposal: Proposal) -> Plan:
    """Judge all calls by one request, and ask a person about those that need one.

    Raises:
        OptionError: What came as a person's answer is none.
    """
    story = proposal.story()
    step, fresh = _next(story, None), False
    while not isinstance(step, Plan):
        answer: Any
        if isinstance(step, Decide):
            decide, ran = step, list[Judged]()

            def judge(decide: Decide = decide, ran: list[Judged] = ran) -> dict[str, Any]:
                p, calls = proposal, tuple(decide.calls.values())
                ran.append(p.keeper.judge_sync(decide.state, p.messages, calls, batch=p.batch, user_turn=p.user_turn))
                return _stored(ran[-1])

            answer = _restored(decide, once("warmgate.judge", judge)().result(), ran)
            fresh = bool(ran)
        else:
            answer = interrupt(answers.question(step.asks, step.problem))
            if once("warmgate.answered", _same)(fresh).result():
                answer = None
        step = _next(story, answer)
    return step


async def asettle(proposal: Proposal) -> Plan:
    """See :func:`settle`."""
    story = proposal.story()
    step, fresh = _next(story, None), False
    while not isinstance(step, Plan):
        answer: Any
        if isinstance(step, Decide):
            decide, ran = step, list[Judged]()

            async def judge(decide: Decide = decide, ran: list[Judged] = ran) -> dict[str, Any]:
                p, calls = proposal, tuple(decide.calls.values())
                ran.append(await p.keeper.judge(decide.state, p.messages, calls, batch=p.batch, user_turn=p.user_turn))
                return _stored(ran[-1])

            answer = _restored(decide, await once("warmgate.judge", judge)(), ran)
            fresh = bool(ran)
        else:
            answer = interrupt(answers.question(step.asks, step.problem))
            if await once("warmgate.answered", _asame)(fresh):
                answer = None
        step = _next(story, answer)
    return step


def _next(story: Generator[Step, Any, Plan], answer: Any) -> Step | Plan:
    try:
        return story.send(answer)
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

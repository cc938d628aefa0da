"""From the calls of the model's message to what becomes of each, inside one node; what was decided there is never decided again.

Each step is a task of LangGraph's, whose result the checkpoint keeps; a node that was interrupted runs anew and finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from langgraph.types import interrupt

from warmgate.errors import OptionError
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Ask, GateState, Judged, Keeper, Outcome, outcome_from_json, outcome_to_json
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
    """Judge all calls together, and ask a person about those that need one.

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
            given = interrupt(answers.question(step.asks, step.problem))
            hear = partial(_heard, proposal.keeper, step.asks, given)
            answer = None if once("warmgate.answered", hear)(fresh).result() else given
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
            given = interrupt(answers.question(step.asks, step.problem))
            hear = partial(_aheard, proposal.keeper, step.asks, given)
            answer = None if await once("warmgate.answered", hear)(fresh) else given
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


def _heard(keeper: Keeper, asks: Sequence[Ask], given: Any, fresh: bool) -> bool:
    """As a task: kept with the checkpoint, so that an answer stays what it was found to be, and is told once.

    An answer that is there before its question could be shown was given to another one: the state was changed after an interrupt, and the
    run resumed as if it had not been.
    """
    if not fresh:
        with contextlib.suppress(OptionError):  # no answer: it will be asked for again
            for ask, answer in zip(asks, answers.read(given, asks), strict=True):
                if answer.type != "edit":
                    keeper.heard(ask, approved=answer.type == "approve")
    return fresh


async def _aheard(keeper: Keeper, asks: Sequence[Ask], given: Any, fresh: bool) -> bool:
    return _heard(keeper, asks, given, fresh)

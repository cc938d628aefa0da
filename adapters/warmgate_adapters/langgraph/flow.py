"""From proposed calls to calls that run, as one story without waiting: code that awaits and code that cannot both drive it.

A generator yields what it needs (:class:`Decide`, :class:`AskPeople`) and is sent the answer. Where the graph is resumed, answers come from
the checkpoint, so that nothing is decided twice; what is compared with *now* is the binding of each call about to run.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from warmgate.errors import OptionError
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Ask, Execute, GateState, Keeper, Outcome, Reject, words
from warmgate_adapters.langgraph import answers


@dataclass(frozen=True, slots=True)
class Decide:
    """Wants an outcome for each call, and the state after it."""

    calls: Mapping[int, ProposedCall]
    state: GateState


@dataclass(frozen=True, slots=True)
class AskPeople:
    """Wants a person's answer, or ``None`` where the one that came was given to something else.

    Attributes:
        asks: The calls.
        problem: What was wrong with the answer before.
    """

    asks: Sequence[Ask]
    problem: str | None = None


Step: TypeAlias = Decide | AskPeople
Ready: TypeAlias = Execute | Reject


@dataclass(slots=True)
class Plan:
    """What is to be done.

    Attributes:
        state: To be kept.
        ready: An outcome for each call, by its position in the message.
        edited: Positions of calls that a person changed.
    """

    state: GateState
    ready: dict[int, Ready] = field(default_factory=dict[int, Ready])
    edited: set[int] = field(default_factory=set[int])


def plan(
    keeper: Keeper,
    state: GateState,
    messages: Sequence[Mapping[str, Any]],
    calls: Sequence[ProposedCall],
    *,
    batch: str,
    user_turn: int | None,
) -> Generator[Step, Any, Plan]:
    """See the module.

    Args:
        keeper: Of the node.
        state: The session's.
        messages: Up to the message that proposes the calls.
        calls: Its calls.
        batch: Identifies it.
        user_turn: Which user turn this is.
    """
    done = Plan(state)
    todo: dict[int, ProposedCall] = dict(enumerate(calls))
    while todo:
        outcomes: dict[int, Outcome]
        done.state, outcomes = yield Decide(todo, done.state)
        todo, asks = {}, dict[int, Ask]()
        for number, outcome in outcomes.items():
            if isinstance(outcome, Ask):
                asks[number] = outcome
            else:
                _settle(keeper, done, todo, number, outcome)
        if not asks:
            continue
        given = yield from _asked(tuple(asks.values()))
        if given is None:
            for number, ask in asks.items():
                done.ready[number] = Reject(ask.call, words.changed(ask.call.name), "changed", ask.record)
            continue
        for (number, ask), answer in zip(asks.items(), given, strict=True):
            if answer.type == "approve":
                done.state, approved = keeper.approve(done.state, ask, batch=batch)
                _settle(keeper, done, todo, number, approved)
            elif answer.type == "reject":
                done.state, done.ready[number] = keeper.refuse(done.state, ask, messages, message=answer.message, user_turn=user_turn)
            else:
                done.edited.add(number)
                todo[number] = ProposedCall(ask.call.id, answer.name or ask.call.name, answer.arguments)
    return done


def _asked(asks: Sequence[Ask]) -> Generator[Step, Any, list[answers.Answer] | None]:
    """The answers. What is none is asked for again: raising would leave it in the checkpoint, to be raised at every attempt."""
    problem: str | None = None
    while True:
        given = yield AskPeople(asks, problem)
        if given is None:
            return None
        try:
            return answers.read(given, asks)
        except OptionError as fault:
            problem = str(fault)


def _settle(keeper: Keeper, done: Plan, todo: dict[int, ProposedCall], number: int, outcome: Execute | Reject) -> None:
    """A call to run that was judged under another policy or model than now's (the process was updated meanwhile) is judged anew."""
    if isinstance(outcome, Execute) and not keeper.holds(outcome, outcome.call):
        todo[number] = outcome.call
    else:
        done.ready[number] = outcome

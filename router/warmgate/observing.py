"""What an agent's call shows afterwards: whether its prompt was the predicted one, and how much of it survived."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from warmgate.alignment.planning import Compared
from warmgate.answers import Usage
from warmgate.asking import Asker
from warmgate.decision import Decision, Observation
from warmgate.engines import Deadline
from warmgate.errors import WarmgateError
from warmgate.means import Means
from warmgate.mounting import Memory, tool_name
from warmgate.prefix.usage import Reported, reported
from warmgate.telemetry.protocol import CallSeen, Finished, Parts
from warmgate.trail import entry
from warmgate.turn import Turn
from warmgate.workers.binding import Binding

SHARE = 0.5
"""Part of an observation's time that may go into waiting for what was looked up beside the decision."""


async def observe(means: Means, memory: Memory, turn: Turn, usage: Any, deadline: Deadline) -> Observation:
    """See :meth:`warmgate.gate.Gate.observe`."""
    try:
        return await _observe(means, memory, turn, usage, deadline)
    except Exception as fault:  # noqa: BLE001 -- the call is over: figures must not cost the agent its answer
        means.watch.failed(fault)
        why = fault.what if isinstance(fault, WarmgateError) else type(fault).__name__
        return unseen(f"the call could not be taken in ({why})")


def unseen(note: str) -> Observation:
    """An observation that found nothing out."""
    ledger = entry(None, shared=None, unit=None, cached=None)
    return Observation(predicted_tokens=None, reported_tokens=None, cached_tokens=None, drift=None, ledger=ledger, notes=(note,))


async def _observe(means: Means, memory: Memory, turn: Turn, usage: Any, deadline: Deadline) -> Observation:
    seen = _reported(usage)
    told = Usage(input_tokens=seen.prompt_tokens, output_tokens=seen.output_tokens, cached_tokens=seen.cached_tokens)
    model = turn.model or means.settings.model
    notes: list[str] = []
    compared, unit, binding = Compared(None), None, None
    if told.input_tokens is None:
        notes.append("the call's usage counts no prompt tokens, so nothing is compared")
    try:
        binding = await means.pool.acquire(turn.session, timeout_s=deadline.remaining())
    except WarmgateError as fault:
        notes.append(f"nothing is compared: {fault.what}")
    if binding is not None:
        found, decision = await means.watch.came(turn.session, binding.worker, seen, usage, wait_s=deadline.remaining() * SHARE)
        survival, why = (None, found) if isinstance(found, str) else (found, None)
        call_seen = CallSeen(turn.session, model, binding.worker, seen, survival, decision, ended=time.time(), unpredicted=why)
        means.tell.agent_call(call_seen)
    if binding is not None and told.input_tokens is not None:
        loss_now = means.trails.on(turn.session, binding)
        if loss_now is not None:
            notes.append(f"{loss_now.replace('_', ' ')} since the decision")
        remote = means.remote(binding, model, deadline)
        compared = await means.planning.compare(turn, memory.offered(turn), model, told.input_tokens, remote)
        if compared.note is not None:
            notes.append(compared.note)
        unit = (await means.finding(binding, model)).unit
    extended = means.trails.called(turn.session)
    held, loss = means.trails.held(turn.session)
    shared: int | None = held
    if extended:
        shared = compared.predicted - compared.opening if compared.predicted is not None and compared.cause is None else None
        loss = None
    call = entry(told.input_tokens, shared=shared, unit=unit, cached=told.cached_tokens, loss=loss)
    if binding is not None and extended == "planted" and told.cached_tokens is not None:
        notes += _planted(means, binding, model, told.cached_tokens, call.reusable)
    if told.input_tokens is not None:
        means.trails.reached(turn.session, told.input_tokens)
    return Observation(
        predicted_tokens=compared.predicted,
        reported_tokens=told.input_tokens,
        cached_tokens=told.cached_tokens,
        drift=compared.cause,
        ledger=call,
        notes=tuple(notes),
    )


def finished(means: Means, turn: Turn, asker: Asker, decision: Decision, queued: float) -> Finished:
    """A decision as those who listen are told of it.

    Args:
        means: The gate's.
        turn: What it is about.
        asker: Who asked its questions.
        decision: What was decided.
        queued: Seconds it waited for another decision of its session.
    """
    asked = sum(read.elapsed_s for read in decision.reads)
    hop = sum(min(read.elapsed_s, means.watch.hop(read.worker)) for read in decision.reads if read.engine is not None)
    ids = {f"call{number}": call.id for number, call in enumerate(turn.proposed_calls)}
    return Finished(
        decision,
        turn.session,
        asker.model,
        Parts(queued, hop, asked - hop, max(0.0, decision.elapsed_s - queued - asked)),
        {ids[name]: one for name, one in asker.asked_about.items() if name in ids},
        {ids[name]: answer for name, answer in asker.told.items() if name in ids},
        asker.prompt_tokens,
        _dropped(turn, decision),
    )


def _dropped(turn: Turn, decision: Decision) -> int:
    would = decision.mounts.would
    if would is None or len(would) >= len(turn.tools):
        return 0
    return sum(len(json.dumps(tool, default=str)) for tool in turn.tools if tool_name(tool) not in would)


def _reported(usage: Any) -> Reported:
    """The usage of any answer; requests summed up tell nothing about one prompt."""
    if isinstance(usage, Usage):
        return Reported(usage.input_tokens, usage.cached_tokens, None, usage.output_tokens)
    found = reported(usage)
    return found if found.requests == 1 else replace(found, prompt_tokens=None, cached_tokens=None)


def _planted(means: Means, binding: Binding, model: str, cached: int, reusable: int | None) -> list[str]:
    """Planting that finds nothing again and again is given up."""
    if cached:
        means.findings.found(binding.worker, model)
    elif reusable:
        given_up = means.findings.missed(binding.worker, model)
        if given_up is not None:
            return [f"alignment does not pay on {binding.worker}: {given_up.why}; {given_up.mend}"]
    return []

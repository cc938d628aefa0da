"""What an agent's call shows afterwards: whether its prompt was the predicted one, and how much of it survived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmgate.alignment.planning import Compared
from warmgate.answers import Usage
from warmgate.decision import Observation
from warmgate.engines import Deadline
from warmgate.engines.wire import usage_of
from warmgate.errors import WarmgateError
from warmgate.means import Means
from warmgate.mounting import Memory
from warmgate.trail import entry
from warmgate.turn import Turn
from warmgate.workers.binding import Binding


async def observe(means: Means, memory: Memory, turn: Turn, usage: Mapping[str, Any] | Usage | None, deadline: Deadline) -> Observation:
    """See :meth:`warmgate.gate.Gate.observe`."""
    told = usage if isinstance(usage, Usage) else usage_of(usage)
    model = turn.model or means.settings.model
    notes: list[str] = []
    compared, unit, binding = Compared(None), None, None
    if told.input_tokens is None:
        notes.append("the call's usage counts no prompt tokens, so nothing is compared")
    else:
        try:
            binding = await means.pool.acquire(turn.session, timeout_s=deadline.remaining())
        except WarmgateError as fault:
            notes.append(f"nothing is compared: {fault.what}")
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


def _planted(means: Means, binding: Binding, model: str, cached: int, reusable: int | None) -> list[str]:
    """Planting that finds nothing again and again is given up."""
    if cached:
        means.findings.found(binding.worker, model)
    elif reusable:
        given_up = means.findings.missed(binding.worker, model)
        if given_up is not None:
            return [f"alignment does not pay on {binding.worker}: {given_up.why}; {given_up.mend}"]
    return []

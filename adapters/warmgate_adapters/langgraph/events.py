"""What a graph's ``custom`` stream carries of the gate: one dict for each thing that happened, under ``warmgate``."""

from __future__ import annotations

from typing import Any

from langgraph.config import get_stream_writer

from warmgate.decision import Decision, Observation
from warmgate_adapters.core import Mounted, Outcome, Reject
from warmgate_adapters.core.outcomes import Execute


def emit(event: str, **fields: Any) -> None:
    """Write one, where somebody streams; outside a graph nobody does."""
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):
        return
    writer({"warmgate": event, **fields})


def mounted(found: Mounted) -> None:
    """The tools of a turn."""
    state = found.state
    emit(
        "mounts",
        session=state.session,
        decision=state.decision if found.decision is not None else None,
        worker=state.worker,
        mounts=None if state.mounts is None else list(state.mounts),
        changed=found.decision is not None and found.decision.mounts.changed,
        announced=found.announcement is not None,
        reason=found.decision.mounts.reason if found.decision is not None else f"kept: {found.fault}",
    )


def judged(session: str, outcome: Outcome, decision: Decision | None) -> None:
    """What is to be done with one call."""
    word = "run" if isinstance(outcome, Execute) else "rejected" if isinstance(outcome, Reject) else "asked"
    record = outcome.record
    emit(
        "verdict",
        session=session,
        decision=decision.id if decision is not None else None,
        call=outcome.call.id,
        tool=outcome.call.name,
        outcome=word,
        verdict=record.verdict if record is not None else None,
        why=outcome.why if isinstance(outcome, Reject) else None,
        reason=record.reason if record is not None else None,
    )


def survived(session: str, observation: Observation | None) -> None:
    """How much of the prefix of the agent's call survived."""
    if observation is None:
        return
    ledger = observation.ledger
    emit(
        "survival",
        session=session,
        prompt_tokens=observation.reported_tokens,
        predicted_tokens=observation.predicted_tokens,
        cached_tokens=observation.cached_tokens,
        reusable=ledger.reusable,
        survived=ledger.survived,
        basis=ledger.survived_basis,
        cause=ledger.cause,
        drift=observation.drift,
    )

"""What happened, as structured events: each with decision id, request id and worker. No message text, no arguments, no keys.

========================  =======  ==================================================================================================
``decision.made``         info     decision, session (hashed), model, worker, strategy, mounted, changed, verdicts {word: n}, reads,
                                   flags, elapsed_s
``decision.failed``       warning  decision, code
``decision.read``         info     decision, request_id, worker, engine, outcome, questions, elapsed_s, and as below
``agent.call``            info     decision, request_id, session (hashed), model, worker, and as below
``decision.fallback``     info     decision, request_id, worker, left, to, code
``decision.approval``     info     decision, call, tool, binding, approved
``pool.<event>``          info     the labels of the count, number
``telemetry.failed``      warning  listener, fault (reported once each)
========================  =======  ==================================================================================================

Survival, where known: prompt_tokens, reusable, survived, basis, cause, available, captured, difference, diverged, divergence, doubt.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TextIO

from warmgate.engines.events import emit
from warmgate.prefix.survival import Outcome
from warmgate.secret import mask
from warmgate.telemetry.protocol import Approval, CallSeen, Fallback, Finished, ReadSeen, Silent
from warmgate.telemetry.urls import bare
from warmgate.workers.counts import Counted


class Logs(Silent):
    """Reports every fact as an event.

    Args:
        out: Write JSON lines there (standard error is usual). Without it, events go to the application's own structlog or logging
            set-up, as those of :mod:`warmgate.engines.events` do.
        salt: Sessions are hashed with it; drawn anew without it, so that ids of two runs cannot be linked.
    """

    def __init__(self, out: TextIO | None = None, *, salt: bytes | None = None) -> None:
        self._salt = (secrets.token_bytes(16) if salt is None else salt)[:64]
        self._log: Any = None if out is None else _json_logger(out)

    def decision_finished(self, fact: Finished) -> None:
        """``decision.made``."""
        decision = fact.decision
        self._emit(
            logging.INFO,
            "decision.made",
            decision=decision.id,
            session=self._hashed(fact.session),
            model=fact.model,
            worker=decision.worker,
            strategy=decision.mounts.strategy,
            mounted=len(decision.mounts.tools),
            changed=decision.mounts.changed,
            shadow=decision.mounts.shadow or any(v.shadow for v in decision.verdicts.values()),
            verdicts=dict(Counter(v.verdict for v in decision.verdicts.values())),
            reads=len(decision.reads),
            flags=list(decision.flags),
            elapsed_s=round(decision.elapsed_s, 6),
        )

    def decision_failed(self, decision: str, code: str) -> None:
        """``decision.failed``."""
        self._emit(logging.WARNING, "decision.failed", decision=decision, code=code)

    def read(self, fact: ReadSeen) -> None:
        """``decision.read``; the survival of its questions summed."""
        fields = _survival(fact.survival[0]) if len(fact.survival) == 1 else _summed(fact)
        self._emit(
            logging.INFO,
            "decision.read",
            decision=fact.decision,
            request_id=fact.request,
            worker=fact.worker,
            engine=fact.engine,
            outcome=fact.outcome,
            questions=fact.questions,
            elapsed_s=round(fact.elapsed_s, 6),
            **fields,
            **({"unpredicted": fact.unpredicted} if fact.unpredicted is not None else {}),
        )

    def agent_call(self, fact: CallSeen) -> None:
        """``agent.call``."""
        fields: dict[str, Any] = {"prompt_tokens": fact.reported.prompt_tokens, "survived": fact.reported.cached_tokens}
        if fact.survival is not None:
            fields = _survival(fact.survival)
        self._emit(
            logging.INFO,
            "agent.call",
            decision=fact.decision,
            request_id=fact.request,
            session=self._hashed(fact.session),
            model=fact.model,
            worker=fact.worker,
            problem=fact.reported.problem,
            **fields,
            **({"unpredicted": fact.unpredicted} if fact.unpredicted is not None else {}),
        )

    def fallback(self, fact: Fallback) -> None:
        """``decision.fallback``."""
        self._emit(
            logging.INFO,
            "decision.fallback",
            decision=fact.decision,
            request_id=fact.request,
            worker=fact.worker,
            left=fact.left,
            to=fact.to,
            code=fact.code,
        )

    def approval(self, fact: Approval) -> None:
        """``decision.approval``."""
        self._emit(
            logging.INFO,
            "decision.approval",
            decision=fact.decision,
            call=fact.call,
            tool=fact.tool,
            binding=fact.binding,
            approved=fact.approved,
        )

    def counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """``pool.<event>``."""
        self._emit(logging.INFO, f"pool.{what}", **labels, number=number)

    def _hashed(self, session: str) -> str:
        return blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8, key=self._salt).hexdigest()

    def _emit(self, level: int, event: str, **fields: object) -> None:
        # a URL may carry credentials, a call's id or a model's name a key: whoever chose them did not mean them for a log
        shown = {name: mask(bare(value)) if isinstance(value, str) else value for name, value in fields.items()}
        if self._log is None:
            emit(level, event, **shown)
        else:
            self._log.log(level, event, **shown)


def _survival(outcome: Outcome) -> dict[str, Any]:
    entry, expected = outcome.entry, outcome.expected
    return {
        "prompt_tokens": expected.prompt.tokens,
        "reusable": expected.reusable,
        "survived": entry.survived,
        "basis": entry.survived_basis,
        "cause": outcome.cause,
        "available": expected.available,
        "captured": expected.captured,
        "difference": outcome.difference,
        "diverged": expected.diverged,
        "divergence": expected.divergence,
        "doubt": expected.doubt,
    }


def _summed(fact: ReadSeen) -> dict[str, Any]:
    if not fact.survival:
        return {}
    one = fact.survival
    return {
        "prompt_tokens": sum(o.expected.prompt.tokens for o in one),
        "reusable": sum(o.expected.reusable for o in one),
        "survived": sum(o.entry.survived or 0 for o in one),
        "basis": "measured" if all(o.entry.survived_basis == "measured" for o in one) else "predicted",
        "cause": next((o.cause for o in one if o.cause is not None), None),
        "available": sum(o.expected.available for o in one),
        "captured": sum(o.expected.captured for o in one),
        "doubt": one[0].expected.doubt,
    }


def _json_logger(out: TextIO) -> Any:
    """A structlog logger of its own: the application's set-up is not touched."""
    import structlog

    return structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )

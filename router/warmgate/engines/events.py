"""What happened, as structured events. A library does not print: without a logging set-up these go nowhere.

Events and their fields (the state, instructions, API keys and servers' words never are among them: words may quote the state):

========================  =======  ====================================================================
``engine.answered``       debug    engine, worker, dialect, request_id, questions, latency_s
``engine.failed``         info     engine, worker, dialect, request_id, questions, latency_s, code, status
``engine.retry``          info     worker, request_id, attempt, wait_s, code, status
``chain.step_left``       info     engine, worker, code, elapsed_s
``chain.no_answer``       warning  questions, steps, elapsed_s
``breaker.opened``        warning  engine, worker, code, open_s
``breaker.closed``        info     engine, worker
========================  =======  ====================================================================

An application that has configured structlog gets them there, logger ``warmgate``. Else they go to the standard library's logger of
that name, fields as attributes of the record.
"""

from __future__ import annotations

import logging

import structlog

_stdlib = logging.getLogger("warmgate")
_stdlib.addHandler(logging.NullHandler())  # without any handler, Python prints warnings to stderr


def emit(level: int, event: str, **fields: object) -> None:
    """Report one event. Costs about a microsecond while nobody listens."""
    if structlog.is_configured():
        structlog.get_logger("warmgate").log(level, event, **fields)
    elif _stdlib.isEnabledFor(level):
        _stdlib.log(level, event, extra=fields)

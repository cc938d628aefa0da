"""Several engines in order under one deadline: the first that answers is taken, and why the others were left is kept.

Nothing is made up: a question that no engine answered has no answer, with the reasons. Each answer names the engine it came from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import msgspec

from warmgate.answers import Answer, Answers, Usage
from warmgate.engines._base import AskRequest, Engine
from warmgate.engines.breaker import Breakers
from warmgate.engines.deadline import Deadline
from warmgate.engines.events import emit
from warmgate.errors import EngineError, OptionError, WarmgateError
from warmgate.questions import Question

SHARE = 0.6
"""Part of the time left that a step may use while others stand behind it: a worker that hangs must leave them time to answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """One engine of a chain.

    Args:
        engine: What to ask.
        share: Part of the time left that it may use, in (0, 1]. Without it, :data:`SHARE`, and all for the last step.
    """

    engine: Engine
    share: float | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 < self.share <= 1:
            raise OptionError(f"must be in (0, 1], not {self.share!r}", where="share")


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one step."""

    engine: str
    worker: str
    outcome: Literal["answered", "partial", "failed", "skipped"]
    """``partial``: some questions were refused. ``skipped``: nothing was sent (an open breaker, a limit, no time left)."""
    reason: str = ""
    """Why it was left, one line; empty where it answered all."""
    mend: str | None = None
    """What a person can do about it."""
    code: str | None = None
    """Code of the error, such as ``WG314``."""
    elapsed_s: float = 0.0


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the chain found out."""

    outcome: Literal["answered", "partial", "no_answer"]
    answers: dict[str, Answer]
    """Ids in the order asked; each names its engine in ``source``."""
    unanswered: dict[str, str]
    """Id → why, for every question without an answer."""
    steps: tuple[StepReport, ...]
    usage: Usage
    """Tokens of the steps that answered."""
    elapsed_s: float

    @property
    def reason(self) -> str:
        """Why steps were left, one line; empty where the first answered all."""
        return "; ".join(f"{step.engine}: {step.reason}" for step in self.steps if step.reason)


class Chain:
    """Engines in order.

    Args:
        steps: At least one; an engine alone is a step with the usual share.
        breakers: Shared by all chains of one gate, so that a worker is known to be down everywhere.
    """

    def __init__(self, steps: Sequence[Step | Engine], *, breakers: Breakers | None = None) -> None:
        if not steps:
            raise OptionError("a chain needs at least one engine")
        self.steps = tuple(step if isinstance(step, Step) else Step(step) for step in steps)
        self.breakers = breakers or Breakers()

    async def ask(self, request: AskRequest, *, deadline: Deadline) -> ChainResult:
        """Ask the engines in order until every question is answered or the deadline is up.

        Later steps are asked only what is still open. Raises nothing of an engine's: every fault is a :class:`StepReport`.
        """
        start = time.monotonic()
        open_: dict[str, Question] = dict(request.questions)
        why: dict[str, str] = {}
        found: dict[str, Answer] = {}
        reports: list[StepReport] = []
        usage: Usage | None = None
        for number, step in enumerate(self.steps):
            share = step.share if step.share is not None else 1.0 if number + 1 == len(self.steps) else SHARE
            report, answers = await self._step(step.engine, replace(request, questions=open_), deadline, share)
            reports.append(report)
            if answers is None:
                why.update(dict.fromkeys(open_, f"{step.engine.name}: {report.reason}"))
                continue
            found.update(answers.answers)
            usage = answers.usage if usage is None else usage + answers.usage
            why.update((id_, f"{step.engine.name} was refused: {words}") for id_, words in answers.refused.items())
            open_ = {id_: question for id_, question in open_.items() if id_ not in found}
            if not open_:
                break
        result = ChainResult(
            outcome="no_answer" if not found else "partial" if open_ else "answered",
            answers={id_: found[id_] for id_ in request.questions if id_ in found},
            unanswered={id_: why[id_] for id_ in open_},
            steps=tuple(reports),
            usage=usage or Usage(),
            elapsed_s=time.monotonic() - start,
        )
        if open_:
            emit(logging.WARNING, "chain.no_answer", questions=len(open_), steps=len(reports), elapsed_s=result.elapsed_s)
        return result

    async def _step(self, engine: Engine, request: AskRequest, deadline: Deadline, share: float) -> tuple[StepReport, Answers | None]:
        """One engine's part, and what became of it."""
        began = time.monotonic()

        def report(
            outcome: Literal["answered", "partial", "failed", "skipped"], reason: str = "", error: WarmgateError | None = None
        ) -> StepReport:
            elapsed = time.monotonic() - began
            code = error.code if error is not None else None
            if outcome in ("failed", "skipped"):
                emit(logging.INFO, "chain.step_left", engine=engine.name, worker=engine.worker, code=code, elapsed_s=elapsed)
            return StepReport(
                engine=engine.name,
                worker=engine.worker,
                outcome=outcome,
                reason=reason,
                mend=error.mend if error is not None else None,
                code=code,
                elapsed_s=elapsed,
            )

        remaining = deadline.remaining()
        if remaining <= 0:
            return report("skipped", "no time left", deadline.exceeded(engine.worker)), None
        breaker = self.breakers.of(engine.worker, engine.name)
        if not breaker.admit():
            return report("skipped", f"left alone for a while, since: {breaker.reason}"), None
        try:
            answers = await engine.ask(request, deadline=deadline.within(remaining * share))
        except EngineError as error:
            breaker.failed(error)
            return report("failed", error.what, error), None
        except WarmgateError as error:  # a limit of the dialect: nothing was sent
            breaker.abandoned()
            return report("skipped", f"{error.where}: {error.what}" if error.where else error.what, error), None
        except BaseException:  # cancelled from outside
            breaker.abandoned()
            raise
        breaker.succeeded()
        if answers.refused:
            return report("partial", f"refused {', '.join(answers.refused)}"), answers
        return report("answered"), answers

    def ask_sync(self, request: AskRequest, *, deadline: Deadline) -> ChainResult:
        """:meth:`ask` for code that cannot await; see :mod:`warmgate.engines.portal`."""
        from warmgate.engines.portal import get_portal

        return get_portal().run(self.ask(request, deadline=deadline))

    async def aclose(self) -> None:
        """Close the engines' connections of this event loop."""
        for step in self.steps:
            await step.engine.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

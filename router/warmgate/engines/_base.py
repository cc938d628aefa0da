"""The contract of an engine: a request in, checked answers out, before the deadline."""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Protocol, Self, runtime_checkable

from warmgate.answers import Answers, Source
from warmgate.engines.deadline import Deadline
from warmgate.engines.dialects import Dialect
from warmgate.engines.events import emit
from warmgate.engines.http import checked, request_headers
from warmgate.engines.order import in_two_orders, join_orders
from warmgate.errors import EngineError, OptionError
from warmgate.questions import Question


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """The agent's own prompt, which a prefix read extends.

    Args:
        prefix: Token ids, or text with its control tokens written out; what the worker already holds.
        before: Text that opens a user turn, after ``prefix`` and before the question.
        after: Text that closes it and opens the reply; the label is the next token. Such as the generation prompt with thinking off.
    """

    prefix: str | tuple[int, ...]
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRequest:
    """Questions about one state.

    Args:
        questions: Id → question, at least one, in the order to be asked.
        state: What they are about: text, or anything JSON can say.
        instructions: Text placed ahead of the state, as a system turn. Where a dialect has no place for it the request is refused.
        prompt: The agent's own prompt, for engines that extend it; engines that render their own use ``state``.
        model: Model or LoRA name as the worker serves it. Some dialects need one.
        cache_salt: Namespace of the prefix cache; must be the agent's own to share its prefix.
        priority: Lower is served first, where the worker schedules by priority.
        chat_template_kwargs: Arguments for the worker's chat template.
        check_order: Ask every choice a second time with its options reversed, in the same call, and say whether they agree.
        request_id: Sent as X-Request-Id; made up when None.
        headers: Sent with every request made for it, such as the one that a gateway hashes.

    Raises:
        OptionError: No question, or a field that no server could take.
    """

    questions: Mapping[str, Question]
    state: Any = None
    instructions: str | None = None
    prompt: AgentPrompt | None = None
    model: str | None = None
    cache_salt: str | None = None
    priority: int | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    check_order: bool = False
    request_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not self.questions:
            raise OptionError("a request needs at least one question")
        checked(self.headers)
        if self.request_id is not None and not re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", self.request_id):
            raise OptionError("a request id has 1 to 128 letters, digits or . _ : -", where="request_id")
        if self.cache_salt == "":
            raise OptionError("an empty salt is none", where="cache_salt", mend="leave it out")
        if self.priority is not None and not -(2**63) <= self.priority < 2**63:
            raise OptionError("must fit 64 bits", where="priority")


@runtime_checkable
class Engine(Protocol):
    """One way of getting questions answered by one worker."""

    name: str
    """``systemone``, ``decisions``, ``prefix_read`` or ``round_trip``."""
    worker: str
    """Base URL of the worker."""

    async def ask(self, request: AskRequest, *, deadline: Deadline) -> Answers:
        """Answer all questions of ``request``, or raise.

        Args:
            request: What to ask.
            deadline: When to give up. Nothing is left running afterwards.

        Returns:
            An answer for every question, except those in ``Answers.refused``.

        Raises:
            QuestionError: The dialect cannot carry a question; nothing was sent.
            EngineError: The worker gave no answer; the class says why.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        ...


class BaseEngine(ABC):
    """What all engines do alike: limits before sending, two orders, the deadline around everything, one event afterwards.

    Args:
        name: See :class:`Engine`.
        worker: See :class:`Engine`.
        dialect: What the worker takes.
        model: Used where the request names none.
    """

    def __init__(self, *, name: str, worker: str, dialect: Dialect, model: str | None) -> None:
        self.name = name
        self.worker = worker
        self.dialect = dialect
        self.model = model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.worker!r}, dialect={self.dialect.name!r})"

    async def ask(self, request: AskRequest, *, deadline: Deadline) -> Answers:
        """See :meth:`Engine.ask`."""
        if request.model is None or request.request_id is None:
            request = replace(request, model=request.model or self.model, request_id=request.request_id or token_hex(16))
        asked = self.check(request)
        call = Call(self, asked, deadline)
        token = request_headers.set(checked(request.headers))
        try:
            async with deadline.enforce(self.worker):
                answers = await self._ask(call)
        except EngineError as error:
            error.request_id = error.request_id or request.request_id
            call.report(logging.INFO, "engine.failed", code=error.code, status=error.status)
            raise
        finally:
            request_headers.reset(token)
        call.report(logging.DEBUG, "engine.answered")
        return join_orders(answers, request.questions) if request.check_order else answers

    def check(self, request: AskRequest) -> AskRequest:
        """What would be sent for ``request``: with ``check_order``, each choice twice.

        Raises:
            QuestionError: The dialect cannot carry it.
        """
        asked = replace(request, questions=in_two_orders(request.questions)) if request.check_order else request
        if asked.model is None and self.model is not None:
            asked = replace(asked, model=self.model)
        self.dialect.check(asked)
        return asked

    @abstractmethod
    async def _ask(self, call: Call) -> Answers:
        """Answer ``call.request``, whose limits are checked, whose model and request id are filled in."""

    @abstractmethod
    async def aclose(self) -> None:
        """See :meth:`Engine.aclose`."""

    def ask_sync(self, request: AskRequest, *, deadline: Deadline) -> Answers:
        """:meth:`ask` for code that cannot await; see :mod:`warmgate.engines.portal`."""
        from warmgate.engines.portal import get_portal

        return get_portal().run(self.ask(request, deadline=deadline))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Call:
    """One ``ask`` under way."""

    __slots__ = ("_engine", "_start", "deadline", "request", "request_id")

    def __init__(self, engine: BaseEngine, request: AskRequest, deadline: Deadline) -> None:
        self._engine = engine
        self._start = time.monotonic()
        self.request = request
        self.deadline = deadline
        self.request_id = request.request_id or ""

    def source(self, model: str | None = None) -> Source:
        """Who answered, as of now. ``model`` is the name in the reply."""
        engine = self._engine
        return Source(
            engine=engine.name,
            worker=engine.worker,
            model=model or self.request.model,
            dialect=engine.dialect.name,
            request_id=self.request_id,
            latency_s=time.monotonic() - self._start,
        )

    def report(self, level: int, event: str, **fields: object) -> None:
        """Emit an event about this call."""
        engine = self._engine
        emit(
            level,
            event,
            engine=engine.name,
            worker=engine.worker,
            dialect=engine.dialect.name,
            request_id=self.request_id,
            questions=len(self.request.questions),
            latency_s=time.monotonic() - self._start,
            **fields,
        )

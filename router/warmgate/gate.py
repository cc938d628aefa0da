"""The gate: one turn in, one decision out. The only pipeline.

session → worker → questions → state → engine chain → decision. Mounting fails open to the current set, shell safety fails closed to ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self

from warmgate.alignment.template import ChatTemplate
from warmgate.asking import Answered, Asker, session_headers
from warmgate.decision import Decision, Observation
from warmgate.engines import Deadline
from warmgate.engines.loops import PerLoop
from warmgate.engines.portal import get_portal
from warmgate.engines.together import to_the_end
from warmgate.errors import OptionError, QuestionError, TemplateError, WarmgateError
from warmgate.judging import Judge
from warmgate.means import ChainOf, Means
from warmgate.mounting import Memory, Mounter
from warmgate.observing import finished, observe, unseen
from warmgate.policy import CallPolicy, MountPolicy
from warmgate.questions import Question
from warmgate.settings import Settings
from warmgate.telemetry.protocol import Approval, Started, Telemetry
from warmgate.turn import MAX_SESSION, Turn
from warmgate.workers import WorkerPool
from warmgate.workers.binding import Binding

if TYPE_CHECKING:
    from warmgate.telemetry.prometheus import Asgi

GROUP = "warmgate.policies"
"""Entry-point group that policy packs register in. A pack's object is called with the settings and returns a policy."""

DEFAULT_POLICIES = ("mounts", "shell")
"""Names that the settings give where nobody chose: without the package of policies a gate does without them."""

OBSERVE_S = 2.0
"""Most that taking in a call may take, seconds: the agent waits for nothing in it."""

OPENING = 0.25
"""Part of its time that a decision waits for the pool to open, where nobody opened the gate before."""


@dataclass(slots=True)
class _Home:
    """An event loop's stake in the gate."""

    users: int = 0
    keeper: asyncio.Task[None] | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    fault: WarmgateError | None = None


class Gate:
    """Decides, for one agent application, before each of its LLM calls and tool calls.

    Usable from any event loop and thread. ``async with`` (or ``with``) opens it and closes it; without, the first decision of an event loop
    opens it there, and it closes with :meth:`aclose` or when :func:`asyncio.run` ends the loop.

    Args:
        settings: See :class:`~warmgate.settings.Settings`.
        mounts: Which tools to mount; without one the current set is kept.
        calls: Whether a proposed call may run; without one every call is ``ask``.
        template: The agent model's chat template, where it is not in the settings.
        chain: Makes the engines for a worker, where they are not to be those of the settings.
        telemetry: Listeners beside those of the settings, told from threads of their own (see :mod:`warmgate.telemetry.aside`).

    Raises:
        OptionError: A setting cannot be used.
        OutputError: The record cannot be opened.
        TemplateError: The chat template cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        mounts: MountPolicy | None = None,
        calls: CallPolicy | None = None,
        template: ChatTemplate | None = None,
        chain: ChainOf | None = None,
        telemetry: Sequence[Telemetry] = (),
    ) -> None:
        self.settings = settings
        self.mounts = mounts
        self.calls = calls
        template = template or (_template(settings) if settings.chat_template is not None else None)
        self.means = Means(settings, template, chain, telemetry)
        self.memory = Memory()
        self._flights: PerLoop[dict[str, asyncio.Lock]] = PerLoop(dict)
        self._homes = PerLoop(_Home)

    @classmethod
    def from_settings(cls, settings: Settings | None = None) -> Self:
        """A gate with the policies that the settings name, as far as they are installed.

        Raises:
            OptionError: A named policy is installed and cannot be loaded, or is not installed and none of the settings' default names.
        """
        settings = settings or Settings()
        mounts: MountPolicy | None = None
        calls: CallPolicy | None = None
        for name in settings.policies:
            found = entry_points(group=GROUP, name=name)
            if not found and name not in DEFAULT_POLICIES:
                known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
                raise OptionError(f"no installed package has a policy {name!r}", where="Settings.policies", mend=f"installed: {known}")
            for entry in found:
                try:
                    policy = entry.load()(settings)
                except WarmgateError:
                    raise
                except Exception as fault:
                    raise OptionError(f"cannot be loaded ({fault})", where=f"policy {name}", mend="repair or leave out") from fault
                if isinstance(policy, MountPolicy):
                    mounts = policy
                elif isinstance(policy, CallPolicy):
                    calls = policy
        return cls(settings, mounts=mounts, calls=calls)

    @property
    def pool(self) -> WorkerPool:
        """The workers: which are up, which session is where."""
        return self.means.pool

    async def decide(self, turn: Turn) -> Decision:
        """Decide on one turn, within ``settings.deadline_ms``.

        One decision of a session is in flight at a time. Cancelling leaves nothing of it behind.

        Raises:
            WarmgateError: No worker could be named at all. Everything else is in the decision.
        """
        started = time.monotonic()
        deadline = Deadline(self.settings.deadline_ms / 1000)
        await self._opened(deadline.remaining() * OPENING)
        locks = self._flights.get()
        lock = locks.setdefault(turn.session, asyncio.Lock())
        try:
            async with lock:
                return await self._told(turn, deadline, started)
        finally:
            if not lock.locked() and locks.get(turn.session) is lock:
                del locks[turn.session]

    async def observe(self, turn: Turn, usage: Any) -> Observation:
        """Take in how the agent's call of a turn went: predictions are held against it, and the ledger gets its entry.

        To be called after the agent's call; at most one short request to the worker's tokenizer, within ``settings.deadline_ms`` and two
        seconds. Raises nothing: whatever could not be found out is said in ``notes``.

        Args:
            turn: The turn that was decided on.
            usage: The reply, or its ``usage`` (see :mod:`warmgate.prefix.usage` for the shapes). A reply with the generated ids
                (``return_token_ids``) makes the next prediction exact to the block.
        """
        deadline = Deadline(min(self.settings.deadline_ms / 1000, OBSERVE_S))
        try:
            await self._opened(deadline.remaining() * OPENING)
        except WarmgateError as fault:
            return unseen(f"the gate does not open: {fault.what}")
        return await observe(self.means, self.memory, turn, usage, deadline)

    async def ask(self, turn: Turn, questions: Mapping[str, Question], *, state: Any = None, deadline_ms: float | None = None) -> Answered:
        """Ask questions of one's own where a decision would be made: on the session's worker, on the agent's own prefix where it can be.

        Mounts nothing and judges nothing. The ledger of the session's calls knows nothing of it, since what is asked about need not be the
        agent's next prompt.

        Args:
            turn: The session; and what is asked about, its messages and those of its tools that the agent's prompt carries.
            questions: Id → question.
            state: Asked about instead of the turn's messages, as JSON.
            deadline_ms: Milliseconds it may take; the settings' where none is given.

        Raises:
            QuestionError: There is no question.
            WarmgateError: No worker could be named. Whatever else went wrong is said of each question in ``unanswered``.
        """
        if not questions:
            raise QuestionError("needs at least one question", field="questions")
        started, id_ = time.monotonic(), token_hex(8)
        deadline = Deadline((self.settings.deadline_ms if deadline_ms is None else deadline_ms) / 1000)
        await self._opened(deadline.remaining() * OPENING)
        agent = await self.pool.acquire(turn.session, timeout_s=deadline.remaining())
        asked, spread = agent, None
        if self.settings.gate_workers:
            asked, spread = await self._sidecar(turn, deadline)
        beside = replace(turn, session=_beside(turn.session), proposed_calls=())
        asker = Asker(self.means, beside, id_, agent, asked, deadline, turn.session)
        if spread is not None:
            asker.reasons.append(spread)
        flags: tuple[str, ...] = ()
        if state is None:
            found = self.means.planning.forged(asker.model, beside)
            if found:
                asker.reasons.append(f"{found[0].where}: control markup in what was asked about; it may have answered for itself")
                flags = ("forged_markup",)
            result = await asker.ask(questions, self.memory.offered(turn))
        else:
            result = await asker.about(questions, state)
        return Answered(
            id=id_,
            answers=result.answers,
            unanswered=result.unanswered,
            usage=result.usage,
            worker=asker.asked.worker,
            reads=tuple(asker.reads),
            reasons=tuple(asker.reasons),
            flags=flags,
            elapsed_s=time.monotonic() - started,
        )

    async def base_url(self, session: str) -> str:
        """The worker of a session, for clients that take a URL alone. Ask again at every turn: a worker may have been lost."""
        return await self.pool.base_url(session)

    async def release(self, session: str) -> None:
        """Forget a session that has ended."""
        self.memory.forget(session)
        self.means.trails.forget(session)
        for key in (session, _beside(session)):
            self.means.watch.forget(key)
            self.means.planning.forget(key)
        ended = getattr(self.mounts, "ended", None)
        if ended is not None:
            ended(session)
        await self.pool.release(session)

    async def _told(self, turn: Turn, deadline: Deadline, started: float) -> Decision:
        """Decide, and tell those who listen."""
        id_, queued = token_hex(8), time.monotonic() - started
        try:
            asker = await self._asker(turn, id_, deadline)
            self.means.tell.decision_started(Started(id_, turn.session, asker.model, asker.asked.worker))
            decision = await self._decide(turn, asker, started)
        except BaseException as fault:
            self.means.tell.decision_failed(id_, fault.code if isinstance(fault, WarmgateError) else "cancelled")
            raise
        try:
            self.means.tell.decision_finished(finished(self.means, turn, asker, decision, queued))
        except Exception as fault:  # noqa: BLE001 -- who listens must not cost a decision
            self.means.watch.failed(fault)
        return decision

    async def _decide(self, turn: Turn, asker: Asker, started: float) -> Decision:
        flags = self._flags(turn, asker)
        trusted = "forged_markup" not in flags
        mounts = await Mounter(self.settings, self.mounts, self.memory, turn, asker).mount(widen=trusted)
        verdicts = await Judge(self.settings, self.calls, turn, asker).judge(trusted=trusted)
        await asker.foresee(self.memory.offered(turn))
        return Decision(
            id=asker.id,
            mounts=mounts,
            verdicts=verdicts,
            worker=asker.agent.worker,
            headers=session_headers(self.settings.session_header, turn.session, asker.agent),
            reads=tuple(asker.reads),
            reasons=tuple(asker.reasons),
            flags=flags,
            elapsed_s=time.monotonic() - started,
        )

    async def _asker(self, turn: Turn, decision_id: str, deadline: Deadline) -> Asker:
        """Where the session's calls go, and what became of its prefix there."""
        agent = await self.pool.acquire(turn.session, timeout_s=deadline.remaining())
        loss = self.means.trails.on(turn.session, agent)
        asked, spread = agent, None
        if self.settings.gate_workers:
            asked, spread = await self._sidecar(turn, deadline)
        asker = Asker(self.means, turn, decision_id, agent, asked, deadline)
        if loss == "worker_change":
            asker.reasons.append(f"the session moved from {agent.moved_from} ({agent.reason}): its prefix is computed again")
        elif loss == "worker_restart":
            asker.reasons.append("the worker restarted: the session's prefix is computed again")
            self.means.planning.restarted(asker.model)
        if spread is not None:
            asker.reasons.append(spread)
        return asker

    async def _sidecar(self, turn: Turn, deadline: Deadline) -> tuple[Binding, str | None]:
        """A worker of the decision model: the session's own, or any where its reads use no cache."""
        asked = await self.pool.acquire(turn.session, "gate_workers", timeout_s=deadline.remaining())
        finding = await self.means.finding(asked, self.settings.gate_model or self.settings.model)
        if finding.hits != "unread":
            return asked, None
        worker = await self.pool.anyone("gate_workers")
        return Binding(worker, fresh=False, headers=asked.headers), f"alignment and affinity are off for decisions: {finding.why}"

    def _flags(self, turn: Turn, asker: Asker) -> tuple[str, ...]:
        """What is odd about what the turn hands over."""
        found = self.means.planning.forged(asker.model, turn)
        if not found:
            return ()
        first = found[0]
        kind = "imitates" if first.lookalike else "spells out"
        asker.reasons.append(f"{first.where}: {kind} control markup; answers of this turn cannot widen mounts or allow a call")
        return ("forged_markup",)

    # -- what is seen of it (docs/metrics.md, docs/operations.md) ------------------------------------------------------------------

    def metrics_app(self) -> Asgi:
        """An ASGI application that serves the metrics under any path: ``app.mount("/metrics", gate.metrics_app())``.

        Raises:
            OptionError: Metrics are off, or prometheus_client is not installed.
        """
        page = self.means.listeners.prometheus
        if page is None:
            raise OptionError("metrics are off", where="Settings.metrics", mend="set it to on, and pip install prometheus-client")
        return page.asgi()

    def approval(self, decision: str, call: str, binding: str, *, approved: bool, tool: str = "") -> None:
        """Record a person's word on a proposed call: a label for ``warmgate calibrate``.

        Args:
            decision: Id of the decision that asked.
            call: Id of the proposed call.
            binding: Binding of the verdict that the person saw.
            approved: What they said.
            tool: Name of the tool.
        """
        self.means.tell.approval(Approval(decision, call, binding, approved, tool))

    # -- life ----------------------------------------------------------------------------------------------------------------------

    async def _opened(self, wait_s: float | None) -> _Home:
        """Open the gate in this event loop, if it is not open. A pool that takes longer than ``wait_s`` opens on beside the decision."""
        home = self._homes.get()
        if home.keeper is None or home.keeper.done():
            home.ready.clear()
            home.fault = None
            home.keeper = asyncio.create_task(self._keep(home), name="warmgate-gate")
        if not home.ready.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await home.ready.wait()
            except TimeoutError:
                pass
        if home.fault is not None:
            raise home.fault
        return home

    async def _keep(self, home: _Home) -> None:
        """Hold the gate open until cancelled: by :meth:`aclose`, or by the end of the event loop."""
        opened = False
        try:
            try:
                await self.pool.open()
                opened = True
                await self.means.watch.open([status.url for status in self.pool.status() if status.role == "workers"])
            except WarmgateError as fault:
                home.fault = fault
                return
            finally:
                home.ready.set()
            await asyncio.Event().wait()
        finally:
            await to_the_end(self._shut(opened))

    async def _shut(self, opened: bool) -> None:
        await self.means.aclose()
        if opened:
            self.means.watch.close()
            await self.pool.aclose()
            await asyncio.to_thread(self.means.listeners.close)

    async def aclose(self) -> None:
        """Close what this event loop opened. Other loops are not touched, and the next decision opens it again."""
        home = self._homes.get()
        home.users -= 1
        if home.users > 0:
            return
        self._homes.pop()
        if home.keeper is not None:
            home.keeper.cancel()
            await asyncio.wait([home.keeper])

    async def __aenter__(self) -> Self:
        home = await self._opened(None)
        home.users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- the same for code that cannot await (see warmgate.engines.portal) ----------------------------------------------------------

    def decide_sync(self, turn: Turn) -> Decision:
        """See :meth:`decide`."""
        return get_portal().run(self.decide(turn))

    def observe_sync(self, turn: Turn, usage: Any) -> Observation:
        """See :meth:`observe`."""
        return get_portal().run(self.observe(turn, usage))

    def ask_sync(self, turn: Turn, questions: Mapping[str, Question], *, state: Any = None, deadline_ms: float | None = None) -> Answered:
        """See :meth:`ask`."""
        return get_portal().run(self.ask(turn, questions, state=state, deadline_ms=deadline_ms))

    def release_sync(self, session: str) -> None:
        """See :meth:`release`."""
        get_portal().run(self.release(session))

    def close(self) -> None:
        """See :meth:`aclose`."""
        get_portal().run(self.aclose())

    def __enter__(self) -> Self:
        return get_portal().run(self.__aenter__())

    def __exit__(self, *_: object) -> None:
        self.close()


def _beside(session: str) -> str:
    """The key under which the books of questions beside a session's decisions are kept."""
    return f"{session}/questions"[:MAX_SESSION]


def _template(settings: Settings) -> ChatTemplate:
    path = settings.chat_template
    assert path is not None
    if path.is_dir():
        names = (path / name for name in ("chat_template.jinja", "tokenizer_config.json"))
        path = next((file for file in names if file.is_file()), path)
    template = ChatTemplate.from_file(path)
    try:
        template.check()
    except TemplateError as fault:
        raise OptionError(f"{path} {fault.what}", where="Settings.chat_template", mend=fault.mend) from None
    return template

"""Predicting and settling what a gate's own requests and its agents' calls find in the workers' caches.

Everything here costs a decision at most one short request to the worker's tokenizer (the conversation's new text), bounded in time. What
cannot be had is left out, and the figures say so: a prompt of another length than the engine reports was not the prompt predicted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from array import array
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from warmgate.alignment.opening import ending
from warmgate.engines import AskRequest, ChainResult, Deadline
from warmgate.engines.events import emit
from warmgate.engines.loops import PerLoop
from warmgate.errors import EngineError, NotSupported, RouteAbsent
from warmgate.prefix.hashes import Namespace, wire_names
from warmgate.prefix.survival import Expectation, Outcome, Prompt, SurvivalTracker
from warmgate.telemetry.spoken import adapters, generated, spoken

if TYPE_CHECKING:
    from warmgate.alignment.remote import Remote
    from warmgate.engines.http import Http
    from warmgate.prefix.counters import Window
    from warmgate.prefix.divergence import PromptView
    from warmgate.prefix.follow import Following
    from warmgate.prefix.usage import Reported
    from warmgate.settings import Settings
    from warmgate.telemetry.protocol import Unpredicted

SESSIONS = 1024
"""Sessions whose latest ids are held; a prompt of another is tokenized whole."""

TAILS = 4096
"""Questions whose ids are held."""

LOOK_S = 2.0
"""Longest wait for a worker's own account of its cache, when it is first met."""

CLOSE_S = 0.5
"""Longest wait for looks under way when a gate closes."""

AGAIN_S = 60.0
"""Until a worker that could not be followed, or has no tokenizer, is tried again."""


BUSY_S = 5.0
"""The same where it took too long."""

Render = Callable[[], Awaitable[str | None]]
"""Renders a prompt. May ask the worker."""


@dataclass(slots=True)
class _Held:
    """A session's latest text as ids, and the names of its blocks."""

    length: int
    mark: int
    ids: array[int]
    space: Namespace
    plain: list[bytes]
    own: list[bytes]


@dataclass(frozen=True, slots=True)
class _Coming:
    """The agent's next call as it is expected."""

    expected: Expectation
    ids: array[int]
    space: Namespace
    decision: str


@dataclass(slots=True)
class Sent:
    """Reads on their way. ``window`` measures them by the worker's counters, where that is asked for."""

    watch: Watch
    worker: str
    engine: str
    expected: list[Expectation]
    stack: AsyncExitStack
    window: Window | None = None
    unpredicted: Unpredicted | None = None
    """Why there was no outcome, once it was answered."""

    async def answered(self, result: ChainResult | None) -> Sequence[Outcome]:
        """One outcome a question, or none where another prompt than the expected one was answered."""
        try:
            return await self.watch.settle(self, result)
        except Exception as fault:  # noqa: BLE001 -- figures must not cost a decision
            self.watch.failed(fault)
            self.unpredicted = "prompt"
            return ()


class Watch:
    """The caches of one gate's workers. Usable from several event loops.

    Args:
        settings: The gate's.
        http: Connections to a worker, of the running loop.
    """

    def __init__(self, settings: Settings, http: Callable[[str], Http]) -> None:
        self._settings = settings
        self._http = http
        self._lock = threading.Lock()
        self._following: Following | None = None
        self._tried: dict[str, float] = {}
        self._lora: dict[str, dict[str, str]] = {}
        self._users = 0
        self._held: OrderedDict[tuple[str, str], _Held] = OrderedDict()
        self._tails: OrderedDict[tuple[str, str], tuple[int, ...]] = OrderedDict()
        self._coming: OrderedDict[str, _Coming] = OrderedDict()
        self._looks: PerLoop[dict[str, asyncio.Task[None]]] = PerLoop(dict)
        self._running: PerLoop[set[asyncio.Task[None]]] = PerLoop(set)
        self._engines: dict[str, str] = {}
        self._mute: dict[str, float] = {}
        self._flying: Counter[str] = Counter()
        self._hops: dict[str, float] = {}
        self._faults: set[str] = set()
        self.reasons: dict[str, str] = {}
        """Worker → why it is not followed, or not by events."""

    # -- workers -------------------------------------------------------------------------------------------------------------------

    @property
    def tracker(self) -> SurvivalTracker | None:
        """Expectations and outcomes, once a worker is followed."""
        return self._following.tracker if self._following is not None else None

    @property
    def blocks(self) -> tuple[int, str] | None:
        """Tokens per block and the name of the hash, once a worker is followed."""
        names = self._following.names if self._following is not None else None
        return None if names is None else (names.block_size, names.algorithm)

    @property
    def following(self) -> Following | None:
        """The workers followed, once there is one."""
        return self._following

    def follows(self, worker: str) -> bool:
        """Whether prompts to a worker are predicted."""
        tracker = self.tracker
        return tracker is not None and tracker.index(worker) is not None

    def hop(self, worker: str) -> float:
        """The shortest round trip to a worker that was seen, seconds; 0 where none was."""
        return self._hops.get(worker, 0.0)

    async def open(self, workers: Sequence[str]) -> None:
        """Follow these, each as far as it can be had within :data:`LOOK_S`. Once for each event loop that uses the gate."""
        with self._lock:
            self._users += 1
        if self._settings.follow == "off":
            return
        if self._settings.gateway is not None:
            self.reasons.update(dict.fromkeys(workers, "it is a gateway: whose cache answers is not known"))
            return
        await asyncio.gather(*(self._add(worker) for worker in workers))

    def close(self) -> None:
        """Stop listening, where no other event loop uses the gate."""
        with self._lock:
            self._users -= 1
            following = self._following
            if self._users > 0 or following is None:
                return
            for worker in list(following.readers):
                self._tried.pop(worker, None)  # who opens again listens anew
        following.close()

    async def aclose(self) -> None:
        """End what this event loop runs."""
        self._looks.pop()
        tasks = list(self._running.pop() or ())
        if tasks:  # short requests: to let them end is cleaner than to cut their connections
            _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def restarted(self, worker: str) -> None:
        """A worker began anew."""
        if self.tracker is not None:
            self.tracker.restarted(worker)

    def forget(self, session: str) -> None:
        """A session has ended."""
        self._coming.pop(session, None)
        with self._lock:
            for key in [key for key in self._held if key[0] == session]:
                del self._held[key]

    async def _add(self, worker: str) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._tried.get(worker, 0.0):
                return
            self._tried[worker] = now + AGAIN_S
            if self._following is None:
                from warmgate.prefix.follow import Following

                self._following = Following(seed=self._settings.hash_seed)
            following = self._following

        async def get(path: str) -> str:
            if path == "/kv_event_sources" and self._settings.follow == "model":
                raise OSError("not asked for")
            deadline = Deadline(LOOK_S)
            reply = await self._http(worker).exchange("GET", path, None, deadline=deadline, request_id=f"warmgate-look-{token_hex(6)}")
            if reply.status != 200:
                raise OSError(f"answered {reply.status}")
            return reply.body.decode(errors="replace")

        try:
            followed = await following.add(worker, get)
            if followed:
                self._lora[worker] = adapters(await get("/v1/models"))
        except Exception as fault:  # noqa: BLE001 -- an unfollowed worker is no fault of a decision
            self.reasons[worker] = f"it cannot be followed ({type(fault).__name__})"
            return
        if worker in following.reasons:
            self.reasons[worker] = following.reasons[worker]
        if followed:
            self._tried[worker] = float("inf")

    def _ready(self, worker: str) -> bool:
        """Whether prompts can be predicted there now. A worker not met before is looked at beside the decision."""
        if self.follows(worker):
            return time.monotonic() >= self._mute.get(worker, 0.0)
        if self._settings.follow != "off" and self._settings.gateway is None and time.monotonic() >= self._tried.get(worker, 0.0):
            self._run(self._add(worker), "warmgate-follow")
        return False

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Beside the caller, and ended by :meth:`aclose` at the latest."""
        tasks = self._running.get()
        task = asyncio.create_task(work, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _muted(self, worker: str, fault: EngineError | None = None) -> None:
        """Its tokenizer did not answer, or (without a fault) not in time: it is left alone, for a short while where it may just be busy."""
        wait = AGAIN_S if isinstance(fault, RouteAbsent | NotSupported) else BUSY_S
        self._mute[worker] = time.monotonic() + wait
        why = "in time" if fault is None else f"({fault.code})"
        self.reasons[worker] = f"its tokenizer did not answer {why}; it is asked again after {wait:.0f} s"

    def _why(self, worker: str) -> Unpredicted:
        """Why prompts cannot be predicted there."""
        return "tokenizer" if self.follows(worker) else "worker"

    def _told(self, worker: str) -> None:
        """Its tokenizer answers, again."""
        if self._mute.pop(worker, None) is not None:
            known = self._following.reasons.get(worker) if self._following is not None else None
            if known is None:
                self.reasons.pop(worker, None)
            else:
                self.reasons[worker] = known

    # -- reads ---------------------------------------------------------------------------------------------------------------------

    async def asked(self, session: str, request: AskRequest, salt: str | None, model: str, remote: Remote) -> Sent | Unpredicted:
        """Reads are about to be sent on the agent's prompt: what they should find, or why that cannot be told in time."""
        try:
            return await self._asked(session, request, salt, model, remote)
        except Exception as fault:  # noqa: BLE001 -- figures must not cost a decision
            self.failed(fault)
            return "prompt"

    def failed(self, fault: Exception) -> None:
        """A fault of ours, or of a foreign question; said once a kind."""
        name = type(fault).__name__
        if name not in self._faults:
            self._faults.add(name)
            emit(logging.WARNING, "telemetry.failed", listener="Watch", fault=name)

    async def _asked(self, session: str, request: AskRequest, salt: str | None, model: str, remote: Remote) -> Sent | Unpredicted:
        worker, prompt = remote.worker, request.prompt
        engine = self._engines.get(worker, self._settings.engines[0])
        if not self._ready(worker):
            return self._why(worker)
        if prompt is None or not isinstance(prompt.prefix, str):
            return "prompt"
        added = spoken(engine, self._settings.dialect, prompt, request.questions)
        space = self._space(worker, model, salt)
        if added is None:
            return "engine"
        if space is None:
            return "prompt"
        try:
            held = await self._ids(session, model, prompt.prefix, space, remote)
            tails = [await self._tail(tail, model, remote) for tail in added]
        except EngineError as fault:
            self._muted(worker, fault)
            return "tokenizer"
        self._told(worker)
        tracker = self.tracker
        assert tracker is not None
        prompts = [self._prompt(session, held, tail, model, salt, kind="read") for tail in tails]
        stack = AsyncExitStack()
        sent = Sent(self, worker, engine, [], stack)
        if self._settings.measure_reads:
            from warmgate.prefix.counters import CounterSource

            source = CounterSource(lambda: self._page(worker), lambda: self._flying[worker] - 1)
            self._flying[worker] += 1
            stack.callback(self._landed, worker)
            sent.window = await stack.enter_async_context(source.window())
            sent.window.prompt_tokens, sent.window.requests = sum(one.tokens for one in prompts), len(prompts)
        sent.expected = tracker.expect(worker, *prompts)
        return sent

    async def settle(self, sent: Sent, result: ChainResult | None) -> Sequence[Outcome]:
        """See :meth:`Sent.answered`."""
        await sent.stack.aclose()
        if result is None:
            return ()
        engine = next((step.engine for step in result.steps if step.outcome in ("answered", "partial")), None)
        if engine is not None:
            self._engines[sent.worker] = engine
        tokens = sum(one.prompt.tokens for one in sent.expected)
        if result.outcome != "answered" or engine != sent.engine or result.usage.input_tokens != tokens:
            if engine == sent.engine:
                self.forget(sent.expected[0].prompt.session)  # pieces were tokenized otherwise than the whole
            sent.unpredicted = "prompt" if engine == sent.engine else "engine"
            return ()
        hits, looked_up = result.usage.cached_tokens, True
        if hits is None and sent.window is not None:
            from warmgate.prefix.counters import Delta

            delta = sent.window.result
            if isinstance(delta, Delta):
                hits, looked_up = delta.hits, delta.queries > 0
        tracker = self.tracker
        assert tracker is not None
        return tracker.settle_reads(sent.expected, hits, looked_up=looked_up)

    def _landed(self, worker: str) -> None:
        self._flying[worker] -= 1

    async def _page(self, worker: str) -> str:
        deadline = Deadline(LOOK_S)
        reply = await self._http(worker).exchange("GET", "/metrics", None, deadline=deadline, request_id=f"warmgate-look-{token_hex(6)}")
        return reply.body.decode(errors="replace")

    # -- the agent's calls -----------------------------------------------------------------------------------------------------------

    def coming(
        self, decision: str, session: str, render: Render, view: PromptView, salt: str | None, model: str, remote: Remote
    ) -> asyncio.Task[None] | None:
        """The agent's call comes next: what it should find. It is looked up beside the caller; :meth:`came` waits for it.

        Args:
            decision: Id of the decision before it.
            session: Key of the session.
            render: Gives the call's prompt without its generation prompt, where that is known.
            view: What it is rendered from.
            salt: Its cache salt.
            model: Its model.
            remote: Its worker.
        """
        self._coming.pop(session, None)
        looks = self._looks.get()
        before = looks.get(session)
        if before is not None:  # the session went on while it was looked at: what is found now would be taken for the new turn's
            before.cancel()
        if not self._ready(remote.worker):
            return None
        task = self._run(self._look(decision, session, render, view, salt, model, remote), "warmgate-look")
        looks[session] = task
        task.add_done_callback(lambda done: looks.pop(session, None) if looks.get(session) is done else None)
        return task

    async def before(self, look: asyncio.Task[None] | None, worker: str, wait_s: float) -> None:
        """Let a look of :meth:`coming` end before the call can be sent, where a worker's KV events are followed.

        Events announce what the call itself stores: a look that they overtake would find the call's own blocks and predict them. One that
        takes longer than ``wait_s`` is given up, and the call has no prediction. The model of a cache hears of a call when it has ended, so
        nothing waits for it.
        """
        if look is None or self._following is None or worker not in self._following.readers:
            return
        try:
            _, late = await asyncio.wait([look], timeout=wait_s)
        except asyncio.CancelledError:
            look.cancel()
            raise
        if late:
            look.cancel()
            self._muted(worker)
            await asyncio.wait(late)

    async def looked(self, session: str, worker: str, wait_s: float = LOOK_S) -> _Coming | None:
        """Wait for the look of :meth:`coming`; one that takes longer than ``wait_s`` is given up."""
        task = self._looks.get().get(session)
        if task is not None:
            _, late = await asyncio.wait([task], timeout=wait_s)
            if late:
                task.cancel()
                self._muted(worker)
        return self._coming.get(session)

    async def _look(
        self, decision: str, session: str, render: Render, view: PromptView, salt: str | None, model: str, remote: Remote
    ) -> None:
        worker = remote.worker
        space = self._space(worker, model, salt)
        tracker = self.tracker
        if space is None or tracker is None:
            return
        try:
            prompt = await render()
            if prompt is None:
                return
            held = await self._ids(session, model, prompt, space, remote)
            opening = await self._opening(view, model, remote)
        except EngineError as fault:
            self._muted(worker, fault)
            return
        except Exception as fault:  # noqa: BLE001 -- nobody waits for a look but the figures
            self.failed(fault)
            return
        self._told(worker)
        one = self._prompt(session, held, opening, model, salt, view=view)
        (expected,) = tracker.look(worker, replace(one, generation_tokens=len(opening)))
        self._coming[session] = _Coming(expected, held.ids + array("I", opening), space, decision)
        while len(self._coming) > SESSIONS:
            self._coming.popitem(last=False)

    async def came(
        self, session: str, worker: str, reported: Reported, answer: Any, *, wait_s: float = LOOK_S
    ) -> tuple[Outcome | Unpredicted, str | None]:
        """The agent's call came back: what became of its prefix, or why that is not known, and the decision it followed.

        Args:
            session: Key of the session.
            worker: Who served it.
            reported: What its answer says about tokens.
            answer: The answer; where it holds the generated ids (``return_token_ids``), their blocks count as stored.
            wait_s: Longest wait for what was looked up beside the decision, seconds.
        """
        try:
            return await self._came(session, worker, reported, answer, wait_s)
        except Exception as fault:  # noqa: BLE001 -- an answer may be anything
            self.failed(fault)
            return "prompt", None

    async def _came(
        self, session: str, worker: str, reported: Reported, answer: Any, wait_s: float
    ) -> tuple[Outcome | Unpredicted, str | None]:
        coming = await self.looked(session, worker, wait_s)
        self._coming.pop(session, None)
        tracker, names = self.tracker, self._following.names if self._following is not None else None
        if coming is None or tracker is None or names is None:
            self.unseen(worker)
            ready = self.follows(worker) and time.monotonic() >= self._mute.get(worker, 0.0)
            return "prompt" if ready else self._why(worker), None if coming is None else coming.decision
        expected = coming.expected
        if expected.worker != worker or reported.prompt_tokens != expected.prompt.tokens or reported.requests != 1:
            self.unseen(worker)
            return "moved" if expected.worker != worker else "prompt", coming.decision
        tracker.sent(expected)
        output = generated(answer)
        stored: list[int] = []
        tokens: int | None = None
        if output:
            whole = [*coming.ids, *output[:-1]]
            stored, tokens = wire_names(names.of(whole, coming.space)), len(whole)
        cached = reported.cached_tokens if reported.measured else None
        return tracker.settle(expected, cached, stored=stored, stored_tokens=tokens), coming.decision

    def unseen(self, worker: str) -> None:
        """A prompt that was not predicted stored something: what is modelled without hearing of it is a guess from now on."""
        index = self.tracker.index(worker) if self.tracker is not None else None
        if index is not None and index.source == "model" and index.doubt is None:
            index.trust("a prompt of ours was not predicted, and what it stored is not known")

    async def _opening(self, view: PromptView, model: str, remote: Remote) -> tuple[int, ...]:
        """Ids of the generation prompt behind messages that end like these; none where it cannot be told."""
        probe, kwargs = ending(view.messages), view.template_kwargs
        key = (model, f"\0{(probe, kwargs)!r}")
        if (known := self._tails.get(key)) is None:
            bare = await remote.chat_ids(probe, None, kwargs, add_generation_prompt=False)
            whole = await remote.chat_ids(probe, None, kwargs)
            known = self._keep(key, whole[len(bare) :] if whole[: len(bare)] == bare else ())
        return known

    # -- ids -----------------------------------------------------------------------------------------------------------------------

    def _space(self, worker: str, model: str, salt: str | None) -> Namespace | None:
        if model == self._settings.model:
            return Namespace(salt)
        path = self._lora.get(worker, {}).get(model)
        return None if path is None else Namespace(salt, model, path)

    def _prompt(self, session: str, held: _Held, tail: Sequence[int], model: str, salt: str | None, **more: Any) -> Prompt:
        names = self._following.names if self._following is not None else None
        assert names is not None
        ids = [*held.ids, *tail]
        own = wire_names(names.of(ids, held.space, known=held.own))
        plain = own if held.space == Namespace() else wire_names(names.of(ids, known=held.plain))
        adapter = "" if model == self._settings.model else f"{model}\n"
        if more.get("kind") == "read":
            more["question_tokens"] = len(tail)
        return Prompt(session, own, len(ids), namespace=f"{adapter}{salt or ''}", plain=plain, **more)

    async def _ids(self, session: str, model: str, prompt: str, space: Namespace, remote: Remote) -> _Held:
        """A session's text as ids; only what was added since the last time is sent."""
        key = (session, model)
        held = self._held.get(key)
        names = self._following.names if self._following is not None else None
        assert names is not None
        if held is None or held.space != space or held.length > len(prompt) or hash(prompt[: held.length]) != held.mark:
            held = _Held(0, 0, array("I"), space, [], [])
        if held.length < len(prompt):
            ids = held.ids + array("I", await remote.ids(prompt[held.length :]))
            own = names.of(ids, space, known=held.own)
            plain = own if space == Namespace() else names.of(ids, known=held.plain)
            held = _Held(len(prompt), hash(prompt), ids, space, plain, own)
        with self._lock:
            self._held[key] = held
            self._held.move_to_end(key)
            while len(self._held) > SESSIONS:
                self._held.popitem(last=False)
        return held

    async def _tail(self, tail: str, model: str, remote: Remote) -> tuple[int, ...]:
        key = (model, tail)
        if (known := self._tails.get(key)) is None:
            began = time.monotonic()
            known = self._keep(key, await remote.ids(tail))
            took = time.monotonic() - began
            self._hops[remote.worker] = min(took, self._hops.get(remote.worker, took))
        return known

    def _keep(self, key: tuple[str, str], ids: Sequence[int]) -> tuple[int, ...]:
        with self._lock:
            known = self._tails[key] = tuple(ids)
            while len(self._tails) > TAILS:
                self._tails.popitem(last=False)
        return known

"""Prometheus metrics in a registry of their own (docs/metrics.md lists them).

Labels come from closed sets: worker URLs (at most :data:`MAX_WORKERS`) and words of ours. No session, no model text, no tool name.

Several processes (gunicorn, uvicorn workers): set ``PROMETHEUS_MULTIPROC_DIR`` to an empty folder before Python starts, and any process's
page shows the sum of all. Gauges are summed over the processes alive; call :func:`forget_process` when one ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from warmgate.decision import Strategy, Word
from warmgate.errors import OptionError
from warmgate.prefix.divergence import KINDS
from warmgate.prefix.ledger import Basis
from warmgate.prefix.survival import CAUSES, Outcome
from warmgate.telemetry.protocol import Approval, CallSeen, Fallback, Finished, ReadSeen, Silent, Unpredicted
from warmgate.telemetry.urls import bare
from warmgate.workers.binding import Reason
from warmgate.workers.counts import COUNTED, Counted

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from warmgate.prefix.events import Status
    from warmgate.prefix.index import ShadowIndex

MAX_WORKERS = 256
"""Distinct worker labels; those beyond are ``other``."""

OTHER = "other"
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"

ENGINES = ("systemone", "decisions", "prefix_read", "round_trip", "rules", "none")
OUTCOMES = ("answered", "partial", "no_answer", "not_asked", "failed")
SOURCES = (*ENGINES,)
BASES: tuple[Basis, ...] = get_args(Basis)
UNPREDICTED: tuple[Unpredicted, ...] = get_args(Unpredicted)
STATES = ("fresh", "lagging", "gone")
REASONS = {
    "WG310": "bad_request",
    "WG311": "unauthorized",
    "WG312": "unknown_model",
    "WG313": "route_absent",
    "WG314": "not_supported",
    "WG320": "overloaded",
    "WG321": "unreachable",
    "WG322": "server_fault",
    "WG330": "deadline",
    "WG340": "malformed_answer",
    "WG341": "refused",
    "WG150": "question",
}
"""Codes of :mod:`warmgate.errors` as words."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Part: TypeAlias = Literal["queue", "hop", "engine", "ours"]

Asgi: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
Wsgi: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Prometheus(Silent):
    """Counts every fact.

    Args:
        prefill_rate: Tokens a second that the workers prefill; with it, re-prefill has a price in seconds too.

    Raises:
        OptionError: The multiprocess folder does not exist.
    """

    inline = True
    """Told on the decision's path: it only counts."""

    def __init__(self, *, prefill_rate: float | None = None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        folder = os.environ.get(MULTIPROCESS)
        if folder and not Path(folder).is_dir():
            raise OptionError("is no folder", where=f"{MULTIPROCESS}={folder}", mend="make it, empty, before Python starts")
        self._multiprocess = bool(folder)
        self._prefill_rate = prefill_rate
        self._workers: set[str] = set()
        self._lock = threading.Lock()
        self._registry = registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"warmgate_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"warmgate_{name}", text, labels, registry=registry, multiprocess_mode="livesum")

        self._prompt = counter("prompt_tokens", "Tokens of prompts sent.", "kind")
        self._reusable = counter("reusable_tokens", "R: tokens the engine's cache rule could have served.", "kind")
        self._survived = counter("survived_tokens", "S: cached tokens.", "kind", "basis")
        self._lost = counter("lost_tokens", "R - S by cause.", "kind", "cause", "basis")
        self._surplus = counter("surplus_tokens", "S - R: a fault of our model.", "kind")
        self._siblings = counter("intra_call_reuse_tokens", "Tokens shared with reads sent together, not in R.")
        self._outside = counter("outside_tokens", "Tokens outside R: divergence, namespace_change, rounding.", "reason")
        self._diverged = counter("diverged_tokens", "Divergence by what parted the prompts.", "change")
        self._computed = counter("computed_tokens", "Tokens the engines computed.", "kind", "basis")
        self._floor = counter("floor_tokens", "Tokens a perfect gate would have computed.", "kind")
        self._tax = gauge("tax_tokens", "Computed minus floor so far: the round-trip tax.", "basis")
        self._tax_seconds = gauge("tax_seconds", "The tax so far in seconds: hop, and prefill where a rate is set.", "part")
        self._available = counter("available_tokens", "What the worker that held most would have served.", "kind")
        self._captured = counter("captured_tokens", "What the chosen worker should have served.", "kind")
        self._predictions = counter("predictions", "Predictions that were measured.", "kind", "result")
        self._error = counter("prediction_error_tokens", "Absolute differences of measured and predicted.", "kind")
        self._reported = counter("reported_prompt_tokens", "Prompt tokens of answers that report cached ones.")
        self._cached = counter("reported_cached_tokens", "Cached tokens that answers report.")
        self._calls = counter("agent_calls", "Calls of agents seen.", "reported")
        self._worker_reusable = counter("worker_reusable_tokens", "R by worker.", "worker")
        self._worker_survived = counter("worker_survived_tokens", "S by worker.", "worker", "basis")
        self._unpredicted = counter("unpredicted", "Prompts that no figure of survival or tax has.", "kind", "reason")
        self._decisions = counter("decisions", "Decisions by the engine that answered.", "engine", "outcome")
        self._reads = counter("reads", "Engine requests.", "engine", "outcome")
        self._fallbacks = counter("fallbacks", "Steps of the chain that were left.", "from", "to", "reason")
        self._rebinds = counter("rebinds", "Sessions that went to another worker.", "reason")
        self._pool = counter("pool_events", "What happened to workers and sessions.", "event")
        self._verdicts = counter("verdicts", "Verdicts on proposed calls.", "verdict", "source", "mode")
        self._mounts = counter("mount_changes", "Turns whose mounted tools changed.", "strategy", "mode")
        self._approvals = counter("approvals", "Words of people on proposed calls.", "word")
        self._sessions = gauge("worker_sessions", "Sessions bound to a worker.", "worker")
        self._blocks = gauge("worker_resident_blocks", "Blocks resident by the shadow index.", "worker")
        self._events = gauge("worker_events", "1 for the state of a worker's KV events.", "worker", "state")
        self._seconds = Histogram(
            "warmgate_decision_seconds", "Seconds of a decision by part.", ("part",), registry=registry, buckets=BUCKETS
        )
        self._whole = Histogram("warmgate_decision_duration_seconds", "Seconds of a decision.", registry=registry, buckets=BUCKETS)
        self.refresh: Callable[[], None] = lambda: None
        """Sets what is a state and no count: sessions, resident blocks."""
        self._exist()

    def _exist(self) -> None:
        """Series that alerts divide by exist from the start: a rate of nothing is no data, not 0."""
        for kind in ("call", "read"):
            for one in (
                self._prompt,
                self._reusable,
                self._surplus,
                self._floor,
                self._available,
                self._captured,
                self._error,
            ):
                one.labels(kind)
            for unpredicted in UNPREDICTED:
                self._unpredicted.labels(kind, unpredicted)
            for basis in BASES:
                self._survived.labels(kind, basis)
                self._computed.labels(kind, basis)
                for cause in CAUSES:
                    self._lost.labels(kind, cause, basis)
            for result in ("exact", "off"):
                self._predictions.labels(kind, result)
        for reason in ("divergence", "namespace_change", "rounding"):
            self._outside.labels(reason)
        for part in get_args(Part):
            self._seconds.labels(part)
        for basis in BASES:
            self._tax.labels(basis)
        for part in ("hop", "prefill"):
            self._tax_seconds.labels(part)
        for verdict in get_args(Word):
            self._verdicts.labels(verdict, "rules", "enforce")
        for strategy in get_args(Strategy):
            self._mounts.labels(strategy, "enforce")
        for outcome in OUTCOMES:
            self._decisions.labels("systemone" if outcome in ("answered", "partial") else "none", outcome)
        for name in ("yes", "no"):
            self._calls.labels(name)
        for word in ("approved", "rejected"):
            self._approvals.labels(word)
        self._fallbacks.labels("systemone", "prefix_read", "not_supported")
        for moved in ("worker_lost", "drained", "removed"):
            self._rebinds.labels(moved)

    # -- facts ---------------------------------------------------------------------------------------------------------------------

    def decision_finished(self, fact: Finished) -> None:
        """Decisions, their time, mounts and verdicts."""
        decision = fact.decision
        asked = [read for read in decision.reads if read.engine is not None]
        if not decision.reads:
            engine, outcome = "rules", "not_asked"
        elif asked:
            last = asked[-1]
            engine, outcome = last.engine or "none", "answered" if all(r.outcome == "answered" for r in decision.reads) else "partial"
        else:
            engine, outcome = "none", "no_answer"
        self._decisions.labels(_word(engine, ENGINES), outcome).inc()
        self._whole.observe(decision.elapsed_s)
        parts = fact.parts
        for name, seconds in (("queue", parts.queue), ("hop", parts.hop), ("engine", parts.engine), ("ours", parts.ours)):
            self._seconds.labels(name).observe(seconds)
        self._tax_seconds.labels("hop").inc(parts.hop)
        if decision.mounts.changed or decision.mounts.shadow:
            mode = "shadow" if decision.mounts.shadow else "enforce"
            self._mounts.labels(_word(decision.mounts.strategy, get_args(Strategy)), mode).inc()
        for verdict in decision.verdicts.values():
            mode = "shadow" if verdict.shadow else "enforce"
            self._verdicts.labels(_word(verdict.verdict, get_args(Word)), _word(verdict.source, SOURCES), mode).inc()

    def decision_failed(self, decision: str, code: str) -> None:
        """A decision that raised."""
        del decision, code
        self._decisions.labels("none", "failed").inc()

    def read(self, fact: ReadSeen) -> None:
        """Engine requests and what their prompts found."""
        self._reads.labels(_word(fact.engine or "none", ENGINES), _word(fact.outcome, OUTCOMES)).inc()
        for outcome in fact.survival:
            self._survival(outcome)
        if fact.engine is not None:
            left = max(0, fact.questions - len(fact.survival))
            if left:
                self._unpredicted.labels("read", _word(fact.unpredicted or OTHER, UNPREDICTED)).inc(left)

    def agent_call(self, fact: CallSeen) -> None:
        """Calls, what they report, and what their prompts found."""
        reported = fact.reported
        self._calls.labels("yes" if reported.measured else "no").inc()
        if reported.measured:
            self._reported.inc(reported.prompt_tokens or 0)
            self._cached.inc(reported.cached_tokens or 0)
        if fact.survival is not None:
            self._survival(fact.survival)
        else:
            self._unpredicted.labels("call", _word(fact.unpredicted or OTHER, UNPREDICTED)).inc()

    def fallback(self, fact: Fallback) -> None:
        """Steps left."""
        reason = REASONS.get(fact.code or "", "skipped" if fact.code is None else OTHER)
        self._fallbacks.labels(_word(fact.left, ENGINES), _word(fact.to, ENGINES), reason).inc()

    def approval(self, fact: Approval) -> None:
        """Words of people."""
        self._approvals.labels("approved" if fact.approved else "rejected").inc()

    def counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """Rebinds, and everything else that happens to workers and sessions."""
        self._pool.labels(_word(what, COUNTED)).inc(number)
        if what == "session_moved":
            self._rebinds.labels(_word(labels.get("reason", OTHER), get_args(Reason))).inc(number)

    # -- states --------------------------------------------------------------------------------------------------------------------

    def sessions(self, counts: Mapping[str, int]) -> None:
        """Sessions per worker now."""
        for worker, count in counts.items():
            self._sessions.labels(self._worker(worker)).set(count)

    def followed(self, worker: str, index: ShadowIndex, status: Status | None) -> None:
        """How a worker's cache is followed now; ``status`` is ``None`` without events."""
        name = self._worker(worker)
        self._blocks.labels(name).set(len(index))
        for state in STATES:
            self._events.labels(name, state).set(status is not None and status.state == state)

    # -- pages ---------------------------------------------------------------------------------------------------------------------

    @property
    def registry(self) -> CollectorRegistry:
        """What a page is made from: of this process, or of all where ``PROMETHEUS_MULTIPROC_DIR`` is set."""
        if not self._multiprocess:
            return self._registry
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry

    def page(self) -> bytes:
        """What Prometheus scrapes, in its text format. :attr:`refresh` is called first, and its faults are passed over."""
        with suppress(Exception):
            self.refresh()
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def asgi(self) -> Asgi:
        """An ASGI application that serves the page under any path (Starlette, FastAPI: ``app.mount("/metrics", …)``)."""

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                while (await receive())["type"] != "lifespan.shutdown":
                    await send({"type": "lifespan.startup.complete"})
                await send({"type": "lifespan.shutdown.complete"})
                return
            status, body = (200, self.page()) if scope["method"] in ("GET", "HEAD") else (405, b"")
            headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

        return serve

    def wsgi(self) -> Wsgi:
        """The same for WSGI servers."""

        def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            known = environ.get("REQUEST_METHOD") in ("GET", "HEAD")
            body = self.page() if known else b""
            start("200 OK" if known else "405 Method Not Allowed", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))])
            return [b"" if environ.get("REQUEST_METHOD") == "HEAD" else body]

        return serve

    def _survival(self, outcome: Outcome) -> None:
        entry, expected = outcome.entry, outcome.expected
        kind = expected.prompt.kind
        survived, basis = entry.survived or 0, entry.survived_basis
        self._prompt.labels(kind).inc(expected.prompt.tokens)
        self._reusable.labels(kind).inc(expected.reusable)
        self._survived.labels(kind, basis).inc(survived)
        self._available.labels(kind).inc(expected.available)
        self._captured.labels(kind).inc(expected.captured)
        self._surplus.labels(kind).inc(entry.surplus)
        self._siblings.inc(entry.intra_call)
        if outcome.cause is not None:
            self._lost.labels(kind, outcome.cause, basis).inc(entry.lost)
        self._outside.labels("divergence").inc(entry.divergence)
        self._outside.labels("namespace_change").inc(entry.namespace_change)
        self._outside.labels("rounding").inc(expected.shared - expected.reusable)
        if expected.divergence is not None:
            self._diverged.labels(_word(expected.divergence, KINDS)).inc(entry.divergence)
        self._computed.labels(kind, basis).inc(outcome.computed)
        if expected.floor is not None:
            self._floor.labels(kind).inc(expected.floor)
            tax = outcome.computed - expected.floor
            self._tax.labels(basis).inc(tax)
            if self._prefill_rate:
                self._tax_seconds.labels("prefill").inc(tax / self._prefill_rate)
        if outcome.difference is not None:
            self._predictions.labels(kind, "off" if outcome.difference else "exact").inc()
            self._error.labels(kind).inc(abs(outcome.difference))
        worker = self._worker(expected.worker)
        self._worker_reusable.labels(worker).inc(expected.reusable)
        self._worker_survived.labels(worker, basis).inc(survived)

    def _worker(self, url: str) -> str:
        """A worker's label: its URL without credentials, or ``other`` when there are too many."""
        with self._lock:
            if url in self._workers or len(self._workers) < MAX_WORKERS:
                self._workers.add(url)
                return bare(url)
        return OTHER


def forget_process(pid: int) -> None:
    """Take a dead process's gauges off the sums (gunicorn's ``child_exit``, or whatever ends your workers)."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]


def _word(value: str, allowed: Sequence[str]) -> str:
    return value if value in allowed else OTHER

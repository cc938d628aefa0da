"""What the decisions of one gate share: workers, engines and connections, and what was learnt about models, workers and sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmgate.alignment.planning import Planning
from warmgate.alignment.remote import MAX_BODY, Pieces, Remote
from warmgate.alignment.template import ChatTemplate
from warmgate.engines import Breakers, Chain, Deadline
from warmgate.engines.http import Http
from warmgate.engines.loops import PerLoop
from warmgate.settings import Settings
from warmgate.telemetry.protocol import Telemetry
from warmgate.telemetry.setup import listeners
from warmgate.telemetry.watching import Watch
from warmgate.trail import Trails
from warmgate.workers import WorkerPool
from warmgate.workers.binding import Binding
from warmgate.workers.counts import Counted
from warmgate.workers.reuse import Finding, Findings, measure

ChainOf = Callable[[str], Chain]
"""The engines for a worker, by its base URL."""


@dataclass(slots=True)
class _Lines:
    """Connections and breakers of one event loop: neither may cross to another."""

    breakers: Breakers = field(default_factory=Breakers)
    chains: dict[str, Chain] = field(default_factory=dict[str, Chain])
    https: dict[str, Http] = field(default_factory=dict[str, Http])


class Means:
    """See the module.

    Args:
        settings: The gate's.
        template: The agent model's chat template, where it is known.
        chain: Makes the engines for a worker; without it, those of the settings.
        telemetry: Listeners beside those of the settings.
    """

    def __init__(
        self,
        settings: Settings,
        template: ChatTemplate | None = None,
        chain: ChainOf | None = None,
        telemetry: Sequence[Telemetry] = (),
    ) -> None:
        self.settings = settings
        self.planning = Planning(template, extend="prefix_read" in settings.engines)
        self._pieces = Pieces()
        self.findings = Findings(self._measure, ttl_s=settings.reuse_ttl_s)
        self.trails = Trails()
        self.watch = Watch(settings, self.http)
        self.listeners = listeners(settings, telemetry, lambda: self.watch.blocks)
        self.tell = self.listeners.fan
        if self.listeners.prometheus is not None:
            self.listeners.prometheus.refresh = self._show
        self.pool = WorkerPool(
            settings.workers,
            settings.gate_workers or None,
            affinity=settings.affinity,
            ttl_s=settings.affinity_ttl_s,
            gateway=settings.gateway,
            probe_headers={"Authorization": f"Bearer {settings.api_key}"} if settings.api_key_env else None,
            listener=self._counted,
        )
        if chain is None:
            _load(settings)
        self._chain = chain
        self._lines: PerLoop[_Lines] = PerLoop(_Lines)

    def chain(self, worker: str) -> Chain:
        """The engines for one worker, made once for each event loop."""
        lines = self._lines.get()
        chain = lines.chains.get(worker)
        if chain is None:
            made = self._chain(worker) if self._chain is not None else None
            chain = made or Chain([self._engine(name, worker) for name in self.settings.engines], breakers=lines.breakers)
            lines.chains[worker] = chain
        return chain

    def http(self, worker: str) -> Http:
        """Connections for what is no question: tokens, templates, plants."""
        lines = self._lines.get()
        if worker not in lines.https:
            lines.https[worker] = Http(worker, api_key=self.settings.api_key, max_body=MAX_BODY)
        return lines.https[worker]

    def remote(self, binding: Binding, model: str, deadline: Deadline) -> Remote:
        """The worker's own tokenizer and template."""
        return Remote(self.http(binding.worker), model, deadline, binding.headers, self._pieces)

    async def finding(self, binding: Binding, model: str, *, wait_s: float = 0.0) -> Finding:
        """Whether a shared prefix hits on a worker: as the settings say, as it was measured, or not known yet."""
        told = _told(self.settings)
        if told is not None:
            return told
        return await self.findings.of(binding.worker, model, binding.headers, restarts=binding.restarts, wait_s=wait_s)

    def _measure(self, worker: str, model: str, headers: Mapping[str, str]) -> Awaitable[Finding]:
        return measure(worker, model, headers, api_key=self.settings.api_key)

    def _engine(self, name: str, worker: str) -> Any:
        from warmgate import engines

        settings = self.settings
        model = settings.gate_model if settings.gate_workers else settings.model
        if name == "systemone":
            return engines.SystemOne(worker, model=model, dialect=settings.dialect, api_key=settings.api_key)
        if name == "decisions":
            return engines.Decisions(worker, model=model, api_key=settings.api_key)
        if name == "prefix_read":
            return engines.PrefixRead(worker, model=model, api_key=settings.api_key)
        return engines.RoundTrip(settings.round_trip_url or worker, model=settings.round_trip_model or model, api_key=settings.api_key)

    def _counted(self, what: Counted, labels: Mapping[str, str], number: int) -> None:
        """What happens to workers, for those who listen and for the shadow of their caches."""
        if what == "worker_restart" and "worker" in labels:
            self.watch.restarted(labels["worker"])
        self.tell.counted(what, labels, number)

    def _show(self) -> None:
        """Set what a page of metrics shows of workers: a state, and no count."""
        page, following = self.listeners.prometheus, self.watch.following
        if page is None:
            return
        page.sessions(self.trails.counts([status.url for status in self.pool.status() if status.role == "workers"]))
        for status in self.pool.status():
            index = following.tracker.index(status.url) if following is not None and following.tracker is not None else None
            if index is not None and following is not None:
                page.followed(status.url, index, following.status(status.url))

    async def aclose(self) -> None:
        """Close what this event loop opened, the pool's share aside."""
        await self.watch.aclose()
        await self.findings.aclose()
        lines = self._lines.pop()
        if lines is not None:
            for chain in lines.chains.values():
                await chain.aclose()
            for http in lines.https.values():
                await http.aclose()


def _load(settings: Settings) -> None:
    """Import what decisions will need: a client library takes half a second, which belongs to no deadline."""
    from importlib import import_module

    from warmgate import engines

    names = {"systemone": "SystemOne", "decisions": "Decisions", "prefix_read": "PrefixRead", "round_trip": "RoundTrip"}
    for name in settings.engines:
        getattr(engines, names[name])
    if settings.alignment == "auto":
        for module in ("decisions", "reuse", "trial"):
            import_module(f"warmgate.doctor.{module}")


def _told(settings: Settings) -> Finding | None:
    if settings.alignment == "always":
        return Finding("first", "the settings say that aligned states pay (alignment = always)")
    if settings.alignment == "plant":
        return Finding("planted", "the settings say that shared prefixes must be planted (alignment = plant)")
    if settings.alignment == "off":
        return Finding("off", "alignment is off in the settings", "set alignment = auto")
    return None

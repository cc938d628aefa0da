"""Following a pool of workers: what each one says about its cache, an index for it, its events where it sends them, one tracker for all."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast, get_args

from warmgate.errors import WarmgateError, one_line
from warmgate.prefix.counters import Snapshot
from warmgate.prefix.events import EventReader, EventSource, Status, sources_of
from warmgate.prefix.hashes import Algorithm, BlockNames
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.intake import Intake
from warmgate.prefix.survival import SurvivalTracker

Get = Callable[[str], Awaitable[str]]
"""Fetches the text of a path of one worker; whatever it raises is a reason not to follow."""


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What ``vllm:cache_config_info`` says. Sizes are tokens and blocks.

    Attributes:
        block_size: Tokens per block.
        blocks: Blocks that requests can use (one less than the pool, vLLM's blank), or ``None``.
        algorithm: How blocks are named.
        enabled: Whether prefixes are cached at all.
    """

    block_size: int
    blocks: int | None
    algorithm: Algorithm
    enabled: bool

    @classmethod
    def of(cls, page: str) -> CacheFacts | None:
        """From a page of ``/metrics``; ``None`` where it does not say."""
        from warmgate.doctor.exposition import Metrics

        for sample in Metrics(page).of("vllm:cache_config_info"):
            labels = sample.labels
            size, pool = labels.get("block_size", ""), labels.get("num_gpu_blocks", "")
            named = labels.get("prefix_caching_hash_algo", "sha256")
            if not size.isdigit() or not int(size):
                continue
            blocks = int(pool) - 1 if pool.isdigit() and int(pool) > 1 else None
            algorithm = cast("Algorithm", named if named in get_args(Algorithm) else "sha256")
            return cls(int(size), blocks, algorithm, labels.get("enable_prefix_caching", "True") != "False")
        return None


class Following:
    """The workers of one pool that serve one base model.

    Args:
        seed: ``PYTHONHASHSEED`` of the workers, where it is set there.
        rank: Data-parallel rank to follow where a worker lists several; a worker should be one rank.
    """

    def __init__(self, *, seed: str | None = None, rank: int = 0) -> None:
        self._seed, self._rank = seed, rank
        self.tracker: SurvivalTracker | None = None
        self.names: BlockNames | None = None
        self.readers: dict[str, EventReader] = {}
        self.reasons: dict[str, str] = {}
        """Worker → why it is not followed, or not by events."""

    async def add(self, worker: str, get: Get) -> bool:
        """Begin to follow a worker. Never raises of its own: :attr:`reasons` says what could not be had.

        Args:
            worker: Base URL.
            get: Fetches ``/metrics`` and ``/kv_event_sources`` of it.

        Returns:
            Whether prompts can be predicted there.
        """
        try:
            page = await get("/metrics")
            facts = CacheFacts.of(page)
        except Exception as fault:  # noqa: BLE001 -- a worker that does not answer is not followed; decisions go on
            return self._not(worker, f"its metrics cannot be read ({one_line(str(fault) or type(fault).__name__, 80)})")
        if facts is None:
            return self._not(worker, "it does not say how its cache is set up (vllm:cache_config_info)")
        if not facts.enabled:
            return self._not(worker, "its prefix cache is off")
        if self.tracker is None or self.names is None:
            try:
                self.names = BlockNames(facts.block_size, facts.algorithm, self._seed)
            except WarmgateError as fault:
                return self._not(worker, str(fault))
            self.tracker = SurvivalTracker(facts.block_size)
        elif (facts.block_size, facts.algorithm) != (self.names.block_size, self.names.algorithm):
            return self._not(worker, f"its blocks ({facts.block_size} tokens, {facts.algorithm}) are not those of the pool's first worker")
        source = await self._source(worker, get)
        index = _modelled(facts, page) if source is None else ShadowIndex(facts.block_size, blocks=facts.blocks, source="events")
        tracker = self.tracker
        tracker.add_worker(worker, index)
        if source is not None:
            intake = Intake(
                index,
                names=self.names,
                stored=lambda names: tracker.stored(worker, names),
                restarted=lambda: tracker.restarted(worker),
            )
            reader = EventReader(source, intake)
            try:
                reader.start()
            except WarmgateError as fault:
                self.reasons[worker] = f"no events: {fault}"
                tracker.add_worker(worker, _modelled(facts, page))
            else:
                self.readers[worker] = reader
        return True

    def status(self, worker: str) -> Status | None:
        """How far a worker's events can be relied on; ``None`` where it sends none."""
        reader = self.readers.get(worker)
        return None if reader is None else reader.status

    def drop(self, worker: str) -> None:
        """Stop listening to a worker that left the pool. What it stored stays known, as evidence for a change of worker."""
        reader = self.readers.pop(worker, None)
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Stop listening to all."""
        for worker in list(self.readers):
            self.drop(worker)

    async def _source(self, worker: str, get: Get) -> EventSource | None:
        try:
            listed = sources_of(json.loads(await get("/kv_event_sources")), worker)
        except Exception:  # noqa: BLE001 -- older servers have no such route; no events then
            listed = {}
        source = listed.get(self._rank)
        if source is None:
            self.reasons[worker] = "it sends no KV events (--kv-events-config); its cache is modelled by our own calls"
        return source

    def _not(self, worker: str, why: str) -> bool:
        self.reasons[worker] = why
        return False


def _modelled(facts: CacheFacts, page: str) -> ShadowIndex:
    """An index fed by our own calls. It begins empty, which a worker that has served others is not."""
    index = ShadowIndex(facts.block_size, blocks=facts.blocks)
    asked = Snapshot.of(page).queries
    if asked and index.doubt is None:
        index.trust(f"it looked up {asked:,} tokens before it was followed, and what they left there is not known")
    return index

"""The engine behind the stand-in: it computes nothing and accounts for everything.

Prompts are admitted as vLLM 0.32 admits them: whole, in the order they came, waiting while the pool has no room; all prompts of one
request in one step, so that later ones find the blocks of earlier ones. A running request holds its blocks; when it ends, its prompt
and all but its last generated token stay readable (``tests/engine/rig/NOTES.md`` has the rules with their sources).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from warmgate.prefix.cache import CacheFull, Lease
from warmgate.standin.events import AllBlocksCleared, BlockRemoved, BlockStored, Publisher
from warmgate.standin.hashing import Algorithm, BlockNames, ExtraKeys, wire_name
from warmgate.standin.metrics import Counters
from warmgate.standin.pool import Pool

MEDIUM = "GPU"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter the stand-in claims to serve."""

    name: str
    path: str = "/standin/lora"
    index: int = 1


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt on its way to the engine.

    Attributes:
        ids: Token ids.
        salt: ``cache_salt`` of the request: prompts with different salts share nothing.
        adapter: The LoRA adapter it runs under.
        media: What stands at a placeholder run: (digest, first position, length).
        session: Reported in KV events.
    """

    ids: Sequence[int]
    salt: str | None = None
    adapter: Adapter | None = None
    media: tuple[tuple[str, int, int], ...] = ()
    session: str | None = None

    def extra_keys(self, block: int, block_size: int) -> ExtraKeys:
        """What else names a block, in vLLM's order: adapter, media that overlap it, and on the first block the salt."""
        keys: list[tuple[Any, ...]] = []
        if self.adapter is not None:
            keys.append(("lora", self.adapter.name, self.adapter.path))
        begin, end = block * block_size, (block + 1) * block_size
        keys += [("mm", digest, at - begin) for digest, at, length in self.media if at < end and at + length > begin]
        if block == 0 and self.salt:
            keys.append(("cache_salt", self.salt))
        return tuple(keys) or None


@dataclass(frozen=True, slots=True)
class Output:
    """What a request will generate.

    Attributes:
        ids: Token ids, the end-of-turn token included where the engine would have sampled it.
        reason: Why it ends there.
    """

    ids: Sequence[int] = ()
    reason: Literal["stop", "length"] = "stop"


@dataclass(slots=True)
class Run:
    """A prompt the engine has admitted.

    Attributes:
        prompt: What was admitted.
        output: What it generates.
        names: Names of its full blocks.
        lease: The blocks it holds.
        cached: Tokens found in the cache.
        created: Tokens newly readable once the prompt is computed.
    """

    prompt: Prompt
    output: Output
    names: list[bytes]
    lease: Lease
    cached: int
    created: int
    done: bool = False


class Engine:
    """Admits prompts, keeps the prefix cache, counts and announces.

    Args:
        block_size: Tokens per block.
        kv_tokens: Tokens the cache holds, whole blocks of it.
        algorithm: How blocks are named.
        seed: What the first block's parent is named after.
    """

    def __init__(self, block_size: int, kv_tokens: int, algorithm: Algorithm = "sha256", seed: str | None = None) -> None:
        self.block_size = block_size
        self.capacity = max(kv_tokens // block_size, 1)
        self.counters = Counters()
        self.publisher: Publisher | None = None
        self._names = BlockNames(block_size, algorithm, **({} if seed is None else {"seed": seed}))
        self._events: list[BlockStored | BlockRemoved | AllBlocksCleared] = []
        self._waiting: deque[tuple[Prompt, Output, asyncio.Future[Run]]] = deque()
        self.cache = Pool(block_size, self.capacity, on_taken=self._taken)

    @property
    def usage(self) -> float:
        """Share of the pool that running requests hold; cached blocks nobody holds count as free, as with vLLM."""
        return 1.0 - (self.cache.free_blocks or 0) / self.capacity

    async def admit(self, prompts: Sequence[Prompt], outputs: Sequence[Output]) -> list[Run]:
        """Start requests that came together, each with what it will generate. Returns their runs, in order; end them with :meth:`finish`.

        Where the pool cannot hold them all at once, the earlier ones end first, as they would in an engine.
        """
        runs: list[Run] = []
        try:
            for prompt, output in zip(prompts, outputs, strict=True):
                run = None if self._waiting else self._try(prompt, output)
                if run is None:
                    self.finish(*runs)
                    run = await self._queue(prompt, output)
                runs.append(run)
        except BaseException:
            self.abort(*runs)
            raise
        self._announce()
        return runs

    def finish(self, *runs: Run) -> None:
        """End requests with all they had to generate. Runs that ended before are left alone."""
        for run in runs:
            if not run.done:
                self._end(run, run.output.ids, run.output.reason)
        self._drain()

    def abort(self, *runs: Run) -> None:
        """End requests whose client is gone: the prompt stays readable, the counters say ``abort``."""
        for run in runs:
            if not run.done:
                self._end(run, (), "abort")
        self._drain()

    def pooled(self, tokens: int) -> None:
        """Count a request that never looks into the cache (pooling models)."""
        counters = self.counters
        counters.prompt_tokens += tokens
        counters.computed_tokens += tokens
        counters.finished["stop"] += 1

    def clear(self) -> None:
        """Forget every cached block that no running request holds."""
        self.cache.clear()
        if self.publisher is not None:
            self._events.append(AllBlocksCleared())
        self._announce()

    def _end(self, run: Run, output: Sequence[int], reason: str) -> None:
        run.done = True
        prompt = run.prompt
        if len(output) > 1:
            whole = [*prompt.ids, *output[:-1]]  # the last sampled token was never computed
            names = self._names(whole, self._extra(prompt), known=run.names)
            with suppress(CacheFull):
                self.cache.extend(run.lease, names, len(whole))
                self._stored(prompt, whole, names, len(run.names))
        self.cache.release(run.lease)
        self.counters.running -= 1
        self.counters.generation_tokens += len(output)
        self.counters.finished[reason] += 1

    def _try(self, prompt: Prompt, output: Output) -> Run | None:
        ids = prompt.ids
        names = self._names(ids, self._extra(prompt))
        try:
            lease = self.cache.admit(names, len(ids))
        except CacheFull:
            return None
        cached = lease.hit * self.block_size
        counters = self.counters
        counters.running += 1
        counters.queries += len(ids)
        counters.hits += cached
        counters.prompt_tokens += len(ids)
        counters.cached_tokens += cached
        counters.computed_tokens += len(ids) - cached
        self._stored(prompt, ids, names, lease.hit)
        return Run(prompt, output, names, lease, cached, max(0, len(names) * self.block_size - cached))

    async def _queue(self, prompt: Prompt, output: Output) -> Run:
        ticket: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, output, ticket))
        self.counters.waiting += 1
        self._drain()
        try:
            return await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():  # admitted in the moment its client left
                self.abort(ticket.result())
            else:
                ticket.cancel()
                self._drain()
            raise
        finally:
            self.counters.waiting -= 1

    def _drain(self) -> None:
        """Let waiting requests in, first come, first served: the first that does not fit holds up the rest."""
        while self._waiting:
            prompt, output, ticket = self._waiting[0]
            if not ticket.done():
                run = self._try(prompt, output)
                if run is None:
                    break
                ticket.set_result(run)
            self._waiting.popleft()
        self._announce()

    def _extra(self, prompt: Prompt) -> Callable[[int], ExtraKeys] | None:
        if prompt.adapter is None and not prompt.salt and not prompt.media:
            return None
        return lambda block: prompt.extra_keys(block, self.block_size)

    def _stored(self, prompt: Prompt, ids: Sequence[int], names: list[bytes], held: int) -> None:
        """Announce the blocks from number ``held`` on. A copy of a block already resident is announced again, as vLLM does."""
        fresh = names[held:]
        if not fresh or self.publisher is None:
            return
        size, keys = self.block_size, [prompt.extra_keys(held + i, self.block_size) for i in range(len(fresh))]
        tokens = list(ids[held * size : len(names) * size])
        self._events.append(
            BlockStored(
                block_hashes=[wire_name(name) for name in fresh],
                parent_block_hash=wire_name(names[held - 1]) if held else None,
                token_ids=tokens,
                block_size=size,
                lora_id=prompt.adapter.index if prompt.adapter is not None else None,
                medium=MEDIUM,
                lora_name=prompt.adapter.name if prompt.adapter is not None else None,
                extra_keys=[None if k is None else tuple(key[1:] if key[0] == "mm" else key[1] for key in k) for k in keys],
                group_idx=0,
                session_id=prompt.session,
            )
        )

    def _taken(self, name: Any) -> None:
        """Announce that one copy of a block is gone; others may still be resident."""
        if self.publisher is not None:
            self._events.append(BlockRemoved(block_hashes=[wire_name(name)], medium=MEDIUM, group_idx=0))

    def _announce(self) -> None:
        if self._events and self.publisher is not None:
            self.publisher.publish(self._events)
            self._events = []

"""Cached tokens predicted by a gate, against what the engine reports of calls and counts of reads; and the record's replay against both."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.engine.lab import boot
from tests.bench.engine.through import Through
from tests.bench.timing import Line
from tests.engine.rig.server import ServerOptions
from warmgate.replay.run import Options, replay

CALLS = READS = 300


@dataclass(frozen=True)
class Part:
    """One server, one gate, one traffic."""

    name: str
    options: ServerOptions
    words: int
    clients: int = 0


PARTS = (
    Part("events, blocks of 32", ServerOptions(kv_events=True, max_model_len=8192), 120),
    Part("events, blocks of 128", ServerOptions(kv_events=True, block_size=128, max_model_len=8192), 200),
    Part("events, 63 blocks, evicting", ServerOptions(kv_events=True, num_gpu_blocks=64, max_model_len=1024), 36),
    Part("no events, 63 blocks, evicting", ServerOptions(num_gpu_blocks=64, max_model_len=1024), 36),
    Part("events, 399 blocks, 8 clients at once", ServerOptions(kv_events=True, num_gpu_blocks=400, max_model_len=1024), 36, clients=8),
)


async def lines() -> AsyncIterator[Line]:
    for part in PARTS:
        (server,) = await asyncio.to_thread(boot, part.options)
        try:
            with tempfile.TemporaryDirectory() as folder:
                async for line in _on(part, server, Path(folder)):
                    yield line
        finally:
            await asyncio.to_thread(server.stop)


async def _on(part: Part, server: Any, folder: Path) -> AsyncIterator[Line]:
    alone = not part.clients
    async with Through(server, alone=alone, record=folder, measure_reads=alone) as traffic:
        account, enough = traffic.account, False
        while not enough:
            if part.clients:
                await traffic.crowd(part.clients, rounds=6, words=part.words)
            else:
                await traffic.talk(sessions=6, rounds=5, words=part.words)
            enough = account.calls >= CALLS and account.reads >= READS
        tracker = traffic.gate.means.watch.tracker
        assert tracker is not None
        live = tracker.sums
    if not part.options.kv_events:  # whether reads sent together overlap is the engine's timing: a block more or less is evicted
        reads = 1 - abs(account.read_predicted - account.read_hits) / account.read_hits
        yield f"{part.name}: {account} = {reads:.2%} (bounds: calls exact, reads 99.8 %)", account.call_off == 0 and reads >= 0.998
    elif alone:
        yield f"{part.name}: {account}" + ("" if account.exact else f" (seed {traffic.seed})"), account.exact
    else:
        calls = 1 - account.call_off / account.call_cached
        reads = 1 - abs(account.read_predicted - account.read_hits) / account.read_hits
        yield f"{part.name}: {account}", None
        yield f"{part.name}: {calls:.2%} of the calls' cached tokens, {reads:.2%} of the reads' hits predicted right (bound 99 %)", min(calls, reads) >= 0.99  # fmt: skip
    lost = ", ".join(f"{cause} {tokens:,}" for cause, tokens in sorted(live.calls.lost.items())) or "nothing"
    yield f"{part.name}: of {live.calls.reusable:,} reusable tokens of calls {live.calls.survived:,} survived, lost: {lost}", "unknown" not in live.calls.lost if alone else None  # fmt: skip
    totals = replay([str(folder / "trace.jsonl")], Options()).totals
    told = (totals.calls, totals.prompt_tokens, totals.reusable_tokens, totals.survived_tokens, totals.lost_tokens)
    same = (live.calls.calls, live.calls.prompt_tokens, live.calls.reusable, live.calls.survived, live.calls.lost)
    yield f"{part.name}: a replay of the record gives {told[1]:,} prompt, {told[2] or 0:,} reusable, {told[3]:,} survived tokens, live {same[1]:,}, {same[2]:,}, {same[3]:,}", told == same  # fmt: skip

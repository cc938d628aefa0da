"""What following the prefix costs: time a block, bytes a resident block, blocks a second from the wire."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc

import msgspec

from tests.bench.timing import Lines, cpu
from warmgate.prefix.hashes import BlockNames, wire_names
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.intake import Intake
from warmgate.prefix.ledger import Entry, Ledger
from warmgate.prefix.survival import Prompt, SurvivalTracker

RESIDENT = 1_000_000
BLOCK = 16
STEP = 512
"""Blocks in one batch: a step of 8,192 tokens."""
W = "http://a"


def run() -> Lines:
    yield from _names()
    yield from _intake()
    yield from _memory()
    yield from _tracker()
    yield from _model()


def _names() -> Lines:
    dice = random.Random(0)
    ids = [dice.randrange(150_000) for _ in range(BLOCK * 10_000)]
    for algorithm in ("sha256", "sha256_cbor"):
        seconds, _ = cpu(lambda a=algorithm: BlockNames(BLOCK, a).of(ids))  # type: ignore[misc]
        yield f"naming a new block of {BLOCK} tokens ({algorithm}): {seconds / 10_000 * 1e6:.2f} µs", None
    names = BlockNames(BLOCK)
    names.of(ids)
    seconds, _ = cpu(lambda: names.of(ids))
    yield f"naming a block walked before: {seconds / 10_000 * 1e6:.2f} µs", None
    known = names.of(ids)[:9_990]
    seconds, _ = cpu(lambda: names.of(ids, known=known))
    yield f"naming 10 new blocks behind 9,990 known ones: {seconds * 1e6:.0f} µs", None


def batches(blocks: int) -> list[bytes]:
    """Payloads as vLLM sends them, token ids included."""
    dice = random.Random(1)
    tokens = [dice.randrange(150_000) for _ in range(BLOCK * STEP)]
    encoder = msgspec.msgpack.Encoder()
    made = []
    for step in range(blocks // STEP):
        stored = {
            "type": "BlockStored",
            "block_hashes": [dice.getrandbits(64) for _ in range(STEP)],
            "parent_block_hash": dice.getrandbits(64),
            "token_ids": tokens,
            "block_size": BLOCK,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None] * STEP,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        made.append(encoder.encode([float(step), [stored], 0]))
    return made


def _intake() -> Lines:
    payloads = batches(200 * STEP)

    def take() -> int:
        index = ShadowIndex(BLOCK, source="events")
        tracker = SurvivalTracker(BLOCK)
        tracker.add_worker(W, index)
        intake = Intake(index, stored=lambda names: tracker.stored(W, names))
        for number, payload in enumerate(payloads):
            intake.take(number, payload)
        return intake.blocks

    seconds, blocks = cpu(take)
    yield (
        f"event intake, decoded and indexed: {blocks / seconds:,.0f} blocks a second, {seconds / blocks * 1e6:.2f} µs a block (bound 50,000/s)",
        blocks / seconds >= 50_000,
    )


def _memory() -> Lines:
    payloads = batches(RESIDENT + STEP)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = ShadowIndex(BLOCK, source="events")
    tracker = SurvivalTracker(BLOCK)
    tracker.add_worker(W, index)
    intake = Intake(index, stored=lambda names: tracker.stored(W, names))
    for number, payload in enumerate(payloads):
        intake.take(number, payload)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    yield (
        f"{len(index):,} resident blocks: {used / len(index):.0f} bytes a block, index and history together (bound 200)",
        used / len(index) <= 200,
    )
    names = list(index._copies)[:7_000]
    seconds, found = cpu(lambda: index.find(names, len(names) * BLOCK + 1))
    yield (
        f"looking up a prefix of {found.blocks:,} blocks among them: {seconds / found.blocks * 1e6:.2f} µs a block (bound 5)",
        (seconds / found.blocks * 1e6 <= 5),
    )


def _tracker() -> Lines:
    """A session that grows by ten blocks a turn, on one of eight workers."""
    tracker = SurvivalTracker(BLOCK)
    for n in range(8):
        index = ShadowIndex(BLOCK, source="events")
        index.trust(None)
        tracker.add_worker(f"{W}{n}", index)
    dice = random.Random(2)
    names = [dice.getrandbits(64) for _ in range(2_000)]
    blocks = 0
    start = time.process_time()
    for turn in range(100, 2_000, 10):
        part = names[:turn]
        prompt = Prompt("s", part, turn * BLOCK + 3)
        (expected,) = tracker.expect(f"{W}3", prompt)
        index = tracker.index(f"{W}3")
        assert index is not None
        index.stored(part[turn - 10 if turn > 100 else 0 :])
        tracker.settle(expected, expected.captured)
        blocks += turn
    each = (time.process_time() - start) / blocks * 1e6
    assert tracker.sums.calls.lost == {}
    yield f"expecting and settling a call on one of 8 workers: {each:.2f} µs a block of its prompt (bound 5)", each <= 5
    ledger, entry = Ledger(), Entry(1000, shared=900, reusable=896, survived=896)
    seconds, _ = cpu(lambda: [ledger.add(entry) for _ in range(10_000)])
    yield f"one entry into the ledger: {seconds / 10_000 * 1e6:.2f} µs, whatever its blocks", None


def _model() -> Lines:
    """Without events: our own calls through the model of the pool, full and evicting all along."""
    pool = 250_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = ShadowIndex(BLOCK, blocks=pool)
    tracker = SurvivalTracker(BLOCK)
    tracker.add_worker(W, index)
    dice = random.Random(3)

    def serve(prompts: int) -> int:
        for _ in range(prompts):
            names = [dice.getrandbits(64) for _ in range(1_000)]
            index.served(names, 16_003, 16_003)
            tracker.stored(W, names)
        return tracemalloc.get_traced_memory()[0] - before

    used = serve(pool // 1_000 - 1)
    yield (
        f"the model of the pool, {len(index):,} blocks: {used / len(index):.0f} bytes a resident block, index and history together (bound 200)",
        used / len(index) <= 200,
    )
    history = len(tracker._workers[W].history.now)
    evicted = serve(2 * pool // 1_000)
    remembered = len(tracker._workers[W].history.now) - history
    tracker = SurvivalTracker(BLOCK)
    gc.collect()
    bare = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    yield (
        f"after {2 * pool:,} evictions: the index {bare / len(index):.0f} bytes a resident block (bound 200); "
        f"{remembered:,} blocks more in the history, which costs {(evicted - bare) / (remembered + history):.0f} bytes a block it remembers",
        bare / len(index) <= 200,
    )
    prompts = [[dice.getrandbits(64) for _ in range(1_000)] for _ in range(100)]
    seconds, _ = cpu(lambda: [index.served(names, 16_003, 16_003) for names in prompts], times=1)
    slow = seconds / 100_000 * 1e6
    yield f"serving a new block, which evicts one: {slow:.2f} µs (bound 5)", slow <= 5
    seconds, found = cpu(lambda: index.find(prompts[-1], 16_003))
    yield (
        f"looking up a prefix of {found.blocks:,} blocks: {seconds / found.blocks * 1e6:.2f} µs a block (bound 5)",
        seconds / found.blocks * 1e6 <= 5,
    )
    names = wire_names(BlockNames(BLOCK).of(list(range(BLOCK * 100))))
    index.served(names, 1_601, 1_601)
    assert index.find(names, 1_601).blocks == 100

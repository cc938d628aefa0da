"""Recurrent layers: text that aligns is a hit only where the cache keeps a state. Unplanted, planted, and what the gate does by itself."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from tests.bench.engine.lab import Lab, boot
from tests.bench.engine.run import How, run
from tests.bench.engine.talk import prose, talk, tools
from tests.bench.timing import Line
from tests.engine.rig.server import ServerOptions

FLAGS: dict[str, tuple[str, ...]] = {"default": (), "--prefix-match-unit 32": ("--prefix-match-unit", "32")}
HOWS: tuple[How, ...] = ("none", "json", "unplanted", "planted", "aligned")
NAMES: dict[str, str] = {"aligned": "the gate"}


async def lines() -> AsyncIterator[Line]:
    servers = boot(*(ServerOptions(model="qwen35", extra=extra) for extra in FLAGS.values()))
    try:
        for flag, server in zip(FLAGS, servers, strict=True):
            lab = Lab([server], block=32 if "32" in flag else None)
            try:
                async for line in _on(lab, flag):
                    yield line
            finally:
                await lab.aclose()
    finally:
        for server in servers:
            server.stop()


async def _on(lab: Lab, flag: str) -> AsyncIterator[Line]:
    draw = random.Random("hybrid")
    one = talk("hybrid", system=prose(draw, 2000), catalogue=tools(draw, ("read", "run")), turns=4, first=2000, each=300)
    for how in HOWS:
        spent = await run(lab, how, [one], salt=f"hybrid-{how}", any_state=True)
        if how == "none":
            yield (
                (
                    f"Qwen3.5, {flag}: 4 turns of {spent.calls[0].prompt:,} to {spent.calls[-1].prompt:,} tokens, "
                    f"block size {lab.block_size()}, hits in steps of {lab.block}"
                ),
                None,
            )
        cached = ", ".join(f"{call.cached:,}" for call in spent.calls)
        yield (
            f"{NAMES.get(how, how):<9} computed {spent.computed:>7,}  floor {spent.floor:>7,}  × {spent.ratio:.2f}   "
            f"first turn × {spent.first_ratio:.2f}   agent calls cached {cached}",
            None,
        )
        if how == "aligned":
            yield (
                f"          {spent.answered} of {len(spent.calls)} decisions answered, {spent.plants} prefixes planted; it had found out:",
                spent.answered == len(spent.calls),
            )
        for said in spent.said:
            yield f"          {said}", None

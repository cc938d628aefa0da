"""Ten turns of one session, long ones and short ones: questions begin on unshared ground, so short turns cost relatively more."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from tests.bench.engine.lab import Lab
from tests.bench.engine.run import FOUR, run
from tests.bench.engine.talk import prose, talk, tools
from tests.bench.timing import Line

SIZES = {"long": (2500, 600), "short": (120, 100)}
"""Tokens of the system prompt, and of each turn."""


async def lines(lab: Lab) -> AsyncIterator[Line]:
    for size, (system, each) in SIZES.items():
        draw = random.Random(f"ten {size}")
        one = talk(f"ten {size}", system=prose(draw, system), catalogue=tools(draw, ("read", "run")), turns=10, first=each, each=each)
        computed: dict[str, int] = {}
        for how in FOUR:
            spent = await run(lab, how, [one], salt=f"ten-{size}-{how}", urls=lab.urls[:1])
            computed[how] = spent.computed
            if how == "none":
                first, last = spent.calls[0].prompt, spent.calls[-1].prompt
                yield f"{size} turns: 10 of them, prompts from {first:,} to {last:,} tokens, block size {lab.block}", None
            yield (
                f"{how:<9} computed {spent.computed:>7,}  floor {spent.floor:>7,}  × {spent.ratio:.3f}   "
                f"hit rate of the agent's calls {spent.cached / spent.prompt:.1%}",
                None,
            )
        more = {how: tokens - computed["none"] for how, tokens in computed.items()}
        yield (
            f"over none: aligned {more['aligned']:+,}, json {more['json']:+,}, separate {more['separate']:+,}; "
            f"aligned adds {more['aligned'] / more['json']:.2f} of what json adds (bound 0.5)",
            more["aligned"] <= 0.5 * more["json"],
        )

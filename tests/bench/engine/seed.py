"""The seed scenario: a long prompt nobody has seen, one decision with three questions, the agent's own call."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from tests.bench.engine.lab import Lab
from tests.bench.engine.run import FOUR, run
from tests.bench.engine.talk import prose, talk, tools
from tests.bench.timing import Line

TIMES = 3
"""Each way is run this often, each time under another salt, and its least CPU time stands."""


async def lines(lab: Lab) -> AsyncIterator[Line]:
    draw = random.Random("seed")
    one = talk("seed", system=prose(draw, 4000), catalogue=tools(draw), turns=1, first=4900, each=0)
    for url in lab.urls:  # a server's first long prompt takes longer than the same again
        await lab.chat(url, one.at(0), one.tools, "warm-up")
    took: dict[str, float] = {}
    for how in FOUR:
        tries = [await run(lab, how, [one], salt=f"seed-{how}-{number}", urls=lab.urls[:1]) for number in range(TIMES)]
        spent, took[how] = tries[0], min(one_try.seconds for one_try in tries)
        (call,) = spent.calls
        if how == "none":
            own = await lab.own()
            yield f"prompt {call.prompt:,} tokens, 3 questions of {own} tokens together, block size {lab.block}", None
        share = call.cached / call.prompt
        held = {"aligned": spent.ratio <= 1.02 and share >= 0.99}.get(how)
        bound = " (bounds 1.02, 99 %)" if how == "aligned" else ""
        yield (
            f"{how:<9} computed {spent.computed:>7,}  floor {spent.floor:>7,}  × {spent.ratio:.3f}   "
            f"agent call cached {call.cached:>6,} of {call.prompt:,} = {share:.1%}   workers' CPU × {took[how] / took['none']:.2f}{bound}",
            held,
        )

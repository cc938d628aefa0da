"""Eight sessions of eight turns with tools on two workers: what of the agents' prompts survives, and what takes it away."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from tests.bench.engine.lab import Lab, Picking
from tests.bench.engine.run import How, Route, run
from tests.bench.engine.talk import prose, talk, tools
from tests.bench.timing import Line

SESSIONS = TURNS = 8


async def lines(lab: Lab) -> AsyncIterator[Line]:
    draw = random.Random("sessions")
    system, catalogue = prose(draw, 600), tools(draw)
    talks = [talk(f"session {n}", system=system, catalogue=catalogue, turns=TURNS, first=150, each=260) for n in range(SESSIONS)]

    variants: list[tuple[str, How, Route, bool]] = [
        ("aligned, sticky", "aligned", "sticky", False),
        ("aligned, random routing", "aligned", "random", False),
        ("json, sticky", "json", "sticky", False),
        ("json, random routing", "json", "random", False),
        ("aligned, sticky, tools anew each turn", "aligned", "sticky", True),
    ]
    first = 0
    for number, (name, how, route, picking) in enumerate(variants):
        spent = await run(lab, how, talks, salt=f"sessions-{number}", route=route, mounts=Picking() if picking else None)
        first = first or spent.computed
        if number == 0:
            sizes = sorted(call.prompt for call in spent.calls)
            yield f"{len(spent.calls)} calls of {sizes[0]:,} to {sizes[-1]:,} tokens, block size {lab.block}", None
        held = spent.survival >= 0.98 if number == 0 else None
        bound = " (bound 98 %)" if number == 0 else ""
        surplus = f", surplus {spent.surplus:,}" if spent.surplus else ""
        yield (
            f"{name:<38} survival {spent.cached:>7,} of {spent.reusable:>7,} = {spent.survival:.1%}{surplus}   "
            f"hit rate {spent.cached / spent.prompt:.1%}   computed {spent.computed:>7,} = {spent.computed / first:.2f} of the first{bound}",
            held,
        )

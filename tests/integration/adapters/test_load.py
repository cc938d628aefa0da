"""Sessions that talk at once to one graph of 100 tools. If this fails, one hears another, or a turn costs more requests than it must.

The same agent under full load, 64 sessions and 50 turns, with what the gate adds in time and memory: ``python -m tests.bench adapters``.
"""

from __future__ import annotations

from collections import Counter

from tests.bench.adapter_load import TOOLS, Talk, gated, script, settings, tools
from warmgate.gate import Gate
from warmgate.standin import StandIn
from warmgate_adapters.conformance.rig import Watched

SESSIONS, TURNS = 8, 6


def posted(*workers):
    """Requests that turns made; probes go by the clock."""
    return sum(request.method == "POST" for worker in workers for request in worker.requests)


async def test_no_session_hears_another_and_a_turn_costs_the_same_at_the_end():
    names = [f"session{number}" for number in range(SESSIONS)]
    given, ran = script(names, TURNS), []
    async with StandIn(script=given) as one, StandIn(script=given) as other:
        options = settings([one.url, other.url])
        made = Gate.from_settings(options)
        async with Watched(options, mounts=made.mounts, calls=made.calls) as gate:
            talk = Talk(gated(gate, tools(ran)), names)
            requests = []
            for number in range(TURNS):
                before = posted(one, other)
                await talk.turn(number)
                requests.append(posted(one, other) - before)
            model = talk.graph.nodes["model"].bound.model
            model.http_client.close()
            await model.http_async_client.aclose()
        assert talk.wrong == []
        assert Counter(ran) == Counter(f"cat session{n}-turn{turn:03}.txt" for n in range(SESSIONS) for turn in range(TURNS))
        seen = Counter(turn.session for turn, _ in gate.decisions)
        assert seen == dict.fromkeys(names, 3 * TURNS), "mounts, the call it proposes, mounts"
        assert all(len(decision.mounts.tools) == TOOLS for _, decision in gate.decisions)
        where = {(request.headers.get("x-session-id"), worker.url) for worker in (one, other) for request in worker.requests}
        assert len({pair for pair in where if pair[0] in names}) == SESSIONS, "one worker each"
        most = 14 * SESSIONS  # two calls, one read, and what rendering and counting the new messages takes
        assert min(requests[3:]) <= most, "a busy machine tries some again, though not in every turn"

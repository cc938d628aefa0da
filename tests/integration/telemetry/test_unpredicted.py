"""Every read and call carries a prediction or the reason why it has none. If these fail, survival is told of an unknown part of the traffic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.gate.agents import TOOLS, Cautious, Two, agent_call, conversation, settings
from warmgate.doctor.exposition import Metrics
from warmgate.gate import Gate
from warmgate.standin import StandIn
from warmgate.telemetry.protocol import CallSeen, ReadSeen, Silent
from warmgate.turn import ProposedCall, Turn


class Seen(Silent):
    """What a listener is told."""

    inline = True

    def __init__(self) -> None:
        self.reads: list[ReadSeen] = []
        self.calls: list[CallSeen] = []

    def read(self, fact: ReadSeen) -> None:
        self.reads.append(fact)

    def agent_call(self, fact: CallSeen) -> None:
        self.calls.append(fact)


def counted(gate: Gate, kind: str) -> dict[str, float]:
    page = gate.means.listeners.prometheus
    assert page is not None
    samples = Metrics(page.page().decode()).of("warmgate_unpredicted_total")
    return {s.labels["reason"]: s.value for s in samples if s.labels["kind"] == kind and s.value}


@pytest.mark.parametrize(
    ("options", "read", "call"),
    [
        ({"alignment": "always"}, None, None),
        ({"alignment": "off"}, "json", None),
        ({"alignment": "always", "follow": "off"}, "worker", "worker"),
        ({"alignment": "plant"}, "cache", "prompt"),
        ({"alignment": "always", "gate_workers": True}, "sidecar", None),
    ],
)
async def test_what_is_not_predicted_says_why(options: dict[str, Any], read: str | None, call: str | None):
    seen = Seen()
    async with StandIn(block_size=32) as worker, StandIn(block_size=32) as sidecar:
        more = {**options, "gate_workers": [sidecar.url], "gate_model": "standin"} if options.get("gate_workers") else options
        async with Gate(settings(worker, **more), mounts=Two(), telemetry=[seen]) as gate:
            for messages in conversation(2):
                turn = Turn("s", messages, TOOLS)
                await gate.observe(turn, await agent_call(await gate.decide(turn), turn))
            assert [fact.unpredicted for fact in seen.reads] == [read] * 2
            assert [fact.unpredicted for fact in seen.calls] == [call] * 2
            assert all(bool(fact.survival) == (read is None) for fact in seen.reads)
            assert counted(gate, "read") == ({read: 4} if read else {})
            assert counted(gate, "call") == ({call: 2} if call else {})


async def test_facts_say_so_and_are_a_doubt_where_nothing_else_tells():
    """The model of a cache would be sure of blocks that a read it never heard of may have taken."""
    seen = Seen()
    async with StandIn(block_size=32) as worker:
        async with Gate(settings(worker, alignment="always"), mounts=Two(), calls=Cautious(), telemetry=[seen]) as gate:
            following = gate.means.watch.following
            assert following is not None
            assert following.tracker is not None
            index = following.tracker.index(worker.url)
            assert index is not None
            before = index.doubt
            await gate.decide(Turn("s", conversation(1)[0], TOOLS, [ProposedCall("c1", "bash", {"command": "make"})]))
            assert before is None
            assert [fact.unpredicted for fact in seen.reads] == [None, "facts"]
            assert "not predicted" in (index.doubt or "")

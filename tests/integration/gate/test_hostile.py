"""Turns that nobody means to send. If these fail, one of them costs an agent its run, or all verdicts of its turn."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.gate.agents import SYSTEM, TOOLS, Cautious, Two, settings
from warmgate.engines import Deadline
from warmgate.gate import Gate
from warmgate.prefix.divergence import PromptView
from warmgate.standin import StandIn
from warmgate.turn import ProposedCall, Turn

USER = {"role": "user", "content": "read"}


async def test_half_an_emoji_costs_nothing(caplog):
    """Tools cut their output at a number of bytes or units; such a session would have no mounts and no figures."""
    messages = [SYSTEM, {"role": "user", "content": "a\ud83db"}]
    async with StandIn() as worker, Gate(settings(worker), mounts=Two(), calls=Cautious()) as gate:
        for _ in range(2):
            turn = Turn("s", messages, TOOLS, [ProposedCall("p", "bash", {"command": "ls \ud83d"})])
            decision = await gate.decide(turn)
            assert [(r.state, r.outcome) for r in decision.reads] == [("aligned", "answered"), ("facts", "answered")]
            assert "failed" not in " ".join((decision.mounts.reason, *decision.reasons))
            assert (await gate.observe(turn, {"prompt_tokens": 5})).reported_tokens == 5
    assert "never retrieved" not in caplog.text


async def test_observing_waits_for_nothing_that_does_not_end():
    """The agent's reply would be held back for figures by a worker that is slow to count."""

    async def never() -> str | None:
        await asyncio.Event().wait()

    async with StandIn() as worker, Gate(settings(worker, deadline_ms=50), mounts=Two()) as gate:
        turn = Turn("s", [SYSTEM, USER], TOOLS)
        await gate.decide(turn)
        binding = await gate.pool.acquire("s")
        await gate.means.watch.open([binding.worker])
        remote = gate.means.remote(binding, "standin", Deadline(60))
        look = gate.means.watch.coming("d", "s", never, PromptView(turn.messages, TOOLS), None, "standin", remote)
        assert look is not None
        assert (await gate.observe(turn, {"prompt_tokens": 5})).reported_tokens == 5
        await asyncio.wait([look])
        assert look.cancelled()


@pytest.mark.parametrize("usage", [None, 5, "x", {"prompt_tokens": "many"}, {"usage": {"prompt_tokens": -1}}, object()])
async def test_observing_raises_nothing(usage):
    """A reply in an unknown shape would end the agent's run after the call was paid for."""
    loop = {"role": "user", "content": "x"}
    loop["self"] = loop
    arguments = {}
    arguments["self"] = arguments
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"arguments": arguments}}]}
    async with StandIn() as worker, Gate(settings(worker), mounts=Two()) as gate:
        for messages in ([loop], [USER, call], [{}], [{"role": 5, "content": 7}]):
            assert (await gate.observe(Turn("s", messages, TOOLS), usage)).ledger is not None

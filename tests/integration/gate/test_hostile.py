"""Turns that nobody means to send. If these fail, one of them costs an agent its run, or all verdicts of its turn."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.gate.agents import SYSTEM, TOOLS, Cautious, Two, settings
from warmgate.engines import Deadline
from warmgate.gate import Gate
from warmgate.policy import Judgement
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

    async with StandIn() as worker, Gate(settings(worker), mounts=Two()) as gate:
        turn = Turn("s", [SYSTEM, USER], TOOLS)
        await gate.decide(turn)
        binding = await gate.pool.acquire("s")
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


def _odd() -> dict[str, object]:
    loop: dict[str, object] = {}
    loop["self"] = loop
    deep: dict[str, object] = {}
    inner = deep
    for _ in range(5000):
        inner["a"] = {}
        inner = inner["a"]
    return {"holds itself": loop, "too deep": deep, "mixed keys": {1: 2, "a": 3}, "no key": {(1, 2): 3}}


class Lenient(Cautious):
    """Allows everything but what is said to be denied."""

    def judge(self, call, turn):
        return Judgement("deny" if call.name == "rm" else "allow", "as it likes")


@pytest.mark.parametrize("kind", _odd())
@pytest.mark.parametrize("policy", [None, Cautious(), Lenient()])
@pytest.mark.parametrize("on_ask", ["ask", "deny"])
async def test_arguments_that_are_no_json_are_asked_about_and_the_others_keep_their_verdicts(kind, policy, on_ask):
    """One odd call would lose the verdicts of all, or run without one that is tied to it."""
    odd = _odd()[kind]
    calls = [ProposedCall("odd", "bash", odd), ProposedCall("gone", "rm", odd), ProposedCall("plain", "bash", {"command": "ls"})]
    async with StandIn() as worker, Gate(settings(worker, on_ask=on_ask), calls=policy) as gate:
        verdicts = (await gate.decide(Turn("s", [USER], TOOLS, calls))).verdicts
        again = (await gate.decide(Turn("s", [USER], TOOLS, calls))).verdicts
    lenient = isinstance(policy, Lenient)
    assert verdicts["odd"].verdict == on_ask
    assert verdicts["gone"].verdict == ("deny" if lenient else on_ask)
    assert verdicts["plain"].verdict == ("allow" if lenient else on_ask)
    assert policy is None or any(words in verdicts["odd"].reason for words in ("cannot be tied to a verdict", "the call policy failed"))
    assert verdicts["odd"].binding != again["odd"].binding
    assert verdicts["plain"].binding == again["plain"].binding


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 990, 2000, 100_000])
async def test_arguments_as_text_may_be_nested_as_deeply_as_they_like(depth):
    """Text that parses and cannot be printed again would raise."""
    text = '{"a":' * depth + "1" + "}" * depth
    turn = Turn("s", [USER], TOOLS, [ProposedCall("p", "bash", text), ProposedCall("q", "bash", {"command": "ls"})])
    async with StandIn() as worker, Gate(settings(worker), calls=Lenient()) as gate:
        decisions = [await gate.decide(turn) for _ in range(2)]
    assert {v.verdict for v in decisions[0].verdicts.values()} == {"allow"}
    assert decisions[0].verdicts["p"].binding == decisions[1].verdicts["p"].binding


async def test_messages_that_hold_themselves_are_decided_on():
    """An application's own bookkeeping inside a message would end its run."""
    loop = {"role": "user", "content": "x"}
    loop["self"] = loop
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "x"}}]}
    call["tool_calls"][0]["function"]["arguments"] = _odd()["holds itself"]
    async with StandIn() as worker, Gate(settings(worker), mounts=Two(), calls=Cautious()) as gate:
        for number, message in enumerate((loop, call)):
            decision = await gate.decide(Turn(f"s{number}", [SYSTEM, USER, message], TOOLS, [ProposedCall("p", "bash", {})]))
            assert [r.outcome for r in decision.reads] == ["answered", "answered"]
            assert "failed" not in decision.mounts.reason

"""Checkpoints that the first version wrote go on under this one. If these fail, an upgrade loses what waits for a person, or what one refused.

The files were written by ``python -m tests.integration.adapters.test_stored_checkpoints`` and are never written anew: each is a SQLite database
of LangGraph's with two threads. ``s`` stopped at its question about ``make``, beside a denied ``rm``; in ``refused`` a person said no to ``make``.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from tests.integration.adapters.test_langchain_conformance import LangChainDriver
from tests.integration.adapters.test_langgraph_conformance import LangGraphDriver
from warmgate_adapters.conformance import Answer
from warmgate_adapters.conformance.rig import Sets, Words, calls, rig, says

STORED = Path(__file__).parents[2] / "data" / "gate_state"
DRIVERS = {"langgraph": LangGraphDriver(), "langchain": LangChainDriver()}
RM, MAKE = (("shell", {"command": command}) for command in ("rm -r x", "make"))
MOUNTS = {1: ("read", "shell")}


@pytest.fixture(params=sorted(DRIVERS))
def stored(request, tmp_path):
    """A driver, and a folder in which its stored threads go on."""
    shutil.copy(STORED / f"{request.param}_v1.sqlite", tmp_path / "checkpoints.sqlite")
    return DRIVERS[request.param], tmp_path


async def test_an_approved_call_runs_once_and_nothing_is_decided_again(stored):
    driver, store = stored
    policy = Words()
    async with rig(driver, store, [calls(MAKE, RM), says("built")], policy=policy, mounts=Sets(MOUNTS)) as world:
        told = await (await world.open("s")).answer([Answer("approve")])
        assert world.ran == [("shell", "make")]
        assert "it removes files" in told.results[1]
        assert told.final == "built"
        assert policy.judged == []
        assert world.gate.judgings() == 0
        assert [(approved, tool) for *_, approved, tool in world.gate.words] == [(True, "shell")]
        assert [tool["function"]["name"] for tool in world.chats("s")[-1]["tools"]] == ["read", "shell"]


async def test_a_rejection_is_final_though_the_policy_would_now_allow(stored):
    driver, store = stored
    chat = [calls(MAKE, RM), calls(MAKE), says("fine")]
    async with rig(driver, store, chat, policy=Words(lenient=True), mounts=Sets(MOUNTS)) as world:
        told = await (await world.open("s")).answer([Answer("reject")])
        assert world.ran == []
        assert ["a person refused" in result for result in told.results] == [True, False, True]
        assert told.final == "fine"


async def test_a_refusal_of_before_the_upgrade_still_holds(stored):
    """In a later turn of the user the call is put to a person, whatever the policy says."""
    driver, store = stored
    chat = [calls(MAKE), says("fine"), calls(MAKE), says("built")]
    async with rig(driver, store, chat, policy=Words(lenient=True), mounts=Sets(MOUNTS)) as world:
        agent = await world.open("refused")
        told = await agent.say("build it after all")
        assert told.asked == [MAKE]
        assert world.ran == []
        await agent.answer([Answer("approve")])
        assert world.ran == [("shell", "make")]


async def write(name: str, to: Path) -> None:
    """What the fixtures hold."""
    with tempfile.TemporaryDirectory() as folder:
        sessions = {"s": [calls(MAKE, RM)], "refused": [calls(MAKE), says("fine")]}
        async with rig(DRIVERS[name], Path(folder), [], sessions=sessions, mounts=Sets(MOUNTS)) as world:
            await (await world.open("s")).say("build")
            agent = await world.open("refused")
            await agent.say("build")
            await agent.answer([Answer("reject")])
        with sqlite3.connect(Path(folder) / "checkpoints.sqlite") as source:
            source.execute("VACUUM INTO ?", (str(to),))


if __name__ == "__main__":
    for driver in DRIVERS:
        asyncio.run(write(driver, STORED / f"{driver}_v1.sqlite"))

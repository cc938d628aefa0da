"""The three adapters on real vLLM workers. If these fail, what the suite of adapters shows is true of stand-ins alone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.integration.adapters.openai_agents.test_conformance import AgentsDriver
from tests.integration.adapters.test_langchain_conformance import LangChainDriver
from tests.integration.adapters.test_langgraph_conformance import LangGraphDriver
from warmgate.settings import Settings
from warmgate_adapters.conformance import Agent
from warmgate_adapters.conformance.rig import Sets, Watched, Words

DRIVERS = {"langgraph": LangGraphDriver, "langchain": LangChainDriver, "openai_agents": AgentsDriver}
LONG = "Read the file before you change it, say why you change it, and run the tests afterwards. " * 20


def read(path: str) -> str:
    """Read a file."""
    return f"contents of {path}"


def shell(command: str) -> str:
    """Run a command."""
    return f"output of {command}"


@asynccontextmanager
async def world(driver, store, *servers, salt, **more):
    """Agents of an adapter on these workers: `await made(session)` opens one."""
    settings = Settings(
        workers=[server.url for server in servers], model="qwen3", deadline_ms=60_000, label_mass_floor=0, cache_salt=salt, **more
    )
    gate = Watched(settings, mounts=Sets({1: ("read", "shell")}), calls=Words())
    opened = []

    async def made(session):
        opened.append(await DRIVERS[driver]().open(Agent(gate, [read, shell], session, store, reply_tokens=6)))
        return opened[-1]

    try:
        yield gate, made
    finally:
        for one in opened:
            await one.close()
        await gate.aclose()


@pytest.mark.parametrize("driver", sorted(DRIVERS))
async def test_a_decision_computes_what_the_agents_call_finds(vllm_qwen3, tmp_path, driver):
    """Sticky, aligned and token for token the agent's prompt: else a gate costs the second prefill that it is there to save."""
    async with world(driver, tmp_path, vllm_qwen3, salt=f"adapter-{driver}") as (gate, made):
        agent = await made("s")
        for number in range(3):
            await agent.say(f"Step {number}. {LONG}")
        reads = [read for _, decision in gate.decisions for read in decision.reads]
        assert [(read.state, read.outcome, read.worker) for read in reads] == [("aligned", "answered", vllm_qwen3.url)] * 3
        seen = [observation for _, observation in gate.observations]
        assert len(seen) == 3
        for one in seen:
            assert one.predicted_tokens == one.reported_tokens
            assert one.drift is None
            assert one.reported_tokens - one.cached_tokens <= 32 + 8
            assert (one.ledger.survived, one.ledger.survived_basis) == (one.cached_tokens, "measured")
            assert one.ledger.survived == one.ledger.reusable


@pytest.mark.engine_all
@pytest.mark.parametrize("driver", sorted(DRIVERS))
async def test_agents_outlive_a_killed_worker(vllm_qwen3, vllm_server, tmp_path, driver):
    """Its sessions go on elsewhere and pay once, the others keep worker and prefix, and no turn is lost."""
    other = vllm_server(fresh=True, extra=("--seed", "1"))
    async with world(driver, tmp_path, vllm_qwen3, other, salt=f"killed-{driver}") as (gate, made):
        names = [f"s{number}" for number in range(6)]
        agents = {name: await made(name) for name in names}
        for name in names:
            await agents[name].say(f"I am {name}. {LONG}")
        before = {name: await gate.base_url(name) for name in names}
        assert set(before.values()) == {vllm_qwen3.url, other.url}
        await asyncio.to_thread(other.stop)
        gate.observations.clear()
        for name in names:
            told = await agents[name].say(f"{name} goes on. {LONG}")
            assert told.final is not None
        assert {await gate.base_url(name) for name in names} == {vllm_qwen3.url}
        for name, seen in gate.observations:
            assert seen.reported_tokens - seen.cached_tokens <= 32 + 8, "its own read computed it, wherever it went"
            assert before[name] in (vllm_qwen3.url, other.url)


@pytest.mark.engine_all
@pytest.mark.parametrize("driver", sorted(DRIVERS))
async def test_agents_outlive_a_killed_decision_model(vllm_qwen3, vllm_server, tmp_path, driver):
    """A decision model on workers of its own dies: mounts keep, and agents go on."""
    sidecar = vllm_server(fresh=True, extra=("--seed", "1"))
    more = {"gate_workers": (sidecar.url,), "gate_model": "qwen3"}
    async with world(driver, tmp_path, vllm_qwen3, salt=f"sidecar-{driver}", **more) as (gate, made):
        agent = await made("s")
        await agent.say(f"Step 0. {LONG}")
        assert [read.outcome for _, decision in gate.decisions for read in decision.reads] == ["answered"]
        await asyncio.to_thread(sidecar.stop)
        told = await agent.say(f"Step 1. {LONG}")
        assert told.final is not None
        _, latest = gate.decisions[-1] if len(gate.decisions) > 1 else (None, None)
        if latest is not None:
            assert {read.outcome for read in latest.reads} <= {"no_answer"}
            assert latest.mounts.tools == ("read", "shell")
        assert [seen.reported_tokens is not None for _, seen in gate.observations] == [True, True]

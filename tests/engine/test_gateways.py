"""The real gateways before two workers. If these fail, gateway mode sends a session's decision and its agent call to different caches."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise

import httpx
import pytest

from tests.engine.rig_gateways.gateway import RunningGateway
from tests.engine.rig_gateways.install import install
from warmgate.engines import AskRequest, Deadline, SystemOne
from warmgate.questions import Noul
from warmgate.standin import StandIn
from warmgate.workers import AsyncStickyTransport, WorkerPool

GATEWAYS = ["vllm-router", "smg"]
SESSIONS = [f"conversation-{number}" for number in range(100)]
NOWHERE = "http://session.invalid"


@pytest.fixture(scope="session", autouse=True)
def _gateways_installed() -> None:
    install()


async def call_both(pool: WorkerPool, client: httpx.AsyncClient, session: str, model: str, after_decision=None) -> list[httpx.Response]:
    """The decision and then the agent's own call of one session, as a gate and its agent send them."""
    headers = {"X-Session-ID": session}
    question = {"q": {"type": "noul", "instructions": "Is a shell needed?"}}
    decision = await client.post(f"{NOWHERE}/v1/systemone", json={"model": model, "state": session, "questions": question}, headers=headers)
    if after_decision is not None:
        after_decision()
    chat = {"model": model, "messages": [{"role": "user", "content": f"{session} hello"}], "max_tokens": 1}
    answer = await client.post(f"{NOWHERE}/v1/chat/completions", json=chat, headers=headers)
    assert (decision.status_code, answer.status_code) == (200, 200), (decision.text, answer.text)
    return [decision, answer]


def reached(workers: tuple[StandIn, StandIn]) -> dict[str, list[str]]:
    """Session → the worker of its decision and that of its chat call, from what the workers themselves saw."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for worker in workers:
        for request in worker.requests:
            if request.path == "/v1/systemone":
                found[request.json()["state"]]["decision"] = worker.url
            elif request.path == "/v1/chat/completions":
                found[request.json()["messages"][0]["content"].split()[0]]["chat"] = worker.url
    return {session: [calls.get("decision", "none"), calls.get("chat", "none")] for session, calls in found.items()}


@pytest.mark.parametrize("name", GATEWAYS)
async def test_a_sessions_calls_meet_on_one_of_two_stand_ins(name: str):
    with StandIn() as one, StandIn() as other, RunningGateway(name, [one.url, other.url]) as gateway:
        async with WorkerPool([gateway.url], gateway=name) as pool, httpx.AsyncClient(transport=AsyncStickyTransport(pool)) as client:
            assert pool.status()[0].state == "ready", "the gateway's own /health is understood"
            for session in SESSIONS:
                await call_both(pool, client, session, "standin")
            assert pool.counts.total("gateway_moved") == 0
            where = reached((one, other))
            for worker in (one, other):
                worker.requests.clear()
            for session in SESSIONS[:10]:  # the gate's own client sends the binding's headers, and must come to the same worker
                binding = await pool.acquire(session, "gate_workers")
                async with SystemOne(binding.worker, model="standin", headers=binding.headers) as engine:
                    question = Noul(instructions="Is a shell needed?")
                    await engine.ask(AskRequest(questions={"q": question}, state=session), deadline=Deadline(10))
            assert {s: calls[0] for s, calls in reached((one, other)).items()} == {s: where[s][0] for s in SESSIONS[:10]}
    met = sum(decision == chat for decision, chat in where.values())
    assert (len(where), met) == (len(SESSIONS), len(SESSIONS))
    shares = Counter(decision for decision, _ in where.values())
    assert len(shares) == 2
    assert min(shares.values()) >= 15, shares


@pytest.mark.engine_all
@pytest.mark.parametrize("name", GATEWAYS)
async def test_a_sessions_calls_meet_on_one_of_two_real_workers(name: str, vllm_qwen3, vllm_server):
    one = vllm_qwen3
    other = vllm_server(extra=("--seed", "1"))
    workers = {one.url: one, other.url: other}

    def served() -> dict[str, float]:
        return {url: worker.metric("vllm:prompt_tokens_total") for url, worker in workers.items()}

    met = 0
    shares: Counter[str] = Counter()
    with RunningGateway(name, list(workers)) as gateway:
        async with WorkerPool([gateway.url], gateway=name) as pool, httpx.AsyncClient(transport=AsyncStickyTransport(pool)) as client:
            for session in SESSIONS:
                steps = [await asyncio.to_thread(served)]
                await call_both(pool, client, session, one.model, lambda steps=steps: steps.append(served()))
                steps.append(await asyncio.to_thread(served))
                decision, chat = ([url for url in workers if b[url] > a[url]] for a, b in pairwise(steps))
                met += len(decision) == 1 and decision == chat
                shares.update(chat)
            assert pool.counts.total("gateway_moved") == 0
    assert met == len(SESSIONS), f"{met} of {len(SESSIONS)}"
    assert min(shares.values()) >= 15, shares
    assert len(shares) == 2

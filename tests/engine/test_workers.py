"""Sticky workers before a real vLLM. If these fail, what the pool believes of workers is true of stand-ins alone."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from warmgate.workers import AsyncStickyTransport, Rule, WorkerPool

QUICK = Rule(interval_s=0.3, restart_interval_s=0.3)


async def test_probes_and_start_time(vllm_qwen3):
    """vLLM's /health and the start time on its metrics page are what restarts are noticed by."""
    async with WorkerPool([vllm_qwen3.url], health=QUICK) as pool:
        (status,) = pool.status()
        assert status.state == "ready"
        assert status.started_at is not None
        assert 0 < time.time() - status.started_at < 86400


@pytest.mark.engine_all
async def test_a_killed_worker_loses_its_sessions_and_does_not_call_them_back(vllm_qwen3, vllm_server):
    """Every engine process of one worker killed: its sessions' next calls are answered elsewhere, and stay there when it is up again."""
    other = vllm_server(fresh=True, extra=("--seed", "1"))
    async with WorkerPool([vllm_qwen3.url, other.url], health=QUICK) as pool:
        names = [f"s{number}" for number in range(12)]
        before = {name: await pool.base_url(name) for name in names}
        assert set(before.values()) == {vllm_qwen3.url, other.url}
        first_start = {status.url: status.started_at for status in pool.status()}

        async with httpx.AsyncClient(transport=AsyncStickyTransport(pool), timeout=60) as client:

            async def call(name: str) -> int:
                body = {"model": vllm_qwen3.model, "messages": [{"role": "user", "content": f"{name} hello " * 50}], "max_tokens": 1}
                reply = await client.post("http://session.invalid/v1/chat/completions", json=body, headers={"X-Session-ID": name})
                reply.raise_for_status()
                return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

            await asyncio.gather(*(call(name) for name in names))
            await asyncio.to_thread(other.stop)
            cached = dict(zip(names, await asyncio.gather(*(call(name) for name in names)), strict=True))
            for name, worker in before.items():
                binding = await pool.acquire(name)
                assert (binding.worker, binding.moves) == (vllm_qwen3.url, int(worker == other.url))
                assert (cached[name] > 0) == (worker == vllm_qwen3.url), "who stayed keeps its prefix, who moved pays once"
            await asyncio.to_thread(other.start)
            assert await pool.ready(60, least=2)
            assert all([await call(name) > 0 for name in names])
            assert {await pool.base_url(name) for name in names} == {vllm_qwen3.url}
            for _ in range(100):
                if pool.counts.total("worker_restart", worker=other.url):
                    break
                await asyncio.sleep(0.1)
            assert pool.counts.total("worker_restart", worker=other.url) == 1
            assert {s.url: s.started_at for s in pool.status()}[other.url] > first_start[other.url]

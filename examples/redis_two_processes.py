"""Two gate processes share Redis: what one decided, the other's call finds, on the same worker.

    python examples/redis_two_processes.py --redis redis://127.0.0.1:6379/0                      # two stand-in workers
    python examples/redis_two_processes.py --redis redis://127.0.0.1:6379/0 --model qwen3 http://10.0.0.1:8000 http://10.0.0.2:8000

Needs ``pip install 'warmgate[redis]'`` and a Redis. The first process decides for each session; the second, which has never seen them,
makes the agent's calls.
"""

# ruff: noqa: T201 -- an example prints
from __future__ import annotations

import argparse
import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import httpx

from warmgate import Choice, Gate, Settings, Turn
from warmgate.decision import Mounts
from warmgate.standin import StandIn

SESSIONS = [f"conversation-{number}" for number in range(6)]
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} a file", "parameters": {"type": "object", "properties": {}}}}
    for name in ("read", "write")
]


class OneQuestion:
    """A mount policy that asks one question before each user turn and keeps all tools."""

    name = "one-question"
    version = "1"

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> dict:
        """What the next step is about."""
        return {"next": Choice(instructions="What is the next step about?", criteria={"reading": None, "writing": None})}

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: dict, *, widen: bool) -> Mounts:
        """All tools, whatever the answer: this example is about where requests go."""
        return Mounts(tools=("read", "write"), strategy="all", changed=False, reason="two tools")


def turn_of(session: str) -> Turn:
    """The one turn of a session, the same in every process."""
    rules = f"You mend the code of {session}. " + "Keep to the style of the file. " * 40
    return Turn(session, [{"role": "system", "content": rules}, {"role": "user", "content": "Why does the test fail?"}], TOOLS)


async def decide(settings: Settings) -> dict[str, str]:
    """Decide for each session. Returns the worker that each was asked on."""
    async with Gate(settings, mounts=OneQuestion()) as gate:
        return {session: (await gate.decide(turn_of(session))).worker for session in SESSIONS}


async def call(settings: Settings) -> dict[str, tuple[str, int, int]]:
    """Make the agent's call of each session: its worker, its prompt's tokens, and how many of them were cached."""
    found = {}
    async with Gate(settings) as gate, httpx.AsyncClient(timeout=120) as client:
        for session in SESSIONS:
            turn = turn_of(session)
            worker = await gate.base_url(session)
            body = {"model": settings.model, "messages": turn.messages, "tools": turn.tools, "max_tokens": 8}
            reply = await client.post(f"{worker}/v1/chat/completions", json=body, headers={"X-Session-ID": session})
            usage = reply.raise_for_status().json()["usage"]
            found[session] = (worker, usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    return found


def decide_in_process(settings: Settings) -> dict[str, str]:
    """For a process of its own."""
    return asyncio.run(decide(settings))


def call_in_process(settings: Settings) -> dict[str, tuple[str, int, int]]:
    """For a process of its own."""
    return asyncio.run(call(settings))


def main() -> None:
    """Run both processes, one after the other, and print what became of each session."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workers", nargs="*", metavar="URL", help="workers; two stand-ins without any")
    parser.add_argument("--redis", required=True, metavar="URL")
    parser.add_argument("--model", default="standin")
    arguments = parser.parse_args()

    with ExitStack() as stack:
        urls = arguments.workers or [stack.enter_context(StandIn()).url for _ in range(2)]
        settings = Settings(workers=urls, model=arguments.model, affinity=arguments.redis, deadline_ms=30_000)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn) as first:
            decided = first.submit(decide_in_process, settings).result()
        with ProcessPoolExecutor(1, spawn) as second:
            called = second.submit(call_in_process, settings).result()

    for session, (worker, prompt, cached) in called.items():
        print(f"{session}  decided on {decided[session]}  called on {worker}  {cached} of {prompt} prompt tokens cached")
    met = sum(decided[session] == worker for session, (worker, _, _) in called.items())
    print(f"{met} of {len(called)} sessions met their decision's worker")


if __name__ == "__main__":
    main()

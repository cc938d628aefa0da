"""A gate and its agent behind an engine gateway that hashes the session's header: decision and call meet on one worker.

vllm-router --policy consistent_hash --port 8080 --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000
python examples/gateway.py http://127.0.0.1:8080 --gateway vllm-router --model qwen3

smg launch --policy consistent_hashing --port 8080 --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000
python examples/gateway.py http://127.0.0.1:8080 --gateway smg --model qwen3
"""

# ruff: noqa: T201 -- an example prints
from __future__ import annotations

import argparse
import asyncio

import httpx

from warmgate import Choice, Gate, Settings, Turn
from warmgate.decision import Mounts

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


async def main() -> None:
    """Six sessions of two turns; each turn is decided, then called."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", metavar="URL", help="the gateway")
    parser.add_argument("--gateway", default="vllm-router", choices=["vllm-router", "smg"])
    parser.add_argument("--model", default="standin")
    parser.add_argument("--chat-template", metavar="PATH", help="the model's; without it the gate asks the workers")
    arguments = parser.parse_args()

    settings = Settings(
        workers=[arguments.url],
        model=arguments.model,
        gateway=arguments.gateway,
        chat_template=arguments.chat_template,
        deadline_ms=30_000,
    )
    async with Gate(settings, mounts=OneQuestion()) as gate, httpx.AsyncClient(timeout=120) as client:
        for number in range(6):
            session = f"conversation-{number}"
            rules = f"You mend the code of {session}. " + "Keep to the style of the file. " * 40
            messages: list[dict] = [{"role": "system", "content": rules}]
            for said in ("Why does the test fail?", "Then mend it."):
                messages.append({"role": "user", "content": said})
                turn = Turn(session, list(messages), TOOLS)
                decision = await gate.decide(turn)
                body = {"model": arguments.model, "messages": messages, "tools": TOOLS, "max_tokens": 8}
                reply = await client.post(f"{decision.worker}/v1/chat/completions", json=body, headers=decision.headers)
                usage = reply.raise_for_status().json()["usage"]
                seen = await gate.observe(turn, usage)
                messages.append({"role": "assistant", "content": reply.json()["choices"][0]["message"]["content"] or ""})
                states = ", ".join(read.state for read in decision.reads)
                print(f"{session}  {states} decision  {seen.cached_tokens} of {seen.reported_tokens} prompt tokens cached")


if __name__ == "__main__":
    asyncio.run(main())

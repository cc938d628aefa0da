"""An agent and its policy for the gate's tests on real engines, in our own words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from warmgate.answers import Answer
from warmgate.decision import Decision, Mounts
from warmgate.questions import Choice, Noul, Question
from warmgate.turn import Turn

WORDS = "Read the file before you change it, say why you change it, and run the tests afterwards. "
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": n,
            "description": f"to {n} a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for n in ("read", "write", "run")
]


class Three:
    """Three questions at every call; the tools stay as they are."""

    name, version = "three", "1"

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        del turn, mounted
        return {
            "set": Choice(instructions="Which toolset does the next step need?", criteria={"files": "read and write", "shell": "run"}),
            "shell": Noul(instructions="Does the next step need a shell?"),
            "safe": Noul(instructions="Is the next step harmless?"),
        }

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        del turn, mounted, answers, widen
        return Mounts(tools=("read", "write", "run"), strategy="freeze", changed=False, reason="frozen")

    def wants_again(self, turn: Turn, mounted: tuple[str, ...]) -> bool:
        del turn, mounted
        return True


def conversation(turns: int, *, long: int = 60) -> list[list[dict[str, Any]]]:
    """The messages of each call: user turns, tool calls without content and with a fraction, tool results."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": WORDS * long}]
    made: list[list[dict[str, Any]]] = []
    for n in range(turns):
        if n % 2 == 0:
            messages = [*messages, {"role": "user", "content": f"Step {n}: mend the parser. " * 8}]
        else:
            arguments = json.dumps({"path": "a.py", "share": 0.5}).replace("0.5", "0.50")
            call = {"id": f"call{n:05}", "type": "function", "function": {"name": "read", "arguments": arguments}}
            result = {"role": "tool", "tool_call_id": call["id"], "content": "text of the file\n" * 20}
            messages = [*messages, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
        made.append(messages)
        if n % 2:
            messages = [*messages, {"role": "assistant", "content": "Done."}]
    return made


async def call(
    client: httpx.AsyncClient, decision: Decision, turn: Turn, model: str, salt: str | None, *, tools: Sequence[Mapping[str, Any]] = TOOLS
) -> dict[str, Any]:
    """The agent's call of a turn; its usage."""
    body = {"model": model, "messages": turn.messages, "tools": tools, "max_tokens": 4, "cache_salt": salt}
    reply = await client.post(f"{decision.worker}/v1/chat/completions", json=body, headers=decision.headers)
    usage: dict[str, Any] = reply.raise_for_status().json()["usage"]
    return usage


async def computed(client: httpx.AsyncClient, url: str) -> float:
    """Prompt tokens that the engine has computed so far."""
    text = (await client.get(f"{url}/metrics")).text
    rows = [line for line in text.splitlines() if line.startswith("vllm:prompt_tokens_by_source_total") and "local_compute" in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in rows)

"""An agent and a policy for the gate's tests, in our own words."""

from __future__ import annotations

from typing import Any

import httpx

from warmgate.decision import Decision, Mounts
from warmgate.gate import Gate
from warmgate.policy import Judgement
from warmgate.questions import Choice, Noul
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate.turn import Turn

NAMES = ("read", "write", "web")
TOOLS = [
    {"type": "function", "function": {"name": n, "description": f"to {n}", "parameters": {"type": "object", "properties": {}}}}
    for n in NAMES
]
SYSTEM = {"role": "system", "content": "You mend code, and say what you did. " * 40}


class Two:
    """Two questions at every call; the tools stay as they are."""

    name, version = "two", "1"

    def questions(self, turn, mounted):
        return {"web": Noul(instructions="Is the web needed?"), "set": Choice(instructions="Which?", criteria={"files": None, "all": None})}

    def settle(self, turn, mounted, answers, *, widen):
        self.answers = answers
        return Mounts(tools=NAMES, strategy="freeze", changed=False, reason="all")

    def wants_again(self, turn, mounted):
        return True


class Cautious:
    """Every call is a grey case."""

    name, version = "cautious", "1"

    def judge(self, call, turn):
        return Judgement("ask", "unknown program", None, Noul(instructions="Is this harmless?"), {"argv": [str(call.arguments)]})

    def settle(self, call, judgement, answer):
        return judgement


def settings(*workers: StandIn | str, **more: Any) -> Settings:
    urls = [w if isinstance(w, str) else w.url for w in workers]
    return Settings(workers=urls, model="standin", **{"deadline_ms": 30_000, **more})


async def agent_call(decision: Decision, turn: Turn, *, tools: Any = TOOLS, salt: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "standin", "messages": turn.messages, "tools": tools, "max_tokens": 4}
    if turn.template_kwargs:
        body["chat_template_kwargs"] = turn.template_kwargs
    if salt is not None:
        body["cache_salt"] = salt
    async with httpx.AsyncClient() as client:
        reply = await client.post(f"{decision.worker}/v1/chat/completions", json=body, headers=decision.headers)
        return reply.raise_for_status().json()


def conversation(turns: int, session: str = "s") -> list[list[dict[str, Any]]]:
    """The messages of each call: user turns, tool calls with fractions and without content, results."""
    messages: list[dict[str, Any]] = [SYSTEM]
    made = []
    for n in range(turns):
        if n % 2 == 0:
            messages = [*messages, {"role": "user", "content": f"{session}: mend file {n}, please. " * 6}]
        else:
            function = {"name": "read", "arguments": '{"path": "a.py", "share": 0.50}'}
            call = {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}]}
            messages = [*messages, call, {"role": "tool", "tool_call_id": f"c{n}", "content": "text\n" * 20}]
        made.append(messages)
        if n % 2:
            messages = [*messages, {"role": "assistant", "content": "Done."}]
    return made


async def run(gate: Gate, turns: int, session: str = "s", **call: Any) -> list[tuple[Decision, Any, int, int]]:
    """Decisions, what observing the calls showed, and the calls' prompt and cached tokens."""
    found = []
    for messages in conversation(turns, session):
        turn = Turn(session, messages, TOOLS)
        decision = await gate.decide(turn)
        usage = (await agent_call(decision, turn, **call))["usage"]
        seen = await gate.observe(turn, usage)
        found.append((decision, seen, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
    return found

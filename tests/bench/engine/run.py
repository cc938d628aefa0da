"""One scenario: sessions that take turns, a way to ask, a way to find a worker; counted from its first request to its last."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal

from tests.bench.engine.lab import Held, Lab, Spent
from tests.bench.engine.talk import Message, Talk
from warmgate.alignment.plan import Planner
from warmgate.alignment.template import ChatTemplate
from warmgate.gate import Gate
from warmgate.policy import MountPolicy
from warmgate.turn import Turn
from warmgate.workers import WorkerPool

How = Literal["none", "separate", "json", "aligned", "unplanted", "planted"]
"""``aligned`` is the gate's own doing. ``unplanted`` and ``planted`` send the requests of an aligned decision by hand, without and with a
one-token read of the shared prefix before it."""
FOUR: tuple[How, ...] = ("none", "separate", "json", "aligned")
Route = Literal["sticky", "random"]


async def run(
    lab: Lab,
    how: How,
    talks: Sequence[Talk],
    *,
    salt: str,
    route: Route = "sticky",
    mounts: MountPolicy | None = None,
    urls: Sequence[str] | None = None,
    any_state: bool = False,
) -> Spent:
    """Let all sessions take their turns, one call at a time, so that every figure is exact.

    Args:
        lab: The workers.
        how: How the gate asks before each call.
        talks: The sessions.
        salt: Cache namespace of this scenario: it starts cold.
        route: ``sticky``, or ``random``: every request to a worker drawn anew.
        mounts: What picks the tools of the agent's calls, where they are not to be all.
        urls: Workers of the agent; ``separate`` asks on the last worker of the lab.
        any_state: Let the gate do as it sees fit, instead of demanding one aligned read a turn.
    """
    urls = list(urls or lab.urls)
    draw = random.Random(7)
    spent = Spent()
    agents, all_ = Held(lab.block), Held(lab.block)  # what agent calls left, and what decisions left besides
    own = 0 if how == "none" else await lab.own()
    planner = Planner(ChatTemplate.from_file(lab.folder / "chat_template.jinja"))
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(WorkerPool(urls))
        gates: dict[str, Gate] = {}
        if how == "aligned":  # a gate for each worker where requests go anywhere, one for all where sessions stick
            for url in urls if route == "random" else [""]:
                own_urls = [url] if url else urls
                gates[url] = await stack.enter_async_context(lab.gate(*own_urls, mounts=mounts))
                await settle(gates[url], own_urls)
        offered = {talk.name: talk.tools for talk in talks}
        before = await lab.computed()
        for turn in range(max(talk.turns for talk in talks)):
            for talk in talks:
                if turn >= talk.turns:
                    continue
                messages, tools, asked_on = talk.at(turn), offered[talk.name], None
                began = lab.cpu()
                worker = await pool.base_url(talk.name) if route == "sticky" else draw.choice(urls)
                if how == "json":
                    await lab.json(worker, messages, salt)
                elif how == "separate":
                    await lab.separate(lab.urls[-1], messages, salt)
                elif how in ("unplanted", "planted"):
                    if how == "planted":
                        await lab.plant(worker, await lab.ids(messages, tools, whole=False), salt)
                    state = planner.plan(talk.name, parsed(messages), tools)
                    if state.kind != "aligned":
                        raise AssertionError(f"not aligned: {state.reason}")
                    await lab.aligned(worker, state, salt)
                elif how == "aligned":
                    gate = gates[worker if route == "random" else ""]
                    decision = await gate.decide(Turn(talk.name, messages, talk.tools, cache_salt=salt, user_turn=turn))
                    spent.plants += sum(read.engine == "plant" for read in decision.reads)
                    spent.answered += any(read.outcome == "answered" for read in decision.reads if read.questions)
                    spent.said += [reason for reason in decision.reasons if reason not in spent.said]
                    if not any_state and [(read.state, read.outcome) for read in decision.reads] != [("aligned", "answered")]:
                        raise AssertionError(f"not one aligned answer: {decision.reads}, {decision.reasons}")
                    worker = decision.worker
                    if [read.state for read in decision.reads] == ["aligned"]:
                        asked_on = tools
                    names = decision.mounts.offered or decision.mounts.tools
                    tools = offered[talk.name] = [tool for tool in talk.tools if tool["function"]["name"] in names]
                if route == "random":
                    worker = draw.choice(urls)
                call = await lab.chat(worker, messages, tools, salt)
                spent.seconds += lab.cpu() - began
                prompt = await lab.ids(messages, tools)
                spent.floor += len(prompt) - agents.reusable(prompt) + own
                if asked_on is not None:
                    asked = await lab.ids(messages, asked_on, whole=False)
                    # the decision's prompt opens another turn behind these, so it has that turn's first control token in common as well
                    all_.add(prompt[: len(asked) + 1] if prompt[: len(asked)] == asked else asked)
                reusable = all_.reusable(prompt)
                if call.prompt != len(prompt):
                    raise AssertionError(f"the engine counts {call.prompt} prompt tokens, /tokenize {len(prompt)}")
                agents.add(prompt)
                all_.add(prompt)
                spent.calls.append(call)
                if len(spent.calls) == 1:
                    spent.first_ratio = (await lab.computed() - before) / spent.floor
                spent.prompt += call.prompt
                spent.cached += call.cached
                spent.reusable += reusable
                spent.surplus += max(0, call.cached - reusable)
        spent.computed = await lab.computed() - before
        spent.said += [f"{found.hits}: {found.why}" for gate in gates.values() for found in gate.means.findings.all().values()]
    return spent


def parsed(messages: list[Message]) -> list[Message]:
    """The messages as vLLM hands them to the template: arguments of calls as objects."""
    out: list[Message] = json.loads(json.dumps(messages))
    for message in out:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return out


async def settle(gate: Gate, urls: Sequence[str]) -> None:
    """Decisions under another salt until the gate knows each worker: what it finds out once is not a turn's cost."""
    tool: Message = {
        "type": "function",
        "function": {"name": "settle", "description": "", "parameters": {"type": "object", "properties": {}}},
    }
    for number in range(200):
        await gate.decide(Turn(f"settle {number}", [{"role": "user", "content": "Settle."}], [tool], cache_salt="settle", user_turn=0))
        known = {worker for worker, _ in gate.means.findings.all()}
        if known >= set(urls):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the gate does not know what a prefix is worth on all of {list(urls)}, only on {known}")

"""What one more turn costs the gate itself, at ten times the conversation: it must grow with the new message, not with what came before.

CPU of this process, sending left out: the engine here answers at once and encodes nothing. Encoding the body is measured apart.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.timing import Lines
from warmgate.alignment.template import ChatTemplate
from warmgate.answers import Answers, Source, Usage, calibrated
from warmgate.decision import Mounts
from warmgate.engines import AskRequest, Chain, Deadline
from warmgate.engines.systemone import encode_request
from warmgate.gate import Gate
from warmgate.questions import Noul, Question
from warmgate.settings import Settings
from warmgate.turn import Turn

TEMPLATE = Path(__file__).parents[1] / "engine/rig/configs/qwen3.jinja"
WORKER = "http://10.0.0.1:8000"
CHARACTERS = 4.35
"""Of a token of the text below, counted once with the tokenizer of the engine tests."""
SIZES = (12_000, 120_000)
MOST_RATIO, MOST_MS = 1.5, 1.0
TURNS = 40
QUESTIONS: dict[str, Question] = {name: Noul(instructions=f"Is {name} needed?") for name in ("a shell", "the web", "a person")}

Message = dict[str, Any]


class Three:
    """Asks the same three questions every turn."""

    name, version = "three", "1"

    def questions(self, turn: Turn, mounted: object) -> dict[str, Question]:
        del turn, mounted
        return QUESTIONS

    def settle(self, turn: Turn, mounted: object, answers: object, *, widen: bool) -> Mounts:
        del turn, mounted, answers, widen
        return Mounts(tools=("read",), strategy="freeze", changed=False, reason="frozen")


class AtOnce:
    """An engine that answers without a wire. Like a wire it keeps no request, but for the last one's body."""

    name, worker = "systemone", WORKER

    def __init__(self) -> None:
        self.last: AskRequest | None = None
        self.keeps = False

    async def ask(self, request: AskRequest, *, deadline: Deadline) -> Answers:
        del deadline
        if self.keeps:
            self.last = request
        source = Source(engine="systemone", worker=WORKER, model="m", dialect="vllm", request_id="r", latency_s=0.0)
        answers = {id_: calibrated(id_, q, {"yes": 0.5, "no": 0.5}, source, label_mass=1.0) for id_, q in request.questions.items()}
        return Answers(answers=answers, source=source, usage=Usage())

    async def aclose(self) -> None:
        """Nothing to close."""


def conversation(tokens: int) -> list[Message]:
    """Tool turns of about 600 tokens each, as a coding agent has them."""
    draw = random.Random(1)
    words = ["file", "value", "return", "import", "parser", "error", "line", "token", "worker", "prefix", "config", "because"]

    def text(size: int) -> str:
        return " ".join(draw.choice(words) for _ in range(size))

    messages: list[Message] = [{"role": "system", "content": text(1500)}, {"role": "user", "content": text(150)}]
    held = sum(len(m["content"]) for m in messages)
    while held < tokens * CHARACTERS:
        number = len(messages)
        call = {"name": "read", "arguments": json.dumps({"path": f"src/{number}.py", "limit": 200})}
        result = text(400)
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
        held += len(result) + 120
        if number % 5 == 0:
            messages.append({"role": "assistant", "content": text(60)})
            messages.append({"role": "user", "content": text(40)})
            held += 600
    return messages


TOOLS: list[Message] = [
    {"type": "function", "function": {"name": n, "description": f"to {n} " * 20, "parameters": {"type": "object", "properties": {}}}}
    for n in ("read", "write", "run", "search", "list", "fetch", "test", "plan")
]


def turns(tokens: int, *, copied: bool) -> list[tuple[list[Message], Sequence[Message]]]:
    """The messages and tools of the calls of ``TURNS`` more turns; ``copied``: every message is a new object each turn."""
    messages, made = conversation(tokens), []
    for number in range(TURNS):
        news = [
            {"role": "assistant", "content": f"Step {number} is done, and well."},
            {"role": "user", "content": f"{number}: go on, please. " * 12},
        ]
        messages = [*messages, *news]
        made.append((json.loads(json.dumps(messages)), json.loads(json.dumps(TOOLS))) if copied else (messages, TOOLS))
    return made


def measure(tokens: int, *, copied: bool) -> tuple[float, float, float, float]:
    """Milliseconds of CPU: of one ``decide`` (best), of the first that meets the conversation, of encoding its body; characters of the body."""
    engine = AtOnce()

    async def run() -> tuple[float, float]:
        settings = Settings(workers=(WORKER,), model="m", policies=(), deadline_ms=600_000, label_mass_floor=0, alignment="always")
        gate = Gate(settings, mounts=Three(), template=ChatTemplate.from_file(TEMPLATE), chain=lambda _: Chain([engine]))
        best = first = math.inf
        calls = turns(tokens, copied=copied)
        gc.collect()
        gc.disable()
        for number, (messages, tools) in enumerate(calls):
            engine.keeps = number == TURNS - 1
            began = time.process_time()
            decision = await gate.decide(Turn("s", messages, tools))
            took = time.process_time() - began
            assert [read.state for read in decision.reads] == ["aligned"], decision.reasons
            first = took if number == 0 else first
            best = min(best, took)
        gc.enable()
        await gate.aclose()
        return best, first

    best, first = asyncio.run(run())
    request = engine.last
    assert request is not None
    encoding = _best(lambda: encode_request(request))
    return best * 1000, first * 1000, encoding * 1000, len(encode_request(request))


def _best(work: Callable[[], object], times: int = 50) -> float:
    best = math.inf
    for _ in range(times):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def run() -> Lines:
    for copied in (False, True):
        which = "every message a new object each turn" if copied else "old messages the same objects"
        (small, first_small, body_small, _), (large, first_large, body_large, size) = (measure(tokens, copied=copied) for tokens in SIZES)
        bounds = f"{MOST_MS:.0f} ms" if copied else f"× {MOST_RATIO}, {MOST_MS:.0f} ms"  # whether copies are unchanged takes comparing them
        yield (
            f"one more turn, {which}: {small:.2f} ms of CPU at {SIZES[0]:,} tokens, {large:.2f} ms at {SIZES[1]:,}: × {large / small:.2f} "
            f"(bound {bounds})",
            (copied or large <= MOST_RATIO * small) and max(small, large) < MOST_MS,
        )
        yield (
            f"encoding the body: {body_small:.2f} ms and {body_large:.2f} ms ({size / 1000:,.0f} kB), "
            f"{body_small / (small + body_small):.0%} and {body_large / (large + body_large):.0%} of all our CPU; "
            f"the first turn of a conversation met so far on: {first_small:.1f} ms and {first_large:.1f} ms",
            None,
        )

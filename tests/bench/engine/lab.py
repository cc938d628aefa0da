"""Two workers, their counters, and the two kinds of call: the agent's and the gate's."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from tests.bench.engine.talk import Message
from tests.engine.rig import tiny_models
from tests.engine.rig.server import ServerOptions, VllmServer
from warmgate.alignment.plan import State
from warmgate.decision import Mounts
from warmgate.engines import AskRequest, Deadline, SystemOne
from warmgate.gate import Gate
from warmgate.policy import MountPolicy
from warmgate.questions import Choice, Noul, Question
from warmgate.settings import Settings
from warmgate.turn import Turn

QUESTIONS: dict[str, Question] = {
    "set": Choice(
        instructions="Which toolset does the next step need?", criteria={"files": "read and write files", "shell": "run commands"}
    ),
    "shell": Noul(instructions="Does the next step need a shell?"),
    "safe": Noul(instructions="Is the next step harmless?"),
}
DEADLINE_S = 120.0


BOOTS = ThreadPoolExecutor(2)
"""Threads that start servers. They live as long as this process: a server dies with the thread that started it."""


def boot(*options: ServerOptions) -> list[VllmServer]:
    """Start servers side by side; most of a boot is one core importing torch."""
    servers = [VllmServer(each) for each in options]
    try:
        for started in [BOOTS.submit(server.start) for server in servers]:
            started.result()
    except BaseException:
        for server in servers:
            server.stop()
        raise
    return servers


class Three:
    """A mount policy that asks the three questions before every call and mounts everything."""

    name, version = "three", "1"

    def questions(self, turn: Turn, mounted: object) -> Mapping[str, Question]:
        del turn, mounted
        return QUESTIONS

    def settle(self, turn: Turn, mounted: object, answers: object, *, widen: bool) -> Mounts:
        del mounted, answers, widen
        names = tuple(tool["function"]["name"] for tool in turn.tools)
        return Mounts(tools=names, strategy="freeze", changed=False, reason="frozen")


class Picking(Three):
    """The same questions, and another five tools after every one of them: a router that picks tools for each turn."""

    def settle(self, turn: Turn, mounted: object, answers: object, *, widen: bool) -> Mounts:
        del mounted, answers, widen
        names = [tool["function"]["name"] for tool in turn.tools]
        few = set(random.Random(f"{turn.session} {turn.user_turn}").sample(names, 5))
        return Mounts(tools=tuple(name for name in names if name in few), strategy="remount", changed=True, reason="picked anew")


class Held:
    """What earlier sequences hold, block by block: the R of DESIGN's definitions for full attention. Written anew here, so that the
    product's own arithmetic is not its own witness.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self._chains: set[int] = set()

    def _chain(self, ids: Sequence[int]) -> list[int]:
        chain, previous = [], 0
        for at in range(0, len(ids) - self.block + 1, self.block):
            previous = hash((previous, tuple(ids[at : at + self.block])))
            chain.append(previous)
        return chain

    def add(self, ids: Sequence[int]) -> None:
        """An engine has served this prompt."""
        self._chains.update(self._chain(ids))

    def reusable(self, ids: Sequence[int]) -> int:
        """Tokens of a prompt that whole blocks of earlier sequences hold; the last token is always computed."""
        blocks = 0
        for link in self._chain(ids)[: (len(ids) - 1) // self.block]:
            if link not in self._chains:
                break
            blocks += 1
        return blocks * self.block


@dataclass
class Call:
    """An agent's call as the engine reported it."""

    prompt: int
    cached: int


@dataclass
class Spent:
    """Sums over a scenario, in tokens.

    Attributes:
        computed: By all engines, the gate's reads included.
        floor: What a perfect gate would have had them compute.
        prompt: Of the agent's calls.
        cached: Of these, from the cache (S).
        reusable: Of these, what earlier sequences held (R), decisions included.
        surplus: S beyond R, summed over calls: a fault of our model of the cache.
    """

    computed: int = 0
    floor: int = 0
    prompt: int = 0
    cached: int = 0
    reusable: int = 0
    surplus: int = 0
    seconds: float = 0.0
    """Of CPU, in the workers' processes: unlike a clock it does not run faster while others use the machine."""
    calls: list[Call] = field(default_factory=list)
    answered: int = 0
    """Decisions of the gate in which every question was answered."""
    plants: int = 0
    """Prefixes that the gate sent on their own before a decision."""
    said: list[str] = field(default_factory=list)
    """Reasons that the gate gave, each once, and what it had found out about its workers."""
    first_ratio: float = 0.0
    """Computed over floor, of the first call alone."""

    @property
    def ratio(self) -> float:
        return self.computed / self.floor

    @property
    def survival(self) -> float:
        return self.cached / self.reusable if self.reusable else float("nan")


class Lab:
    """Two running workers.

    Args:
        servers: Workers that serve one model.
        block: Steps in which their caches find prefixes, in tokens; None takes their block size.
    """

    def __init__(self, servers: Sequence[VllmServer], block: int | None = None) -> None:
        self.servers = list(servers)
        self.urls = [server.url for server in servers]
        self.model = servers[0].model
        self.folder = tiny_models.build(servers[0].options.model)
        self.block = block or self.block_size()
        self.client = httpx.AsyncClient(timeout=DEADLINE_S, trust_env=False, limits=httpx.Limits(keepalive_expiry=1.0))
        self._own: dict[str, int] = {}
        self._engines = {url: SystemOne(url, model=self.model) for url in self.urls}

    async def aclose(self) -> None:
        """Close connections; the servers stay."""
        for engine in self._engines.values():
            await engine.aclose()
        await self.client.aclose()

    def block_size(self) -> int:
        """Tokens in a block, as the engine reports it."""
        page = self.servers[0].get("/metrics").body.decode()
        return int(re.search(r'vllm:cache_config_info\{[^}]*\bblock_size="(\d+)"', page)[1])  # type: ignore[index]

    async def computed(self) -> int:
        """Prompt tokens all workers have computed so far; waits until two looks agree, since counters follow a reply."""
        before = -1
        while True:
            now = sum([await self._computed(url) for url in self.urls])
            if now == before:
                return now
            before = now
            await asyncio.sleep(0.02)

    async def _computed(self, url: str) -> int:
        text = (await self.client.get(f"{url}/metrics")).text
        rows = [line for line in text.splitlines() if line.startswith("vllm:prompt_tokens_by_source_total{") and "local_compute" in line]
        return int(sum(float(line.rsplit(" ", 1)[1]) for line in rows))

    def cpu(self) -> float:
        """Seconds of CPU that all processes of all workers have used so far."""
        leaders = [psutil.Process(server._process.pid) for server in self.servers if server._process is not None]
        times = [one.cpu_times() for leader in leaders for one in (leader, *leader.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    async def ids(self, messages: Sequence[Message], tools: Sequence[Message] | None, *, whole: bool = True) -> tuple[int, ...]:
        """Token ids of the agent's prompt, by the server; without its generation prompt where not ``whole``."""
        body = {"model": self.model, "messages": messages, "tools": tools or None, "add_generation_prompt": whole}
        reply = await self.client.post(f"{self.urls[0]}/tokenize", json=body)
        reply.raise_for_status()
        return tuple(reply.json()["tokens"])

    async def own(self) -> int:
        """The three questions' own tokens: what each read's prompt has behind the state, summed."""
        for name, question in QUESTIONS.items():
            if name not in self._own:
                request = AskRequest(questions={name: question}, state="x", cache_salt="own")
                answers = await self._engines[self.urls[0]].ask(request, deadline=Deadline(DEADLINE_S))
                body = {"model": self.model, "messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False}
                turn = (await self.client.post(f"{self.urls[0]}/tokenize", json=body)).json()["count"]
                closing = 2  # <|im_end|> and the line's end stand behind the question, not behind the state
                self._own[name] = int(answers.usage.input_tokens or 0) - (turn - closing)
        return sum(self._own.values())

    async def chat(self, url: str, messages: Sequence[Message], tools: Sequence[Message] | None, salt: str) -> Call:
        """The agent's call. One token is sampled, which no engine stores: what a call leaves is its prompt."""
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": 1, "temperature": 0, "cache_salt": salt}
        if tools:
            body["tools"] = tools
        reply = await self.client.post(f"{url}/v1/chat/completions", json=body)
        reply.raise_for_status()
        return call_of(reply.json()["usage"])

    async def json(self, url: str, messages: Sequence[Message], salt: str) -> None:
        """The decision as it is usually asked: the messages as JSON."""
        request = AskRequest(questions=QUESTIONS, state=list(messages), cache_salt=salt)
        await self._engines[url].ask(request, deadline=Deadline(DEADLINE_S))

    async def aligned(self, url: str, state: State, salt: str) -> None:
        """The decision on an aligned state, as a gate sends it, and nothing else."""
        request = AskRequest(questions=QUESTIONS, state=state.state, instructions=state.instructions, cache_salt=salt)
        await self._engines[url].ask(request, deadline=Deadline(DEADLINE_S))

    async def separate(self, url: str, messages: Sequence[Message], salt: str) -> None:
        """A router of its own: one chat request with the messages as JSON and all questions behind them."""
        asks = "\n".join(str(question.instructions) for question in QUESTIONS.values())
        text = f"{json.dumps(messages)}\n\n{asks}\nAnswer as a JSON object."
        await self.chat(url, [{"role": "system", "content": "You route an agent."}, {"role": "user", "content": text}], None, salt)

    async def plant(self, url: str, ids: Sequence[int], salt: str) -> None:
        """One one-token read of a prefix alone."""
        body = {"model": self.model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "cache_salt": salt}
        (await self.client.post(f"{url}/v1/completions", json=body)).raise_for_status()

    def gate(self, *urls: str, mounts: MountPolicy | None = None, **more: Any) -> Gate:
        """A gate on these workers, or on all."""
        settings = Settings(
            workers=list(urls or self.urls),
            model=self.model,
            deadline_ms=DEADLINE_S * 1000,
            label_mass_floor=0,
            engines=("systemone",),
            chat_template=self.folder,
            policies=(),
            **more,
        )
        return Gate(settings, mounts=mounts or Three())


def call_of(usage: Mapping[str, Any]) -> Call:
    """Prompt and cached tokens of a reply's usage."""
    details = usage.get("prompt_tokens_details") or {}
    return Call(usage["prompt_tokens"], details.get("cached_tokens") or 0)

"""Traffic of several sessions on one worker, each request predicted before it is sent and compared with what the worker reports.

Runs on the stand-in (integration tests) and on a real vLLM (engine tests). Two trackers watch: one fed by KV events, one by our own calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.wire.raw import CHOICE, NOUL, SCORE, TOOLS, Worker, fresh
from warmgate.prefix.counters import Delta, Refused, Snapshot, judge
from warmgate.prefix.events import EventReader, EventSource
from warmgate.prefix.hashes import BlockNames, Namespace, wire_names
from warmgate.prefix.index import ShadowIndex
from warmgate.prefix.intake import Intake
from warmgate.prefix.survival import Expectation, Outcome, Prompt, SurvivalTracker
from warmgate.prefix.usage import reported
from warmgate.standin.bodies import QuestionSpec
from warmgate.standin.questions import parse_questions, question_text
from warmgate.telemetry.protocol import CallSeen, ReadSeen, Silent, Telemetry

QUESTIONS: dict[str, Any] = {"route": CHOICE, "red": NOUL, "risk": SCORE}


class Pooled(Worker):
    """The same over one kept connection: a client a request costs more than the request."""

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return _client.post(self.url + path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def get(self, path: str, **headers: str) -> httpx.Response:
        return _client.get(self.url + path, headers={k.replace("_", "-"): v for k, v in headers.items()})


_client = httpx.Client(timeout=120)


@dataclass
class Tally:
    """What was compared. `wrong` holds (what, predicted, reported) of each disagreement."""

    calls: int = 0
    reads: int = 0
    call_tokens: int = 0
    read_hits: int = 0
    refused: list[str] = field(default_factory=list)
    wrong: list[tuple[str, int, int]] = field(default_factory=list)


class Traffic:
    """Sends and compares. Close it."""

    def __init__(self, worker: Worker, *, blocks: int, names: BlockNames | None = None, telemetry: Telemetry | None = None) -> None:
        self.worker = worker
        self.patient = True
        self.telemetry = telemetry or Silent()
        self.names = names or BlockNames(worker.block_size)
        self.tally = {"events": Tally(), "model": Tally()}
        self.trackers = {kind: SurvivalTracker(worker.block_size) for kind in ("events", "model")}
        self.reader: EventReader | None = None
        if worker.events is not None:
            index = ShadowIndex(worker.block_size, source="events")
            self.trackers["events"].add_worker(worker.url, index)
            intake = Intake(index, names=self.names, stored=lambda names: self.trackers["events"].stored(worker.url, names))
            self.reader = EventReader(EventSource(worker.events, worker.replay), intake)
            self.reader.start()
        else:
            del self.trackers["events"]
        self.trackers["model"].add_worker(worker.url, ShadowIndex(worker.block_size, blocks=blocks))

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def chat_ids(self, messages: list[dict[str, Any]], **more: Any) -> list[int]:
        return self.worker.tokens(messages=messages, add_generation_prompt=True, **more)

    def prompt(self, session: str, ids: list[int], namespace: Namespace, **more: Any) -> Prompt:
        names = wire_names(self.names.of(ids, namespace))
        return Prompt(session, names, len(ids), namespace=namespace.salt or "", plain=wire_names(self.names.of(ids)), **more)

    def heard(self, names: list[int]) -> None:
        """Wait until the events of the request just answered are here: an engine announces what it stored and evicted a moment later."""
        index = self.trackers["events"].index(self.worker.url) if self.reader is not None and self.patient else None
        if index is not None:
            until(lambda: all(name in index for name in names), 0.2)  # some may be evicted again, by siblings

    def call(
        self, session: str, messages: list[dict[str, Any]], *, tools: list[Any] | None = None, salt: str | None = None, max_tokens: int = 1
    ) -> tuple[dict[str, Outcome], dict[str, Any]]:
        """One agent call. Returns the outcomes by tracker, and the assistant's message."""
        more: dict[str, Any] = {"tools": tools} if tools else {}
        ids = self.chat_ids(messages, **more)
        namespace = Namespace(salt=salt)
        expected = {k: t.expect(self.worker.url, self.prompt(session, ids, namespace))[0] for k, t in self.trackers.items()}
        if salt:
            more["cache_salt"] = salt
        reply = self.worker.chat(messages, max_tokens=max_tokens, return_token_ids=True, **more)
        assert reply.status_code == 200, reply.text
        body = reply.json()
        usage = reported(body)
        assert usage.measured, usage
        assert usage.prompt_tokens == len(ids)
        cached = usage.cached_tokens or 0
        output = body["choices"][0].get("token_ids") or [0] * (usage.output_tokens or 1)
        whole = ids + list(output)[:-1]
        stored = wire_names(self.names.of(whole, namespace))
        outcomes = {}
        for kind, one in expected.items():
            tally = self.tally[kind]
            tally.calls += 1
            tally.call_tokens += cached
            if one.captured != cached:
                tally.wrong.append((f"call {tally.calls} of {session}", one.captured, cached))
            outcomes[kind] = self.trackers[kind].settle(one, cached, stored=stored, stored_tokens=len(whole))
        self.heard(stored)
        survival = next(iter(outcomes.values()))
        self.telemetry.agent_call(CallSeen(session, self.worker.model, self.worker.url, usage, survival, started=1.0, ended=2.0))
        return outcomes, body["choices"][0]["message"]

    def read(self, session: str, state: str, instructions: str, questions: dict[str, Any], salt: str | None = None) -> None:
        """One decision: a read a question, sent together."""
        namespace = Namespace(salt=salt)
        prompts = []
        for question in parse_questions({name: QuestionSpec(**spec) for name, spec in questions.items()}):
            turn = [{"role": "system", "content": instructions}, {"role": "user", "content": f"{state}\n\n{question_text(question)}"}]
            ids = self.chat_ids(turn, chat_template_kwargs={"enable_thinking": False})
            prompts.append(self.prompt(session, ids, namespace, kind="read"))
        expected: dict[str, list[Expectation]] = {k: t.expect(self.worker.url, *prompts) for k, t in self.trackers.items()}
        before = Snapshot.of(self.worker.get("/metrics").text)
        more = {"cache_salt": salt} if salt else {}
        reply = self.worker.decide(questions, state, instructions=instructions, **more)
        assert reply.status_code == 200, reply.text
        tokens = sum(p.tokens for p in prompts)
        assert reply.json()["usage"]["input_tokens"] == tokens
        delta: Delta | Refused = Refused("")
        for _ in range(20):
            delta = judge(before, Snapshot.of(self.worker.get("/metrics").text), prompt_tokens=tokens, requests=len(prompts))
            if isinstance(delta, Delta):
                break
        hits = delta.hits if isinstance(delta, Delta) else None
        for kind, ones in expected.items():
            tally = self.tally[kind]
            tally.reads += len(ones)
            if isinstance(delta, Refused):
                tally.refused.append(delta.reason)
            else:
                predicted = self.trackers[kind].predicted_hits(ones)
                tally.read_hits += delta.hits
                if predicted != delta.hits:
                    tally.wrong.append((f"read {tally.reads} of {session}", predicted, delta.hits))
            outcomes = self.trackers[kind].settle_reads(ones, hits)
            if kind == next(iter(self.trackers)):
                self.telemetry.read(
                    ReadSeen("d1", "d1-0", session, self.worker.model, self.worker.url, "systemone", "answered", len(ones), 0.01, outcomes)
                )
        self.heard([name for prompt in prompts for name in prompt.names])


def mixed(traffic: Traffic, *, sessions: int, rounds: int, seed: int, words: int = 60, max_tokens: int = 4, reads: bool = True) -> None:
    """Sessions in turn: salted and not, tools now and then changed, tool turns, a decision before most calls."""
    dice = random.Random(seed)
    states: list[dict[str, Any]] = []
    for number in range(sessions):
        system = {"role": "system", "content": f"You are agent {number % 3}. " + _text(dice, words)}
        states.append({"messages": [system], "salt": f"tenant {seed} {number}" if number % 3 == 2 else None, "tools": TOOLS})
    for turn in range(rounds):
        for number, state in enumerate(states):
            messages, salt = state["messages"], state["salt"]
            session = f"s{seed}.{number}"
            if len(messages) > 14:
                del messages[1:]
            messages.append({"role": "user", "content": _text(dice, dice.randrange(4, words))})
            if dice.random() < 0.25:
                state["tools"] = dice.choice((TOOLS, TOOLS[:1], []))
            if reads:
                asked = dict(dice.sample(sorted(QUESTIONS.items()), dice.randrange(1, 4)))
                traffic.read(session, messages[-1]["content"], messages[0]["content"], asked, salt)
            traffic.call(session, messages, tools=state["tools"], salt=salt, max_tokens=dice.randrange(1, max_tokens + 1))
            if dice.random() < 0.5:
                call = {"id": f"c{turn}", "type": "function", "function": {"name": "read_file", "arguments": f'{{"path": "{turn}.txt"}}'}}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": _text(dice, words // 2)})
                traffic.call(session, messages, tools=state["tools"], salt=salt, max_tokens=1)
            messages.append({"role": "assistant", "content": "Done."})


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


WORDS = sorted({word.strip(".") for word in fresh(60).split()[1:]} | {f"file{n}" for n in range(40)})


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait for what another thread does."""
    import time

    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True

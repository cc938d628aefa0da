"""Facts as a gate would report them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from warmgate.decision import Decision, Mounts, Read, Verdict
from warmgate.prefix.ledger import Entry
from warmgate.prefix.survival import Expectation, Outcome, Prompt
from warmgate.prefix.usage import reported
from warmgate.telemetry.protocol import CallSeen, Finished, Parts, ReadSeen

A = "http://a"


def expected(
    *, tokens: int = 100, reusable: int = 64, captured: int = 64, kind: Any = "call", worker: str = A, floor: int = 36
) -> Expectation:
    prompt = Prompt("secret session", list(range(tokens // 16)), tokens, kind=kind, namespace="secret tenant")
    return Expectation(prompt, worker, reusable + 5, reusable, reusable, captured, "events", None, floor=floor)


def outcome(cached: int = 64, **more: Any) -> Outcome:
    one = expected(**more)
    lost: Any = "worker_change" if cached < one.reusable else None
    entry = Entry(one.prompt.tokens, "measured", one.shared, one.reusable, cached, "measured", lost, cached)
    return Outcome(one, entry, lost, cached - one.captured, one.prompt.tokens - cached)


def call(cached: int = 64, worker: str = A, **more: Any) -> CallSeen:
    survival = outcome(cached, worker=worker, **more)
    usage = {"prompt_tokens": survival.expected.prompt.tokens, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": cached}}
    return CallSeen("secret session", "qwen3", worker, reported(usage), survival, decision="d1", request="r1", started=10.0, ended=11.0)


def read(questions: int = 1, engine: str | None = "systemone", worker: str = A) -> ReadSeen:
    survival = [replace(outcome(64, kind="read", worker=worker, floor=6)) for _ in range(questions)]
    return ReadSeen("d1", "d1-0", "secret session", "qwen3", worker, engine, "answered", questions, 0.02, survival)


def decision(
    reads: tuple[Any, ...] | None = None,
    engine: str | None = "systemone",
    outcome: Literal["answered", "partial", "no_answer"] = "answered",
) -> Decision:
    one = Read(
        questions=("q",), state="aligned", outcome=outcome, engine=engine, worker=A, elapsed_s=0.1, answers={}, reason="secret words"
    )
    verdicts = {
        "c1": Verdict(call="c1", verdict="deny", reason="secret reason", source="rules", binding="b1", rule="r"),
        "c2": Verdict(call="c2", verdict="allow", reason="secret reason", source="systemone", binding="b2", shadow=True),
    }
    return Decision(
        id="d1",
        mounts=Mounts(tools=("read_file",), strategy="append", changed=True, reason="secret reason"),
        verdicts=verdicts,
        worker="http://user:hunter2hunter2@a:8000",
        headers={"X-Session-ID": "secret session"},
        reads=(one,) if reads is None else reads,
        reasons=("secret reason",),
        elapsed_s=0.2,
    )


def finished(one: Decision | None = None, parts: Parts | None = None) -> Finished:
    return Finished(one or decision(), "secret session", "qwen3", parts or Parts())

"""A round trip on a real model: vLLM constrains tiny Qwen3 to our JSON schema, and the reply parses."""

from __future__ import annotations

import pytest

from tests.engine.rig.server import VllmServer
from tests.wire.suite import QUESTIONS, ask, check, read
from tests.wire.suite import Worker as WireWorker
from warmgate.engines import AskRequest, Chain, Deadline, RoundTrip
from warmgate.questions import Choice, Question


@pytest.mark.parametrize("dialect", ["openai", "vllm"])
async def test_a_json_schema_gives_labels_with_probabilities(vllm_qwen3: VllmServer, dialect: str):
    """The last resort of every chain: a local model, bound to JSON by the server, whose reply parses."""
    server = vllm_qwen3
    async with RoundTrip(server.url, model=server.model, dialect=dialect) as engine:
        request = AskRequest(questions=QUESTIONS, state={"user": "list the files"}, instructions="You are a router.", check_order=True)
        answers = await engine.ask(request, deadline=Deadline(60))
    check(answers, WireWorker(server.url, server.model, server.model), QUESTIONS)
    for answer in answers.answers.values():
        assert not answer.uncalibrated
        assert answer.label_mass is None  # vLLM lists probabilities after the mask: the labels hold all by force
    assert isinstance(answers.answers["route"].order_agrees, bool)


async def test_systemone_and_a_read_of_the_same_prompt_lean_the_same_way(vllm_qwen3: VllmServer):
    """They word the question a little differently, so they agree closely but not to the digit: two engines, one model."""
    worker = WireWorker(vllm_qwen3.url, vllm_qwen3.model, vllm_qwen3.model)
    state = "The user asked to list the files of the project. " * 20
    first = await ask(worker, state=state)
    second = await read(worker, state=state)
    for id_ in QUESTIONS:
        p, q = first.answers[id_].probabilities, second.answers[id_].probabilities
        assert p is not None
        assert q is not None
        assert max(abs(p[label] - q[label]) for label in p) < 0.2


async def test_the_chain_ends_in_a_round_trip_where_nothing_else_is_served(vllm_qwen3: VllmServer):
    questions: dict[str, Question] = {"q": Choice(instructions="Which?", criteria={"a": None, "b": None})}
    engines = [RoundTrip(f"{vllm_qwen3.url}/absent", model="x"), RoundTrip(vllm_qwen3.url, model=vllm_qwen3.model, dialect="vllm")]
    async with Chain(engines) as chain:
        result = await chain.ask(AskRequest(questions=questions, state="x"), deadline=Deadline(60))
    assert result.outcome == "answered"
    assert [step.outcome for step in result.steps] == ["failed", "answered"]
    assert result.answers["q"].value in ("a", "b")

"""The chain: an answer from the first engine that has one, or a plain statement that there is none and why. Real engines, stubbed wire."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
import respx

from tests.unit.engines.support import QUESTIONS, QUICK, request, vllm_reply
from warmgate.answers import Answers, Usage
from warmgate.engines import AskRequest, Breakers, Chain, Deadline, Engine, Step, SystemOne
from warmgate.engines.breaker import Rule
from warmgate.errors import OptionError
from warmgate.questions import Choice

ONE, TWO = "http://one.test", "http://two.test"


def chain(*urls: str, breakers: Breakers | None = None, **options: Any) -> Chain:
    return Chain([SystemOne(url, policy=QUICK, **options) for url in urls], breakers=breakers)


@respx.mock
async def test_the_first_engine_that_answers_is_taken_and_no_other_is_asked():
    respx.post(f"{ONE}/v1/systemone").respond(json=vllm_reply())
    second = respx.post(f"{TWO}/v1/systemone").respond(json=vllm_reply())
    async with chain(ONE, TWO) as both:
        result = await both.ask(request(), deadline=Deadline(5))
    assert result.outcome == "answered"
    assert list(result.answers) == list(QUESTIONS)
    assert [step.outcome for step in result.steps] == ["answered"]
    assert result.reason == ""
    assert not second.called


@respx.mock
async def test_the_answer_names_the_engine_it_came_from_and_why_the_others_were_left():
    """No silent substitute: a user sees that the fallback answered, and what is wrong with the first."""
    respx.post(f"{ONE}/v1/systemone").respond(501, json={"error": {"message": "no strategy"}})
    respx.post(f"{TWO}/v1/systemone").respond(json=vllm_reply())
    async with chain(ONE, TWO) as both:
        result = await both.ask(request(), deadline=Deadline(5))
    assert result.outcome == "answered"
    assert {answer.source.worker for answer in result.answers.values()} == {TWO}
    left = result.steps[0]
    assert (left.outcome, left.code) == ("failed", "WG314")
    assert "no strategy" in left.reason
    assert "read strategy" in (left.mend or "")
    assert result.usage == Usage(input_tokens=178, output_tokens=3)


@respx.mock
async def test_no_answer_is_an_outcome_with_a_reason_for_every_question():
    respx.post(f"{ONE}/v1/systemone").respond(400, json={"error": {"message": "bad"}})
    respx.post(f"{TWO}/v1/systemone").mock(side_effect=httpx.ConnectError("refused"))
    async with chain(ONE, TWO) as both:
        result = await both.ask(request(), deadline=Deadline(5))
    assert (result.outcome, result.answers) == ("no_answer", {})
    assert list(result.unanswered) == list(QUESTIONS)
    assert all("refused" in why for why in result.unanswered.values())
    assert "bad" in result.reason
    assert result.usage == Usage()


@respx.mock
async def test_an_engine_that_hangs_leaves_time_for_the_next():
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    respx.post(f"{ONE}/v1/systemone").mock(side_effect=hang)
    respx.post(f"{TWO}/v1/systemone").respond(json=vllm_reply())
    start = time.monotonic()
    async with chain(ONE, TWO) as both:
        result = await both.ask(request(), deadline=Deadline(0.5))
    assert result.outcome == "answered"
    assert result.steps[0].code == "WG330"
    assert 0.25 < time.monotonic() - start < 0.5


@respx.mock
async def test_one_deadline_bounds_the_whole_chain():
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    respx.post(url__regex=".*").mock(side_effect=hang)
    start = time.monotonic()
    async with chain(ONE, TWO) as both:
        result = await both.ask(request(), deadline=Deadline(0.2))
    assert result.outcome == "no_answer"
    assert time.monotonic() - start < 0.5
    assert len(asyncio.all_tasks()) == 1


@respx.mock
async def test_with_no_time_left_nothing_is_sent():
    route = respx.post(url__regex=".*").respond(json=vllm_reply())
    async with chain(ONE, TWO) as both:
        result = await both.ask(request(), deadline=Deadline(0))
    assert [step.outcome for step in result.steps] == ["skipped", "skipped"]
    assert not route.called


@respx.mock
async def test_a_worker_that_keeps_failing_is_skipped_with_the_reason_and_shared_between_chains():
    route = respx.post(f"{ONE}/v1/systemone").mock(side_effect=httpx.ConnectError("refused"))
    breakers = Breakers(Rule(failures=2))
    for _ in range(2):
        async with chain(ONE, breakers=breakers) as one:
            await one.ask(request(), deadline=Deadline(5))
    sent = route.call_count
    async with chain(ONE, breakers=breakers) as one:
        result = await one.ask(request(), deadline=Deadline(5))
    assert route.call_count == sent
    assert result.steps[0].outcome == "skipped"
    assert "refused" in result.steps[0].reason


@respx.mock
async def test_a_limit_of_one_dialect_passes_the_question_to_the_next_engine():
    big = {"q": Choice(instructions="?", criteria={f"o{n}": None for n in range(40)})}
    share = dict.fromkeys(big["q"].criteria, 1 / 40)
    respx.post(f"{TWO}/v1/systemone").respond(json={"answers": {"q": {"type": "choice", "choice": "o0", "probabilities": share}}})
    first = respx.post(f"{ONE}/v1/systemone").respond(json={})
    steps = Chain([SystemOne(ONE), SystemOne(TWO, dialect="sglang")])
    async with steps as both:
        result = await both.ask(request(questions=big), deadline=Deadline(5))
    assert result.outcome == "answered"
    assert (result.steps[0].outcome, result.steps[0].code) == ("skipped", "WG150")
    assert not first.called


class Half:
    """An engine of somebody else's that declines the questions it is told to."""

    name = "half"
    worker = "http://half.test"

    def __init__(self, inner: SystemOne, declines: set[str]) -> None:
        self.inner = inner
        self.declines = declines

    async def ask(self, request: AskRequest, *, deadline: Deadline) -> Answers:
        found = await self.inner.ask(request, deadline=deadline)
        kept = {id_: answer for id_, answer in found.answers.items() if id_ not in self.declines}
        return Answers(answers=kept, source=found.source, usage=found.usage, refused=dict.fromkeys(self.declines, "declined"))

    async def aclose(self) -> None:
        await self.inner.aclose()


@respx.mock
async def test_a_refused_question_alone_goes_to_the_next_engine():
    respx.post(f"{ONE}/v1/systemone").respond(json=vllm_reply())

    def answer(sent: httpx.Request) -> httpx.Response:
        assert list(json.loads(sent.content)["questions"]) == ["shell"]
        return httpx.Response(200, json=vllm_reply())

    respx.post(f"{TWO}/v1/systemone").mock(side_effect=answer)
    half = Half(SystemOne(ONE), {"shell"})
    assert isinstance(half, Engine)
    async with Chain([half, SystemOne(TWO)]) as both:
        result = await both.ask(request(), deadline=Deadline(5))
    assert result.outcome == "answered"
    assert list(result.answers) == list(QUESTIONS)
    assert [result.answers[id_].source.worker for id_ in QUESTIONS] == [ONE, TWO, ONE]
    assert [step.outcome for step in result.steps] == ["partial", "answered"]


@respx.mock
async def test_what_only_some_questions_got_is_called_partial():
    respx.post(f"{ONE}/v1/systemone").respond(json=vllm_reply())
    async with Chain([Half(SystemOne(ONE), {"shell"})]) as one:
        result = await one.ask(request(), deadline=Deadline(5))
    assert result.outcome == "partial"
    assert list(result.unanswered) == ["shell"]
    assert list(result.answers) == ["route", "risk"]


@respx.mock
async def test_a_cancelled_chain_lets_the_breaker_try_again():
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    respx.post(url__regex=".*").mock(side_effect=hang)
    breakers = Breakers(Rule(failures=1, pause_s=0.0))
    breakers.of(ONE, "systemone").failed(__import__("warmgate.errors").errors.Unreachable("x"))
    async with chain(ONE, breakers=breakers) as one:
        task = asyncio.create_task(one.ask(request(), deadline=Deadline(30)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert breakers.of(ONE, "systemone").admit()


def test_a_chain_needs_an_engine_and_shares_are_shares():
    with pytest.raises(OptionError):
        Chain([])
    for bad in (0.0, 1.5, -1.0):
        with pytest.raises(OptionError):
            Step(SystemOne(ONE), share=bad)

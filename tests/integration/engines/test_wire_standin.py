"""The wire suite against the stand-in, in the styles it speaks, and every fault it can make."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.engines.leaks import nothing_left
from tests.wire.suite import *  # noqa: F403
from tests.wire.suite import QUESTIONS, Worker
from warmgate.answers import Answers, uncalibrated, winner
from warmgate.engines import AskRequest, Deadline, PrefixRead, RoundTrip, SystemOne
from warmgate.engines.retry import RetryPolicy
from warmgate.errors import EngineError
from warmgate.standin import FAULTS, StandIn

STYLES = ("qwen3", "d1", "clef", "dgemma")


@pytest.fixture(scope="module", params=STYLES)
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with StandIn(style=request.param, model="tiny", max_model_len=16384) as standin:
        yield Worker(standin.url, "tiny", "standin", style=request.param, constraints=("openai",))


@pytest.fixture(scope="module")
def faulty() -> Iterator[StandIn]:
    with StandIn(model="tiny") as standin:
        yield standin


HARMLESS = {"extra_fields", "wrong_content_type", "slow"}
"""Faults that leave the answers right."""


@pytest.mark.parametrize("engine", [SystemOne, PrefixRead, RoundTrip])
@pytest.mark.parametrize("fault", sorted(FAULTS))
async def test_no_fault_of_the_stand_in_gives_a_wrong_answer(fault: str, engine: type[SystemOne | PrefixRead | RoundTrip], faulty: StandIn):
    """A typed error or the right answer, in time, nothing left behind."""
    limit = 0.6
    policy = RetryPolicy(attempts=2, first_s=0.001, longest_s=0.002)
    request = AskRequest(questions=QUESTIONS, state="list the files")
    faulty.heal()
    async with engine(faulty.url, model="tiny") as one:
        truth = await one.ask(request, deadline=Deadline(20))
    best = 99.0
    outcome: Answers | EngineError | None = None
    # The stand-in is a thread of this process: what it computes delays the client too, so no more than the fault needs.
    faulty.fault({"slow": "slow=0.1", "huge_body": "huge_body=6"}.get(fault, fault))
    try:
        for _ in range(8):
            async with nothing_left():
                start = time.monotonic()
                async with engine(faulty.url, model="tiny", policy=policy) as one:
                    try:
                        outcome = await one.ask(request, deadline=Deadline(limit))
                    except EngineError as error:
                        outcome = error
                best = min(best, time.monotonic() - start)
            if best <= limit + 0.05:
                break
    finally:
        faulty.heal()
    assert best <= limit + 0.05
    if isinstance(outcome, EngineError):
        assert fault not in HARMLESS or outcome.code == "WG330", outcome
        return
    assert outcome is not None
    for id_, answer in outcome.answers.items():
        right = truth.answers[id_]
        assert right.probabilities is not None
        if answer.uncalibrated:  # a label without numbers is an honest answer
            assert answer.value == uncalibrated(id_, QUESTIONS[id_], winner(right.probabilities), answer.source).value
        else:
            assert answer.value == (pytest.approx(right.value) if isinstance(right.value, float) else right.value)
            assert answer.probabilities == pytest.approx(right.probabilities)

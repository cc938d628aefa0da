"""Breakers: a worker that is down is left alone, and found again when it is back."""

from __future__ import annotations

import pytest

from warmgate.engines.breaker import Breaker, Breakers, Rule
from warmgate.errors import BadRequest, EngineError, NotSupported, RouteAbsent, Unauthorized, UnknownModel, Unreachable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breakers(Rule(failures=3, pause_s=5, final_pause_s=60, longest_s=15), clock=clock).of("http://w", "systemone")


def fail(breaker: Breaker, times: int = 1, error: EngineError | None = None) -> None:
    for _ in range(times):
        assert breaker.admit()
        breaker.failed(error or Unreachable("no reply"))


def test_it_opens_after_failures_in_a_row_and_a_success_between_starts_anew(breaker: Breaker):
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"
    assert not breaker.admit()
    assert breaker.reason == "no reply"


def test_after_the_pause_exactly_one_trial_passes(breaker: Breaker, clock: Clock):
    """A crowd of waiting calls would knock a recovering worker over again."""
    fail(breaker, 3)
    clock.now = 4.9
    assert not breaker.admit()
    clock.now = 5.0
    assert breaker.state == "half_open"
    assert breaker.admit()
    assert not breaker.admit()
    breaker.succeeded()
    assert breaker.state == "closed"
    assert breaker.admit()
    assert breaker.admit()


def test_a_failed_trial_doubles_the_pause_up_to_the_longest(breaker: Breaker, clock: Clock):
    fail(breaker, 3)
    for pause in (5, 10, 15, 15):
        clock.now += pause - 0.1
        assert not breaker.admit()
        clock.now += 0.1
        fail(breaker)


def test_a_cancelled_trial_may_be_made_again(breaker: Breaker, clock: Clock):
    fail(breaker, 3)
    clock.now = 5.0
    assert breaker.admit()
    breaker.abandoned()
    assert breaker.admit()


@pytest.mark.parametrize("kind", [NotSupported, RouteAbsent, Unauthorized])
def test_a_final_failure_opens_it_at_once_and_for_longer(kind: type[EngineError], breaker: Breaker, clock: Clock):
    """A 501 will be a 501 at the next turn too."""
    fail(breaker, error=kind("no"))
    clock.now = 59.0
    assert not breaker.admit()
    clock.now = 60.0
    assert breaker.admit()


@pytest.mark.parametrize("kind", [BadRequest, UnknownModel])
def test_a_faulty_request_says_nothing_about_the_worker(kind: type[EngineError], breaker: Breaker):
    fail(breaker, 20, kind("no"))
    assert breaker.state == "closed"


def test_a_late_failure_of_an_earlier_call_does_not_prolong_the_pause(breaker: Breaker, clock: Clock):
    fail(breaker, 3)
    clock.now = 3.0
    breaker.failed(Unreachable("late"))
    clock.now = 5.0
    assert breaker.admit()


def test_workers_and_engines_are_told_apart():
    breakers = Breakers(Rule(failures=1))
    fail(breakers.of("http://a", "systemone"))
    assert not breakers.of("http://a", "systemone").admit()
    assert breakers.of("http://a", "prefix_read").admit()
    assert breakers.of("http://b", "systemone").admit()

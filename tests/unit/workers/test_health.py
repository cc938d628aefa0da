"""Who takes sessions. If these fail, a slow worker loses its sessions, or a dead one keeps them."""

from __future__ import annotations

import pytest

from warmgate.errors import OptionError
from warmgate.workers.health import Health, Rule


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(Rule(), clock=clock, jitter=lambda low, high: (low + high) / 2)


def test_nobody_asked_yet_is_open(health):
    """A pool works before its first probe."""
    assert (health.state, health.open) == ("unknown", True)


def test_a_refused_connection_is_proof(health):
    """Nothing listens there: waiting for three failures would cost three agents their call."""
    assert health.reported("refused") == "lost"
    assert not health.open
    assert health.reported("refused") is None


def test_slow_is_not_dead(health):
    """Under load every call may time out; moving sessions then costs the neighbours their caches as well."""
    health.probed("alive")
    assert [health.reported("timeout") for _ in range(50)] == [None] * 50
    assert [health.reported("overloaded") for _ in range(50)] == [None] * 50
    assert [health.reported("fault") for _ in range(50)] == [None] * 50
    assert health.state == "ready"


@pytest.mark.parametrize("outcome", ["timeout", "reset", "fault"])
def test_a_bad_outcome_brings_the_next_probe_forward(health, clock, outcome):
    health.probed("alive")
    assert health.next_probe > clock.now
    health.reported(outcome)
    assert health.next_probe == clock.now


@pytest.mark.parametrize("found", ["unready", "reset", "timeout"])
def test_three_failed_probes_in_a_row(health, found):
    health.probed("alive")
    assert [health.probed(found), health.probed(found)] == [None, None]
    health.probed("alive")
    assert [health.probed(found) for _ in range(3)] == [None, None, "lost"]


def test_a_worker_that_answers_again_takes_one_session_until_it_has_served_it(health):
    """A worker that comes back cold and takes the whole fleet's new sessions at once is lost again."""
    health.reported("refused")
    assert health.probed("alive") == "back"
    assert health.state == "half_open"
    assert health.open
    health.placed()
    assert not health.open
    health.reported("ok")
    assert (health.state, health.open) == ("ready", True)


def test_the_one_session_failing_closes_it_again(health):
    health.probed("refused")
    health.probed("alive")
    health.placed()
    assert health.reported("reset") == "lost"
    assert health.state == "lost"


def test_a_trial_nobody_reports_on_ends(health, clock):
    """A caller that never reports must not keep a worker out of use for good."""
    health.probed("refused")
    health.probed("alive")
    health.placed()
    clock.now += 31
    assert health.open


def test_probes_alone_bring_it_back(health):
    health.probed("refused")
    health.probed("alive")
    health.probed("alive")
    assert health.state == "ready"


def test_pauses_double_up_to_a_limit(health, clock):
    """A worker that stays away is not asked every second by every router."""
    waits = []
    for _ in range(8):
        health.probed("refused")
        waits.append(health.next_probe - clock.now)
    assert waits == [1, 2, 4, 8, 15, 15, 15, 15]


def test_pauses_are_jittered():
    """Routers that lost a worker together must not come back together."""
    waits = set()
    for _ in range(20):
        health = Health(Rule(), clock=lambda: 0.0)
        health.probed("refused")
        waits.add(health.next_probe)
    assert len(waits) > 10
    assert all(0.75 <= wait <= 1.25 for wait in waits)


def test_without_probes_a_pause_ends_in_a_trial(health, clock):
    """A pool that nobody opened has no probes: it must neither lose workers for good nor try them all the time."""
    for _ in range(3):
        change = health.reported("reset")
    assert change == "lost"
    assert not health.open
    clock.now += 1.01
    assert (health.state, health.open) == ("half_open", True)
    health.placed()
    assert not health.open
    assert health.reported("ok") == "back"
    assert health.state == "ready"


def test_a_loop_that_probed_and_ended_leaves_nobody_locked_out(health, clock):
    """asyncio.run() per request: the probes end with the loop, the pool lives on."""
    health.probed("refused")
    clock.now += 1.5
    assert health.state == "lost"
    clock.now += 10
    assert health.state == "half_open"


@pytest.mark.parametrize("options", [{"fall": 0}, {"interval_s": float("nan")}, {"timeout_s": -1}, {"path": "health"}])
def test_rules_that_make_no_sense_are_refused(options):
    with pytest.raises(OptionError, match="health"):
        Rule(**options)

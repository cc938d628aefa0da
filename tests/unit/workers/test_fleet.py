"""Who is in a fleet and what state it is in. If these fail, sessions are sent where nobody serves them."""

from __future__ import annotations

import pytest

from warmgate.errors import OptionError
from warmgate.workers.counts import Counts
from warmgate.workers.discovery import WorkerSpec, distinct
from warmgate.workers.fleet import Fleet
from warmgate.workers.health import Rule

A, B, C = "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://10.0.0.3:8000"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def counts():
    return Counts()


@pytest.fixture
def fleet(clock, counts):
    return Fleet("workers", [WorkerSpec(A), WorkerSpec(B)], rule=Rule(), counts=counts, clock=clock)


def stances(fleet):
    return {c.worker: c.stance for c in fleet.candidates("s")}


def test_a_lost_worker_lets_its_sessions_go_and_is_counted_once(fleet, counts):
    for _ in range(5):
        fleet.reported(A, "refused")
    assert stances(fleet) == {A: "worker_lost", B: "open"}
    assert counts.total("worker_lost", worker=A) == 1
    fleet.reported(A, "ok")
    assert stances(fleet) == {A: "open", B: "open"}
    assert counts.total("worker_back", worker=A) == 1


def test_with_everybody_lost_everybody_is_open(fleet, counts):
    """Then it is rather our own network; sessions that wait keep their prefix, sessions that move lose it."""
    fleet.reported(A, "refused")
    fleet.reported(B, "refused")
    assert stances(fleet) == {A: "open", B: "open"}
    assert counts.total("workers_all_out") == 1


def test_a_drained_worker_that_answers_is_better_than_a_dead_one(fleet):
    fleet.drain(A, 0)
    fleet.reported(B, "refused")
    assert stances(fleet) == {A: "open", B: "worker_lost"}


def test_a_drain_keeps_sessions_for_its_grace(fleet, clock):
    """A rolling update lets running agents finish, then moves the rest."""
    fleet.drain(A, 30)
    assert stances(fleet) == {A: "keep", B: "open"}
    clock.now += 31
    assert stances(fleet) == {A: "drained", B: "open"}
    fleet.resume(A)
    assert stances(fleet) == {A: "open", B: "open"}


def test_draining_a_stranger_is_refused(fleet):
    """A typing mistake in an operator's script must not look like a drained worker."""
    with pytest.raises(OptionError, match=r"no worker of this pool.*10\.0\.0\.1"):
        fleet.drain("http://10.0.0.9:8000", 0)


def test_one_session_at_a_time_while_half_open(fleet):
    fleet.reported(A, "refused")
    fleet.probed(fleet.member(A), "alive")
    assert stances(fleet)[A] == "open"
    fleet.placed(A)
    assert stances(fleet)[A] == "keep"


def test_calls_without_a_session_take_turns(fleet):
    assert [fleet.spread() for _ in range(4)] == [A, B, A, B]
    fleet.reported(A, "refused")
    assert {fleet.spread() for _ in range(4)} == {B}


def test_a_new_start_time_is_a_restart(fleet, counts):
    """The ledger must say worker_restart, not eviction, when a cache vanished."""
    member = fleet.member(A)
    fleet.started(member, 1000.0)
    fleet.started(member, 1000.3)
    assert member.restarts == 0
    fleet.started(member, 1060.0)
    assert (member.restarts, counts.total("worker_restart", worker=A)) == (1, 1)


def test_kv_events_counting_anew_are_a_restart_seen_before_the_next_probe(fleet, clock):
    member = fleet.member(A)
    fleet.started(member, 1000.0)
    for number in (5, 6, 9, 9):
        fleet.sequence(A, number)
    assert member.restarts == 0
    fleet.sequence(A, 0)
    assert member.restarts == 1
    assert fleet.start_due(member)
    fleet.started(member, member.restart_noticed_at - 5)
    assert member.restarts == 1, "one restart, two witnesses"
    fleet.sequence(A, 1)
    assert member.restarts == 1
    fleet.started(member, member.started_at + 100)
    fleet.sequence(A, 0)
    assert member.restarts == 2, "and the other witness first"


def test_dns_adds_keeps_and_at_last_removes(counts, clock):
    """A pod that is not ready for a moment is missing from its service: its sessions must not move for that."""
    fleet = Fleet("workers", [WorkerSpec("dns+http://workers.svc:8000")], rule=Rule(), counts=counts, clock=clock)
    assert fleet.candidates("s") == []
    fleet.resolved([WorkerSpec(A), WorkerSpec(B)])
    assert stances(fleet) == {A: "open", B: "open"}
    fleet.resolved([WorkerSpec(B), WorkerSpec(C)])
    assert stances(fleet) == {A: "keep", B: "open", C: "open"}
    fleet.resolved([WorkerSpec(A), WorkerSpec(B), WorkerSpec(C)])
    assert stances(fleet)[A] == "open"
    for _ in range(3):
        fleet.resolved([WorkerSpec(B), WorkerSpec(C)])
    assert stances(fleet) == {B: "open", C: "open"}


def test_listed_workers_are_never_removed_by_dns(counts, clock):
    fleet = Fleet("workers", [WorkerSpec(A), WorkerSpec("dns+http://w:8000")], rule=Rule(), counts=counts, clock=clock)
    for _ in range(5):
        fleet.resolved([WorkerSpec(B)])
    assert stances(fleet) == {A: "open", B: "open"}


def test_what_is_due_is_handed_out_once(fleet, clock):
    """Several event loops watch one pool; each probe is to be made by one of them."""
    assert len(fleet.due()) == 2
    assert fleet.due() == []


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h", "https://h"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("dns+http://w.svc:8000/v1", "dns+http://w.svc:8000"),
    ],
)
def test_urls_are_written_one_way(given, url):
    """Two spellings of one worker would be two workers to the hash."""
    assert WorkerSpec(given).url == url


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("localhost:8000", "not a worker's URL"),
        ("ftp://h:1", "not a worker's URL"),
        ("http://user:secret@h:1", "no credentials"),
        ("dns+http://w.svc", "needs a port"),
        ("dns+https://w.svc:8000", "certificate"),
        ("dns+http://", "not a worker's URL"),
        ("", "not a worker's URL"),
    ],
)
def test_what_is_no_worker_is_named(given, says):
    with pytest.raises(OptionError, match=says) as caught:
        WorkerSpec(given)
    assert "secret" not in str(caught.value)


def test_lists_that_cannot_be_meant_are_refused():
    with pytest.raises(OptionError, match="at least one worker"):
        distinct([], "workers")
    with pytest.raises(OptionError, match="not one text"):
        distinct("http://h:1", "workers")
    with pytest.raises(OptionError, match="different weights"):
        distinct([WorkerSpec("http://h:1"), WorkerSpec("http://h:1/v1", 2.0)], "workers")
    assert len(distinct(["http://h:1", "http://h:1/v1"], "workers")) == 1

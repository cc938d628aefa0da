"""Placing sessions by arithmetic. If these fail, processes stop agreeing, or a lost worker takes other workers' prefixes with it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgate.errors import OptionError
from warmgate.workers.hashing import Named, Rendezvous, first_with_room, session_key

WORKERS = [f"http://10.0.0.{i}:8000" for i in range(8)]
KNOWN = [3, 7, 7, 6, 1, 6, 4, 0, 2, 1, 1, 7]
SESSIONS = [f"session-{i}" for i in range(4000)]


def equal(workers=WORKERS):
    return Rendezvous(dict.fromkeys(workers, 1.0))


def test_the_order_of_listing_does_not_matter():
    """Two routers whose settings list the same workers differently must send a session to one worker."""
    assert [equal().first(s) for s in SESSIONS] == [equal(WORKERS[::-1]).first(s) for s in SESSIONS]


def test_known_places():
    """An upgrade that changes the hash moves every session of a fleet at once, and splits it while routers of both versions run."""
    assert [WORKERS.index(equal().first(s)) for s in SESSIONS[:12]] == KNOWN


def test_another_process_agrees():
    """Python's own hash() differs between processes; ours must not."""
    code = (
        "from warmgate.workers.hashing import Rendezvous; r = Rendezvous({f'http://10.0.0.{i}:8000': 1.0 for i in range(8)});"
        "print([r.first(f'session-{i}') for i in range(200)])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}).stdout
    assert printed.strip() == str([equal().first(s) for s in SESSIONS[:200]])


def test_a_worker_that_leaves_takes_only_its_own_sessions():
    """Otherwise one crash costs the whole fleet its prefixes."""
    before, after = equal(), equal(WORKERS[1:])
    for session in SESSIONS:
        was = before.first(session)
        if was != WORKERS[0]:
            assert after.first(session) == was
        else:
            assert after.first(session) == before.ranked(session)[1].worker


def test_shares_follow_weights():
    """A worker with twice the memory is to hold twice the sessions."""
    weights = {w: float(1 + i % 3) for i, w in enumerate(WORKERS)}
    placed = Counter(Rendezvous(weights).first(s) for s in SESSIONS)
    for worker, weight in weights.items():
        share = len(SESSIONS) * weight / sum(weights.values())
        assert abs(placed[worker] - share) < 4.5 * math.sqrt(share)


def test_a_weight_that_grows_only_draws_sessions_to_itself():
    """Retuning one worker must not shuffle the others."""
    before = Rendezvous(dict.fromkeys(WORKERS, 1.0))
    after = Rendezvous({**dict.fromkeys(WORKERS, 1.0), WORKERS[3]: 2.0})
    moved = {after.first(s) for s in SESSIONS if after.first(s) != before.first(s)}
    assert moved == {WORKERS[3]}


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_weight_is_named(weight):
    with pytest.raises(OptionError, match="positive number"):
        Rendezvous({"http://a:1": weight})


def test_no_worker_is_said_plainly():
    with pytest.raises(OptionError, match="no worker"):
        Rendezvous({}).first("s")


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 50)), min_size=1, max_size=8),
    st.floats(1.0, 4.0),
)
def test_whoever_is_chosen_had_room(workers, bound):
    """Bounded load: no worker passes its bound while another has room, and there is always one that has."""
    ranked = [Named(str(i), float(weight)) for i, (weight, _) in enumerate(workers)]
    loads = {str(i): load for i, (_, load) in enumerate(workers)}
    chosen = first_with_room(ranked, loads.__getitem__, bound)
    total, weights = 1 + sum(loads.values()), sum(w for _, w in ranked)
    room = [w for w, weight in ranked if loads[w] < math.ceil(bound * total * weight / weights)]
    assert chosen == room[0]


def test_filling_a_fleet_keeps_every_worker_below_its_bound():
    """Eight agents on two workers must not end up seven to one."""
    loads: Counter[str] = Counter()
    hashing = equal()
    for number, session in enumerate(SESSIONS[:500], 1):
        loads[first_with_room(hashing.ranked(session), loads.__getitem__)] += 1
        assert max(loads.values()) <= math.ceil(1.25 * number / len(WORKERS))


def test_without_a_bound_the_hash_decides():
    assert first_with_room([Named("a", 1.0), Named("b", 1.0)], {"a": 10**6, "b": 0}.__getitem__, math.inf) == "a"


def test_keys_hide_the_session_and_keep_namespaces_apart():
    """A stolen store must not list users' conversation ids, and two deployments on one Redis must not meet."""
    key = session_key("alice@example.org", namespace="a", role="workers")
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")
    others = [
        session_key("alice@example.org", namespace="b", role="workers"),
        session_key("alice@example.org", namespace="a", role="gate_workers"),
        session_key("alice@example.org", namespace="a", role="workers", secret=b"k"),
        session_key("bob@example.org", namespace="a", role="workers"),
    ]
    assert len({key, *others}) == 5


@pytest.mark.parametrize("session", ["x" * 10_000_000, "\ud800", "\x00", "a\nb", "🤖" * 1000])
def test_any_text_has_a_key(session):
    assert len(session_key(session, namespace="n", role="workers")) == 32


@pytest.mark.parametrize("session", ["", None, 7, b"bytes"])
def test_what_is_no_session_is_refused(session):
    with pytest.raises(OptionError, match="session is a text"):
        session_key(session, namespace="n", role="workers")

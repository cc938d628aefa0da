"""If these fail, the price of a gate is wrong, and with it the decision a reader takes from it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmgate.replay.prepare import HashPreparer
from warmgate.replay.scenarios import NAMES, Costs, Simulation
from warmgate.replay.simulate import ROUTES, rendezvous, router
from warmgate.replay.trace import BlockPrompt, Call

G = 16


def growing(sessions=3, turns=6, start=20, step=5, tail=7):
    """Interleaved sessions that share their first ten blocks and grow by ``step`` blocks a turn."""
    calls, ids = [], {}
    fresh = iter(range(1000, 10**6))
    for _ in range(turns):
        for session in range(sessions):
            chain = ids.setdefault(session, list(range(10)) + [next(fresh) for _ in range(start - 10)])
            calls.append(Call(f"s{session}", "m", BlockPrompt(G, list(chain), len(chain) * G + tail)))
            chain += [next(fresh) for _ in range(step)]
    return calls


def run(calls, name, route="sticky", *, workers=1, kv_tokens=None, sidecar=False, questions=3, each=45):
    preparer = HashPreparer(None)
    simulation = Simulation(name, route, sidecar=sidecar, workers=workers, block_size=G, kv_tokens=kv_tokens)
    outcomes = [simulation.feed(preparer.prepare(c, c.prompt), questions, each) for c in calls]
    return simulation, outcomes


def test_the_seed_scenario():
    """One long prompt, three questions, one call: the figures this product was built on (about 2, 2 and 1 times the floor)."""
    calls = [Call("s", "m", BlockPrompt(32, list(range(345)), 11_071))]
    ratios = {}
    for name in NAMES:
        preparer = HashPreparer(None)
        simulation = Simulation(name, "sticky", sidecar=False, workers=1, block_size=32, kv_tokens=None)
        simulation.feed(preparer.prepare(calls[0], calls[0].prompt), 3, 45)
        ratios[name] = simulation.computed / simulation.floor
    assert ratios["none"] == 1
    assert 1.95 < ratios["separate"] <= ratios["json"] < 2.05
    assert 1 < ratios["aligned"] < 1.02


def test_none_computes_the_floor_on_one_unbounded_worker():
    """The tax would be measured from a base that is not zero."""
    simulation, outcomes = run(growing(), "none")
    assert simulation.computed == simulation.floor
    assert all(o.survived == o.reusable and o.cause is None for o in outcomes)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kv_tokens", [None, 3000, 900])
def test_no_scenario_computes_less_than_its_floor(route, workers, kv_tokens):
    """A saving would be claimed that no cache can give."""
    for name in NAMES:
        simulation, _ = run(growing(), name, route, workers=workers, kv_tokens=kv_tokens)
        assert simulation.computed >= simulation.floor
        assert 0 <= simulation.survived <= simulation.reusable


def test_aligned_costs_its_questions_and_block_rounding_only():
    """Alignment's advantage would be overstated: per read at most its tokens and one block, per call one block."""
    calls = growing()
    base, _ = run(calls, "none")
    aligned, _ = run(calls, "aligned")
    tax = aligned.computed - base.computed
    assert 3 * 45 * len(calls) <= tax <= len(calls) * (3 * (45 + 2 * G) + G)
    assert aligned.gate_tokens + (aligned.computed - aligned.gate_tokens) == aligned.computed


def test_json_restates_the_conversation_once_and_then_only_what_is_new():
    """The JSON scenario would be made to look worse than it is."""
    calls = growing(sessions=1, turns=5)
    base, _ = run(calls, "none")
    json, _ = run(calls, "json")
    restated = json.computed - base.computed
    assert restated >= base.computed  # all of it, once
    assert restated <= base.computed + len(calls) * (3 * (45 + 2 * G) + 3 * G)


def test_random_routing_loses_to_worker_change_and_a_small_cache_to_eviction():
    """Losses would be blamed on the wrong thing."""
    _, outcomes = run(growing(), "none", "random", workers=3)
    assert {o.cause for o in outcomes if o.survived < o.reusable} == {"worker_change"}
    _, outcomes = run(growing(), "none", kv_tokens=G * 60)
    assert {o.cause for o in outcomes if o.survived < o.reusable} == {"eviction"}


def test_sidecar_leaves_the_agents_calls_alone():
    """A sidecar's tokens would be counted as the agent's."""
    calls = growing()
    base, _ = run(calls, "none")
    for name in ("json", "aligned"):
        side, _ = run(calls, name, sidecar=True)
        assert side.computed - side.gate_tokens == base.computed
        assert side.gate == "sidecar"


def test_costs_are_kept_apart():
    """Milliseconds of hop and of prefill would be mixed."""
    calls = growing()
    base, _ = run(calls, "none")
    json, _ = run(calls, "json")
    result = json.result(base, Costs(prefill_rate=1000, hop_ms=5, price_per_mtok=2))
    assert result.tax_tokens == json.computed - base.computed
    assert result.tax_ms is not None
    assert result.tax_ms.hop == 5 * len(calls)
    assert result.tax_ms.prefill == result.tax_tokens
    assert result.tax_money == pytest.approx(result.tax_tokens * 2e-6)
    assert json.result(base, Costs()).tax_ms is None
    assert base.result(base, Costs(hop_ms=5)).tax_ms.hop == 0


def test_no_questions_is_no_gate():
    """Zero questions would still be charged."""
    base, _ = run(growing(), "none")
    for name in NAMES:
        simulation, _ = run(growing(), name, questions=0)
        assert simulation.computed == base.computed


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 15)), min_size=1, max_size=20),
    st.sampled_from(ROUTES),
    st.integers(1, 3),
    st.sampled_from([None, 64, 400, 2000]),
    st.integers(0, 4),
    st.integers(1, 70),
)
def test_invariants_on_any_trace(script, route, workers, kv_tokens, questions, each):
    """Odd traces (one block, one token, cuts back to the start) would break a sum."""
    calls = [Call(f"s{s}", "m", BlockPrompt(G, [s, *range(100, 99 + n)], n * G + tail)) for s, n, tail in script]
    for name in NAMES:
        simulation, outcomes = run(calls, name, route, workers=workers, kv_tokens=kv_tokens, questions=questions, each=each)
        assert simulation.computed >= simulation.floor > 0
        for call, outcome in zip(calls, outcomes, strict=True):
            assert 0 <= outcome.survived <= outcome.reusable < call.prompt.tokens
            assert (outcome.cause is None) == (outcome.survived == outcome.reusable)


def test_sticky_is_stable_and_moves_few_when_workers_are_added():
    """Adding a worker would move every session."""
    before = [rendezvous(f"s{i}", 4) for i in range(400)]
    after = [rendezvous(f"s{i}", 5) for i in range(400)]
    moved = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert all(b == 4 for _, b in moved)
    assert 40 < len(moved) < 130
    route = router("sticky", 4)
    assert [route(f"s{i}") for i in range(400)] == before

"""If these fail, the price of a gate is wrong, and with it the decision a reader takes from it."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmgate.prefix.cache import PrefixCache
from warmgate.replay.prepare import HashPreparer
from warmgate.replay.scenarios import NAMES, Costs, Simulation
from warmgate.replay.simulate import AGENT, ROUTES, BoundedWorker, Sticky, router
from warmgate.replay.trace import BlockPrompt, Call

G = 16


class Counted:
    """Counts calls of a method and lets them through."""

    def __init__(self):
        self.count = 0

    def around(self, method):
        def counted(*args, **kwargs):
            self.count += 1
            return method(*args, **kwargs)

        return counted


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


def test_a_call_larger_than_the_cache_is_computed_in_full_and_leaves_nothing_behind():
    """Tokens would be saved by a request that an engine refuses."""
    small, large = BlockPrompt(G, range(10), 10 * G + 1), BlockPrompt(G, range(20), 20 * G + 1)
    calls = [Call("s", "m", small), Call("s", "m", large), Call("s", "m", large), Call("s", "m", small)]
    simulation, outcomes = run(calls, "none", kv_tokens=15 * G)
    assert [o.survived for o in outcomes] == [0, 0, 0, 10 * G]
    assert [o.cause for o in outcomes] == [None, "eviction", "eviction", None]
    assert simulation.computed == small.tokens + 2 * large.tokens + 1
    assert simulation.refused_calls == 2


@pytest.mark.parametrize("name", ["separate", "json", "aligned"])
def test_reads_larger_than_the_cache_share_nothing_with_each_other(name):
    """All questions but the first of a refused decision would look nearly free."""
    prompt = BlockPrompt(G, range(10), 10 * G + 8)
    simulation, outcomes = run([Call("s", "m", prompt)] * 2, name, kv_tokens=11 * G, questions=4, each=100)
    assert simulation.refused_asks == 2
    assert simulation.refused_calls == 0
    reads = 1 if name == "separate" else 4
    state = prompt.tokens - (4 if name == "aligned" else 0)
    assert simulation.gate_tokens == 2 * (reads * state + 400)
    assert [o.survived for o in outcomes] == [0, 10 * G]  # the calls themselves fit


def test_an_answer_without_room_is_cut_and_its_prompt_stays():
    """A long answer would make its whole conversation look evicted."""
    worker = BoundedWorker(G, 12)
    nodes = array("q", range(20))
    worker.serve(AGENT, nodes, 20, 20 * G, 10 * G)
    assert worker.hit(AGENT, nodes, 20) == 12
    assert not worker.fits(12 * G + 1)


def test_the_most_questions_over_the_longest_prompt_are_cheap(monkeypatch):
    """The largest numbers the options allow would take minutes and gigabytes."""
    stored = Counted()
    monkeypatch.setattr("warmgate.replay.simulate.PrefixCache.run", stored.around(PrefixCache.run))
    calls = [Call("s", "m", BlockPrompt(G, range(50 + i), 1 << 34)) for i in range(5)]
    for name in NAMES:
        simulation, _ = run(calls, name, kv_tokens=1 << 40, questions=1024, each=1 << 20)
        assert len(simulation.agents) == 1
    assert stored.count <= 5 * (1 + 2 + 2 + 2)  # once a call and once a decision, whatever it asks
    for name in NAMES:
        simulation, _ = run(calls, name, kv_tokens=1 << 20, questions=1024, each=1 << 20)
        assert simulation.refused_calls == 5


def test_repeated_reads_cost_what_they_cost_one_by_one():
    """The price of many questions would drift from the price of few."""
    calls = growing(sessions=2, turns=4)
    for name in ("json", "aligned"):
        for kv_tokens in (None, 2000):
            whole, _ = run(calls[:1], name, kv_tokens=kv_tokens, questions=5, each=33)
            one, _ = run(calls[:1], name, kv_tokens=kv_tokens, questions=1, each=33)
            prompt = calls[0].prompt.tokens
            state = prompt if name == "json" else prompt - 4
            assert whole.gate_tokens - one.gate_tokens == 4 * (state % G + 33)


def test_workers_are_made_when_their_first_request_comes():
    """A fleet of thousands would take memory for every worker of it in each of a dozen simulations."""
    simulation, _ = run(growing(), "json", workers=4096, kv_tokens=1 << 30)
    assert len(simulation.agents) <= 3
    simulation, _ = run(growing(), "none", "random", workers=4096)
    assert len(simulation.agents) <= 18


def test_simulations_of_a_trace_hash_a_session_once(monkeypatch):
    """Replaying many sessions over many workers would take a dozen times as long."""
    choose = Counted()
    monkeypatch.setattr(Sticky, "_choose", choose.around(Sticky._choose))
    sticky = Sticky(8)
    calls = growing(sessions=5, turns=3)
    preparer = HashPreparer(None)
    prepared = [preparer.prepare(c, c.prompt) for c in calls]
    for route in ROUTES:
        for name in NAMES:
            one = Simulation(name, route, sidecar=False, workers=8, block_size=G, kv_tokens=None, sticky=sticky)
            for call in prepared:
                one.feed(call, 3, 45)
    assert choose.count == 5


def test_round_robin_sends_decisions_and_calls_to_one_worker_after_the_other():
    """With as many requests a turn as workers every call would meet its own read, or never: not what a balancer does."""
    calls = growing(sessions=1, turns=6)
    for name in ("json", "aligned"):
        simulation, outcomes = run(calls, name, "round_robin", workers=2)
        # one decision and one call a turn: all decisions reach worker 0, all calls worker 1
        assert [o.survived for o in outcomes[1:]] == [c.prompt.tokens // G * G for c in calls[:-1]]
        assert simulation.agents[0].hit(AGENT, array("q", range(5)), 5) == (5 if name == "aligned" else 0)
        assert simulation.agents[1].hit(AGENT, array("q", range(5)), 5) == 5
        _, outcomes = run(calls, name, "round_robin", workers=3)
        if name == "json":  # a call every second request of three workers: 1, 0, 2, 1, 0, 2
            assert [o.survived > 0 for o in outcomes] == [False, False, False, True, True, True]
    _, outcomes = run(calls, "none", "round_robin", workers=2)
    assert [o.survived > 0 for o in outcomes] == [False, False, True, True, True, True]


def test_all_questions_of_a_decision_reach_one_worker():
    """A decision is one request: its questions would seem to be spread over the fleet."""
    simulation, _ = run(growing(sessions=1, turns=1), "json", "round_robin", workers=8, questions=5)
    assert len(simulation.agents) == 2


def test_random_draws_anew_for_every_request_and_alike_in_every_run():
    """Two runs would show different figures, or random would be sticky by accident."""
    one, two = (router("random", 4) for _ in range(2))
    draws = [one("s") for _ in range(200)]
    assert draws == [two("s") for _ in range(200)]
    assert set(draws) == {0, 1, 2, 3}


def test_a_gate_on_workers_of_its_own_keeps_sessions_there_whatever_the_agents_route():
    """A separate router would lose its cache to the agent's balancer."""
    calls = growing()
    for name, sidecar in (("separate", False), ("json", True), ("aligned", True)):
        sticky, _ = run(calls, name, "sticky", workers=4, sidecar=sidecar)
        for route in ("random", "round_robin"):
            other, _ = run(calls, name, route, workers=4, sidecar=sidecar)
            assert other.gate_tokens == sticky.gate_tokens


def test_block_numbers_grow_along_a_chain():
    """Flags are set by stretches of numbers; a chain out of order would mark blocks that nobody stored."""
    calls = growing()
    odd = [Call("x", "m", BlockPrompt(G, ids, len(ids) * G)) for ids in ([5, 6, 7], [7, 6, 5], [6, 6, 6, 7], [5, 7, 6, 7])]
    preparer = HashPreparer(None)
    for call in [*calls, *odd]:
        nodes = list(preparer.prepare(call, call.prompt).nodes)
        assert nodes == sorted(set(nodes))


scripts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 15), st.sampled_from("mn")),
    min_size=1,
    max_size=20,
)


def trace(script):
    """Calls of a few sessions and models whose prompts share fronts of any length."""
    return [Call(f"s{s}", model, BlockPrompt(G, [s, *range(100, 99 + n)], n * G + tail)) for s, n, tail, model in script]


@settings(max_examples=60, deadline=None)
@given(scripts, st.integers(1, 4), st.integers(1, 70), st.booleans(), st.integers(1, 3))
def test_a_huge_cache_is_the_same_as_no_bound(script, questions, each, sidecar, workers):
    """Giving --kv-tokens would change figures although nothing is ever evicted."""
    calls = trace(script)
    for name in NAMES:
        for route in ROUTES:
            shown = []
            for kv_tokens in (None, 1 << 40):
                simulation, outcomes = run(
                    calls, name, route, workers=workers, kv_tokens=kv_tokens, sidecar=sidecar, questions=questions, each=each
                )
                shown.append((simulation.computed, simulation.gate_tokens, simulation.floor, [(o.survived, o.reusable) for o in outcomes]))
            assert shown[0] == shown[1]


@settings(max_examples=60, deadline=None)
@given(scripts, st.integers(1, 4), st.integers(1, 70))
def test_no_gate_is_cheapest_and_alignment_beats_json(script, questions, each):
    """The ranking of gates, which readers decide by, would turn over on some trace.

    A read recomputes the part of a block before its question, up to one block; that is all json can be ahead by.
    """
    calls = trace(script)
    computed = {name: run(calls, name, questions=questions, each=each)[0].computed for name in NAMES}
    assert computed["none"] <= computed["aligned"]
    assert computed["none"] <= computed["separate"]
    assert computed["aligned"] <= computed["json"] + len(calls) * questions * G


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
    four, five = Sticky(4), Sticky(5)
    before = [four(f"s{i}") for i in range(400)]
    after = [five(f"s{i}") for i in range(400)]
    moved = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert all(b == 4 for _, b in moved)
    assert 40 < len(moved) < 130
    route = router("sticky", 4)
    assert [route(f"s{i}") for i in range(400)] == before

"""If these fail, sums and ratios of a report are wrong, or claim to be measured when they are not."""

from __future__ import annotations

from warmgate.prefix.ledger import Entry, Ledger


def test_survival_is_a_ratio_of_sums_and_not_applicable_is_not_zero():
    """A first call of every session would drag survival down."""
    ledger = Ledger()
    ledger.add(Entry(100, shared=0, reusable=0, survived=0))
    assert ledger.survival is None
    ledger.add(Entry(200, shared=100, reusable=96, survived=96))
    ledger.add(Entry(1000, shared=900, reusable=896, survived=0, cause="eviction"))
    assert ledger.survival == 96 / 992
    assert ledger.hit_rate == 96 / 1300
    assert ledger.lost == {"eviction": 896}
    assert ledger.rounding == 8


def test_more_survived_than_reusable_is_counted_not_capped():
    """A fault of the model of the cache would be hidden."""
    ledger = Ledger()
    ledger.add(Entry(100, shared=32, reusable=32, survived=48, survived_basis="measured"))
    assert ledger.surplus == 16
    assert ledger.lost == {}
    assert ledger.survival == 1.5


def test_usage_alone_gives_a_hit_rate_and_no_survival():
    """Claude Code and Codex traces would show an invented survival."""
    ledger = Ledger()
    ledger.add(Entry(100, "measured", survived=60, survived_basis="measured", reported_cached=60))
    assert ledger.survival is None
    assert ledger.reusable is None
    assert ledger.hit_rate == 0.6
    assert ledger.basis["hit_rate"] == "measured"


def test_one_predicted_part_makes_a_sum_predicted():
    """A figure would claim to be measured although half of it was simulated."""
    ledger = Ledger()
    ledger.add(Entry(100, "measured", survived=60, survived_basis="measured"))
    ledger.add(Entry(100, "measured", shared=10, reusable=0, survived=0, survived_basis="predicted"))
    assert ledger.basis["survived_tokens"] == "predicted"
    assert ledger.basis["prompt_tokens"] == "measured"


def test_a_loss_without_evidence_is_unknown():
    """A cause would be guessed."""
    ledger = Ledger()
    ledger.add(Entry(100, shared=50, reusable=48, survived=0))
    assert ledger.lost == {"unknown": 48}


def test_merging_is_adding():
    """Several traces would not sum to their parts."""
    entries = [Entry(100, shared=50, reusable=48, survived=16, cause="eviction"), Entry(None), Entry(10, "measured", reported_cached=3)]
    one, two, whole = Ledger(), Ledger(), Ledger()
    for i, entry in enumerate(entries):
        (one if i % 2 else two).add(entry)
        whole.add(entry)
    one.merge(two)
    assert one == whole

"""Answers: a distribution over the labels asked, or an error; never something in between."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from warmgate.answers import SUM_TOLERANCE, Answer, Source, Usage, calibrated, confidence, distribution, uncalibrated, winner
from warmgate.errors import MalformedAnswer
from warmgate.questions import Choice, Noul, Score

SOURCE = Source(engine="systemone", worker="http://w", model="m", dialect="vllm", request_id="r", latency_s=0.1)
LABELS = st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=30, unique=True)


def weights(n: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0, 1, allow_nan=False), min_size=n, max_size=n).filter(lambda w: math.fsum(w) > 1e-6)


@given(st.data())
def test_any_distribution_is_taken_in_the_order_asked_and_sums_to_one(data: st.DataObject):
    labels = data.draw(LABELS)
    drawn = data.draw(weights(len(labels)))
    total = math.fsum(drawn)
    off = data.draw(st.floats(1 - SUM_TOLERANCE * 0.99, 1.0))  # a server that rounds
    given_ = dict(data.draw(st.permutations(list(zip(labels, (w / total * off for w in drawn), strict=True)))))
    found = distribution(labels, given_, question="q")
    assert list(found) == labels
    assert math.isclose(math.fsum(found.values()), 1.0, rel_tol=1e-9)
    assert all(0.0 <= p <= 1.0 + 1e-12 for p in found.values())
    assert given_[winner(found)] == max(given_.values())
    assert 0.0 <= confidence(found) <= 1.0


@given(st.data())
def test_a_value_outside_zero_to_one_is_no_answer(data: st.DataObject):
    labels = data.draw(LABELS)
    drawn = data.draw(weights(len(labels)))
    given_ = dict(zip(labels, (w / math.fsum(drawn) for w in drawn), strict=True))
    given_[data.draw(st.sampled_from(labels))] = data.draw(
        st.sampled_from([math.nan, math.inf, -math.inf, -1e-9, 1.0000001, 2.0, -1.0])
        | st.floats(max_value=-1e-9)
        | st.floats(min_value=1.001)
    )
    with pytest.raises(MalformedAnswer):
        distribution(labels, given_, question="q")


@given(st.data())
def test_a_sum_that_misses_one_is_no_answer(data: st.DataObject):
    labels = data.draw(LABELS)
    drawn = data.draw(weights(len(labels)))
    scale = data.draw(st.floats(0.0, 1 - SUM_TOLERANCE * 1.01) | st.floats(1 + SUM_TOLERANCE * 1.01, 3.0))
    given_ = dict(zip(labels, (w / math.fsum(drawn) * scale for w in drawn), strict=True))
    with pytest.raises(MalformedAnswer):
        distribution(labels, given_, question="q")


@given(st.data())
def test_missing_or_unknown_labels_are_no_answer(data: st.DataObject):
    labels = data.draw(LABELS)
    given_ = dict.fromkeys(labels, 1 / len(labels))
    change = data.draw(st.sampled_from(["drop", "add", "rename"]))
    victim = data.draw(st.sampled_from(labels))
    if change in ("drop", "rename"):
        del given_[victim]
    if change in ("add", "rename"):
        given_[victim.upper()] = 1 / len(labels)
    with pytest.raises(MalformedAnswer, match="labels"):
        distribution(labels, given_, question="q")


def test_confidence_is_zero_at_chance_and_one_at_certainty_for_any_number_of_labels():
    """One threshold must mean the same for two options and for twenty."""
    for n in (2, 3, 20):
        assert confidence(dict.fromkeys(map(str, range(n)), 1 / n)) == pytest.approx(0.0, abs=1e-12)
        assert confidence({**dict.fromkeys(map(str, range(n)), 0.0), "0": 1.0}) == 1.0
    assert confidence({"yes": 0.75, "no": 0.25}) == pytest.approx(0.5)
    assert confidence({"only": 1.0}) == 1.0


def test_values_come_from_the_probabilities():
    choice = calibrated("q", Choice(criteria={"a": None, "b": None}), {"b": 0.7, "a": 0.3}, SOURCE)
    assert (choice.value, choice.probabilities) == ("b", {"a": 0.3, "b": 0.7})
    noul = calibrated("q", Noul(), {"no": 0.2, "yes": 0.8}, SOURCE)
    assert noul.value == pytest.approx(0.8)
    score = calibrated("q", Score(criteria=("lo", "mid", "hi")), {"lo": 0.5, "mid": 0.25, "hi": 0.25}, SOURCE)
    assert score.value == pytest.approx(0.75)
    assert not score.uncalibrated


@pytest.mark.parametrize(
    ("question", "given_", "said"),
    [
        (Choice(criteria={"a": None, "b": None}), {"a": 0.6, "b": 0.4}, "b"),
        (Choice(criteria={"a": None, "b": None}), {"a": 0.6, "b": 0.4}, "c"),
        (Noul(), {"yes": 0.6, "no": 0.4}, 0.4),
        (Noul(), {"yes": 0.6, "no": 0.4}, math.nan),
        (Score(criteria=("lo", "mid", "hi")), {"lo": 0.5, "mid": 0.3, "hi": 0.2}, 0.0),
    ],
)
def test_a_server_that_contradicts_itself_has_not_answered(question: Choice | Noul | Score, given_: dict[str, float], said: str | float):
    """Which of the two it meant cannot be known, and a gate must not guess."""
    with pytest.raises(MalformedAnswer):
        calibrated("q", question, given_, SOURCE, server_value=said)


def test_a_tie_is_broken_as_the_server_broke_it():
    assert calibrated("q", Choice(criteria={"a": None, "b": None}), {"a": 0.5, "b": 0.5}, SOURCE, server_value="b").value == "b"


@pytest.mark.parametrize("mass", [-0.1, 1.5, math.nan, math.inf])
def test_an_impossible_label_mass_is_no_answer(mass: float):
    with pytest.raises(MalformedAnswer):
        calibrated("q", Noul(), {"yes": 0.5, "no": 0.5}, SOURCE, label_mass=mass)


def test_an_answer_without_probabilities_says_so_and_has_no_numbers():
    answer = uncalibrated("q", Score(criteria=("lo", "mid", "hi")), "mid", SOURCE)
    assert answer.uncalibrated
    assert (answer.value, answer.probabilities, answer.confidence, answer.label_mass) == (1.0, None, None, None)
    assert uncalibrated("q", Noul(), "no", SOURCE).value == 0.0
    with pytest.raises(MalformedAnswer):
        uncalibrated("q", Noul(), "maybe", SOURCE)


def test_usage_adds_up_and_unknown_stays_unknown():
    one = Usage(input_tokens=10, output_tokens=1, cached_tokens=8)
    assert one + one == Usage(input_tokens=20, output_tokens=2, cached_tokens=16)
    assert (one + Usage(input_tokens=5, output_tokens=1)).cached_tokens is None


def test_an_answer_is_json():
    answer = calibrated("q", Noul(), {"yes": 0.6, "no": 0.4}, SOURCE)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_nouls_value_and_its_probabilities_agree(p: float, said: float):
    assume(abs(p - said) > 0.05)
    with pytest.raises(MalformedAnswer):
        calibrated("q", Noul(), {"yes": p, "no": 1 - p}, SOURCE, server_value=said)

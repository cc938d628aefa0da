"""If these fail, a threshold promises an error rate that does not hold, or is used for a question it was not made for."""

from __future__ import annotations

import json
import math
import random
from xml.etree import ElementTree as ET

import pytest

from warmgate.answers import Answer, Source
from warmgate.errors import InputError
from warmgate.questions import Choice, Noul
from warmgate_policies.calibration import PolicyFile, calibrate, parse_labels, take
from warmgate_policies.calibration.bounds import GRID, labels_needed, threshold, upper_bound
from warmgate_policies.calibration.drift import compare
from warmgate_policies.calibration.fit import Fit, learn
from warmgate_policies.calibration.measures import brier, expected_calibration_error, reliability, risk_coverage
from warmgate_policies.calibration.plot import svg

QUESTION = {"type": "noul", "instructions": "Is this command risky?", "criteria": None}
CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": "bee", "c": None}}


def overconfident(draw: random.Random, sharpness: float = 3.0) -> tuple[float, bool]:
    """A decider that knows the true probability and says it ``sharpness`` times too loud (in log-odds)."""
    truth = draw.betavariate(0.5, 0.5)
    truth = min(max(truth, 1e-6), 1 - 1e-6)
    odds = math.log(truth / (1 - truth)) * sharpness
    return 1 / (1 + math.exp(-odds)), draw.random() < truth


def rows(count: int, seed: int = 1, **more: object) -> bytes:
    draw = random.Random(seed)
    lines = []
    for i in range(count):
        p, yes = overconfident(draw)
        row = {"id": "risky", "question": QUESTION, "model": "m", "probabilities": {"yes": p, "no": 1 - p}, "label": "yes" if yes else "no"}
        lines.append(json.dumps({**row, "state": {"argv": [str(i)]}, **more}))
    return "\n".join(lines).encode()


def answer(p: float, **more: object) -> Answer:
    source = Source(engine="systemone", worker="w", model="m", dialect="vllm", request_id="r", latency_s=0)
    given = {
        "id": "risky", "type": "noul", "value": p, "probabilities": {"yes": p, "no": 1 - p}, "confidence": None,
        "server_confidence": None, "label_mass": 1.0, "argmax_is_label": True, "source": source,
    }  # fmt: skip
    return Answer(**{**given, **more})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def policy() -> PolicyFile:
    return calibrate(parse_labels(rows(1600), where="labels"), max_error=0.1)


def test_the_promised_error_rate_holds_on_fresh_draws():
    """1,000 calibrations of a decider three times too sure. Its true error above each threshold is known exactly."""
    draw = random.Random(7)
    population = [overconfident(draw) for _ in range(100_000)]
    true_error = {}
    for cut in GRID:
        above = [yes for p, yes in population if p >= max(cut, 0.5)]
        true_error[cut] = above.count(False) / len(above)
    assert true_error[0.5] > 0.12  # the lowest threshold would break the promise
    broken = promised = 0
    for trial in range(1000):
        fresh = random.Random(1000 + trial)
        picked = [(p, yes) for p, yes in (overconfident(fresh) for _ in range(600)) if p >= 0.5]
        found = threshold([p for p, _ in picked], [not yes for _, yes in picked], max_error=0.12, delta=0.05)
        if found is not None:
            promised += 1
            broken += true_error[found.at] > 0.12
    assert promised >= 900
    assert broken <= 50


def test_bounds_are_clopper_and_pearsons():
    """Zero errors in n: 1 − δ^(1/n), the one bound that can be done by hand."""
    assert upper_bound(0, 59, 0.05) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert upper_bound(5, 5, 0.05) == 1.0
    assert upper_bound(0, 0, 0.05) == 1.0
    needed = labels_needed(0.05, 0.05)
    assert upper_bound(0, needed, 0.005) <= 0.05 < upper_bound(0, needed - 1, 0.005)


def test_a_decider_that_is_too_sure_is_made_honest(policy):
    entry = policy.entries[0]
    assert entry.fit.kind == "isotonic"
    assert entry.ece["calibrated"].value < entry.ece["raw"].value / 2
    assert entry.brier["calibrated"].high < entry.brier["raw"].value
    temperature = learn([{"yes": p, "no": 1 - p} for p, _ in (overconfident(random.Random(i)) for i in range(2000))],
                        ["yes" if overconfident(random.Random(i))[1] else "no" for i in range(2000)], "temperature")  # fmt: skip
    assert temperature.temperature == pytest.approx(3.0, rel=0.2)


def test_an_answer_is_taken_only_above_its_threshold(policy):
    entry = policy.entry(Noul(instructions=QUESTION["instructions"]), model="m", dialect="vllm")
    assert entry is not None
    cut = entry.thresholds["yes"].at
    assert take(entry, answer(1.0)).label == "yes"
    assert take(entry, answer(cut)).label == "yes"
    assert take(entry, answer(cut - 1e-9)).label is None
    assert take(entry, answer(0.5)).label is None
    assert take(entry, answer(1.0, argmax_is_label=False)).label is None
    assert take(entry, answer(1.0, probabilities=None)).label is None
    assert take(None, answer(1.0)).label is None


def test_a_threshold_holds_for_its_own_question_model_and_dialect_alone(policy):
    asked = Noul(instructions=QUESTION["instructions"])
    assert policy.entry(asked, model="other", dialect="vllm") is None
    assert policy.entry(asked, model="m", dialect="sglang") is None
    assert policy.entry(Noul(instructions="Is this command risky"), model="m", dialect="vllm") is None


def test_the_order_of_options_is_part_of_the_question():
    lines = [
        json.dumps({"question": q, "model": "m", "probabilities": {"a": 0.98, "b": 0.01, "c": 0.01}, "label": "a"})
        for q in (CHOICE, {**CHOICE, "criteria": dict(reversed(CHOICE["criteria"].items()))})  # type: ignore[attr-defined]
        for _ in range(200)
    ]
    made = calibrate(parse_labels("\n".join(lines).encode(), where="f"))
    assert len(made.entries) == 2
    assert made.entry(Choice(criteria=CHOICE["criteria"], instructions="Which?"), model="m", dialect="vllm") is made.entries[0]  # type: ignore[arg-type]


def test_too_few_labels_are_refused_with_how_many_are_needed():
    with pytest.raises(InputError, match=r"at least \d+ are needed"):
        calibrate(parse_labels(rows(40), where="f"))


def test_answers_that_are_too_often_wrong_get_no_threshold():
    draw = random.Random(3)
    lines = [
        json.dumps(
            {"question": QUESTION, "model": "m", "probabilities": {"yes": draw.random(), "no": 0}, "label": draw.choice(["yes", "no"])}
        )
        for _ in range(2000)
    ]
    honest = [json.loads(line) for line in lines]
    for row in honest:
        row["probabilities"]["no"] = 1 - row["probabilities"]["yes"]
    with pytest.raises(InputError, match="too often wrong"):
        calibrate(parse_labels("\n".join(map(json.dumps, honest)).encode(), where="f"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "perhaps"}), "none of yes, no"),
        (json.dumps({"question": QUESTION, "label": "yes"}), "names no model"),
        (json.dumps({"question": {"type": "x"}, "model": "m", "label": "yes"}), "type"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "yes", "probabilities": {"yes": 2, "no": 0}}), "probability"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "yes", "probabilities": {"yes": "x"}}), "no number"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "yes", "probabilities": {"yes": True, "no": False}}), "no number"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "yes"}), "neither probabilities nor a state"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "yes", "state": float("nan")}), "cannot be kept"),
        (json.dumps({"question": QUESTION, "model": "m", "label": "yes", "state": ["\ud800"]}), "cannot be kept"),
        ("", "holds no label"),
    ],
)
def test_a_broken_label_names_its_line(line, why):
    with pytest.raises(InputError, match=why) as caught:
        parse_labels(line.encode(), where="labels.jsonl")
    assert "labels.jsonl" in str(caught.value)


def test_a_policy_file_survives_being_written(policy):
    import msgspec

    again = PolicyFile.parse(msgspec.json.encode(policy), where="p.json")
    assert again == policy
    with pytest.raises(InputError, match="not a policy file"):
        PolicyFile.parse(b"{}", where="p.json")
    with pytest.raises(InputError, match="was changed after it was made"):
        PolicyFile.parse(msgspec.json.encode(policy).replace(b'"at":0.', b'"at":0.0'), where="p.json")
    for field, value in (("at", -5), ("temperature", 0)):
        made = json.loads(msgspec.json.encode(policy))
        part = made["entries"][0]["fit"] if field == "temperature" else made["entries"][0]["thresholds"]["yes"]
        part[field] = value
        with pytest.raises(InputError, match="not a policy file"):
            PolicyFile.parse(json.dumps(made).encode(), where="p.json")
    with pytest.raises(InputError, match="calibrate again"):
        PolicyFile.parse(msgspec.json.encode(policy).replace(b"policy/1", b"policy/9"), where="p.json")


def test_drift_is_a_moved_answer_a_flipped_one_or_none(policy):
    entry = policy.entries[0]
    then = [pin.probabilities for pin in entry.pinned]
    assert len(then) == 32
    assert not compare(entry, then).drifted
    assert compare(entry, [{"yes": p["no"], "no": p["yes"]} for p in then]).drifted
    assert compare(entry, [*then[:-1], None]).drifted
    assert compare(entry, [None] * len(then)).drifted


def test_a_version_is_the_same_however_states_are_written():
    """Else a file would be refused that nobody touched."""
    import msgspec

    states = [1, 1.0, -0.0, 1e300, 5e-324, 0.1 + 0.2, "é\u2028", "", [], {"b": 1, "a": [None, True]}, 2**63, 2**70, "text"]
    lines = [{**json.loads(line), "state": states[i % len(states)]} for i, line in enumerate(rows(400).splitlines())]
    made = calibrate(parse_labels("\n".join(map(json.dumps, lines)).encode(), where="f"), max_error=0.3)
    assert PolicyFile.parse(msgspec.json.format(msgspec.json.encode(made), indent=1), where="p") == made


def test_labels_that_repeat_or_contradict_are_counted():
    """The promise is on draws like the labels: a file that is there twice promises too much, and only its maker can know."""
    lines = [json.loads(line) for line in rows(400).splitlines()]
    for line in lines[:10]:
        line["state"] = "same"
    entry = calibrate(parse_labels("\n".join(map(json.dumps, lines)).encode(), where="f"), max_error=0.3).entries[0]
    assert (entry.repeated, entry.contradicted) == (9, 1)


def test_figures_with_error_bars_are_what_their_definitions_say():
    sure, right = [0.6, 0.7, 0.8, 0.9], [True, False, True, True]
    ece = expected_calibration_error(sure, right)
    assert ece.value == pytest.approx((0.4 + 0.7 + 0.2 + 0.1) / 4)  # a bin each
    assert ece.low <= ece.value <= ece.high + 0.2
    many = [0.7] * 1000
    hits = [i % 10 < 7 for i in range(1000)]
    assert expected_calibration_error(many, hits).value == pytest.approx(
        sum(abs(p.at - p.rate) * p.n for p in reliability(many, hits)) / 1000
    )
    score = brier([{"yes": p, "no": 1 - p} for p in sure], ["yes" if hit else "no" for hit in right])
    assert score.value == pytest.approx(2 * (0.16 + 0.49 + 0.04 + 0.01) / 4)
    assert score.low <= score.value <= score.high
    curve = risk_coverage(sure, right, points=4)
    assert [(p.at, p.rate, p.n) for p in curve] == [(0.25, 0, 1), (0.5, 0, 2), (0.75, 1 / 3, 3), (1.0, 0.25, 4)]


def test_the_plot_is_one_well_formed_picture(policy):
    picture = ET.fromstring(svg([*policy.entries, *policy.entries]))
    assert len(picture.findall("{http://www.w3.org/2000/svg}g")) == 2


def test_a_fit_keeps_distributions_distributions():
    for fit in (
        Fit(kind="temperature", temperature=0.05),
        Fit(kind="temperature", temperature=20.0),
        Fit(kind="isotonic", x=(0.2, 0.2, 0.9), y=(0.1, 0.4, 1.0)),
    ):
        for p in (0.0, 1e-9, 0.2, 0.5, 1.0):
            mended = fit.apply({"yes": p, "no": 1 - p})
            assert sum(mended.values()) == pytest.approx(1.0)
            assert all(0 <= value <= 1 for value in mended.values())

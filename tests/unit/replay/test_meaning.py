"""If these fail, the sentences a reader decides by say something that the figures do not."""

from __future__ import annotations

import pytest

from tests.unit.replay import results
from warmgate.replay.breaks import breaks, kinds
from warmgate.replay.figures import compact, count, duration, money, percent, ratio, signed
from warmgate.replay.meaning import groups, meaning, priced_calls, scope
from warmgate.replay.remarks import remarks, short_names
from warmgate.replay.result import DivergedAt


def said(replay):
    return " ".join(meaning(replay))


def with_taxes(**taxes):
    """A replay of 18 calls whose gates add these tokens on either route."""
    replay = results.replay_of(results.rows(2, 9))
    for s in replay.scenarios:
        alone = s.computed_tokens - s.tax_tokens
        s.tax_tokens = taxes.get(s.name, 0)
        s.computed_tokens = alone + s.tax_tokens
    return replay


def test_the_sentence_is_the_tax_of_the_chosen_route_per_call():
    """The one sentence people repeat would name figures of another route, or sums instead of figures per call."""
    replay = results.replay_of(results.rows(2, 9))
    for route in ("sticky", "random"):
        replay.options["route"] = route
        taxes = {s.name: s.tax_tokens / 18 for s in replay.scenarios if s.route == route}
        text = said(replay)
        assert f"an aligned gate adds {count(taxes['aligned'])} tokens" in text
        assert f"a gate with JSON state adds {count(taxes['json'])}" in text
        assert f"a separate router adds {count(taxes['separate'])}" in text


def test_calls_without_a_prompt_do_not_dilute_the_tax():
    """A trace of usage beside one with prompts would make every gate look cheaper per call."""
    alone = results.replay_of(results.rows(2, 9))
    mixed = results.replay_of(results.rows(2, 9) + results.usage_rows())
    assert priced_calls(alone) == priced_calls(mixed) == 18
    assert meaning(alone)[0] == meaning(mixed)[0]
    assert scope(mixed) == "18 of 28 calls have a known prompt and are priced"


@pytest.mark.parametrize(
    ("taxes", "words", "never"),
    [
        ({"aligned": 900, "json": 9_000, "separate": 18_000}, ["90.0 % less than the cheapest"], ["does not pay", "saves"]),
        (
            {"aligned": 9_000, "json": 900, "separate": 18_000},
            ["alignment does not pay: a gate with JSON state costs 450 a call less"],
            ["less than the"],
        ),
        ({"aligned": 900, "json": 900, "separate": 900}, ["adds 50"], ["does not pay", "less than the"]),
        ({}, ["no gate adds a token"], ["%", "saves"]),
        ({"aligned": -180, "json": 1_800, "separate": 0}, ["an aligned gate saves 10 tokens", "a separate router adds nothing"], ["−"]),
        ({"aligned": -180, "json": -90, "separate": -36}, ["an aligned gate saves 10 tokens", "saves 5,", "saves 2;"], ["adds", "%"]),
        ({"aligned": 18, "json": 36, "separate": 9}, ["an aligned gate adds 1 token,", "adds 2,", "adds 0.5;"], ["1 tokens"]),
        ({"aligned": 0, "json": 900, "separate": 900}, ["an aligned gate adds nothing", "100.0 % less"], ["of what the agent computes"]),
    ],
)
def test_every_sign_of_a_tax_is_said_truly(taxes, words, never):
    """A gate that costs more, costs nothing or saves tokens would be described as its opposite."""
    text = said(with_taxes(**taxes))
    for word in words:
        assert word in text
    for word in never:
        assert word not in text


def test_without_scenarios_questions_or_calls_the_sentence_says_so():
    """An empty section would read as: a gate is free."""
    assert "No scenario could be priced" in said(results.usage_alone())
    assert "No scenario could be priced" in said(results.without_calls())
    silent = with_taxes()
    silent.options["questions"] = 0
    assert said(silent) == "No questions are asked, so no gate adds a token."
    lone = results.replay_of(results.rows(1, 2))
    lone.scenarios = [s for s in lone.scenarios if s.name == "none"]
    assert said(lone) == "Only the agent without a gate was priced."


def test_a_sidecars_tokens_are_not_compared_with_the_agents():
    """Tokens of a small model would be added to those of a large one."""
    found = results.rows(2, 9)
    text = said(results.replay_of(found, scenarios=results.scenarios(found, gate="sidecar")))
    assert "small model on its own workers" in text
    assert "of what the agent computes" not in text


def test_routes_that_make_no_difference_are_shown_once():
    """One worker would be shown as two ways of routing with the same figures."""
    replay = results.replay_of(results.rows(2, 9))
    replay.scenarios = [s for s in replay.scenarios if s.route == "sticky"]
    for s in results.replay_of(results.rows(2, 9)).scenarios:
        if s.route == "sticky":
            s.route = "random"
            replay.scenarios.append(s)
    replay.options["workers"] = 1
    (group,) = groups(replay)
    assert group.title == "any route (one worker)"
    assert [s.name for s in group.scenarios] == ["none", "separate", "json", "aligned"]
    assert "Before any gate" not in said(replay)
    replay.scenarios[-1].tax_tokens += 1
    assert len(groups(replay)) == 2


def test_a_share_never_rounds_up_to_all_or_down_to_nothing():
    """Lost tokens would vanish from the figure."""
    assert [percent(x) for x in (1, 0.99999, 0.9994, 0.5, 0.0004, 0, 1.031, None)] == [
        "100.0 %", "> 99.9 %", "99.9 %", "50.0 %", "< 0.1 %", "0.0 %", "103.1 %", "n/a"
    ]  # fmt: skip


def test_numbers_keep_their_sign_unit_and_separators():
    """A figure would be read a thousand times too large, or with the wrong sign."""
    assert [count(x) for x in (None, 0, 7, 1234567, -1200, 0.44, 0.04, -0.04, 9.96)] == [
        "n/a", "0", "7", "1,234,567", "−1,200", "0.4", "< 0.1", "> −0.1", "10"
    ]  # fmt: skip
    assert [signed(x) for x in (5, 0, -5, None)] == ["+5", "0", "−5", "n/a"]
    assert [compact(x) for x in (9_999, 12_345, 999_499, 999_500, 1.5e9, -2.25e6, 3e13)] == [
        "9,999", "12.3 k", "999 k", "1.00 M", "1.50 G", "−2.25 M", "30 T"
    ]  # fmt: skip
    assert [duration(x) for x in (None, 0, 4, 28.36, 1_500, 112_032, 326_118, 9e6, -1500)] == [
        "n/a", "0 ms", "4 ms", "28.4 ms", "1.50 s", "112 s", "5.44 min", "2.5 h", "−1.50 s"
    ]  # fmt: skip
    assert [money(x) for x in (None, 0, 0.00973, 12.5, -3)] == ["n/a", "0.00", "0.00973", "12.50", "−3.00"]
    assert [ratio(x) for x in (None, 1, 2.0404)] == ["n/a", "1.000", "2.040"]


def test_divergences_come_costliest_first_and_say_where():
    """The one line of a prompt worth mending would be hidden among harmless ones."""
    replay = results.typical()
    found = breaks(replay)
    assert len(found) == sum(r.diverged_at is not None for r in replay.calls)
    assert [b.tokens for b in found] == sorted((b.tokens for b in found), reverse=True)
    assert {b.where for b in found} >= {"tools at token 420", "messages[0].content at token 96"}
    by_kind = kinds(found)
    assert {k.name for k in by_kind} == {
        "tools changed",
        "system prompt changed",
        "thinking stripped from an earlier turn",
        "history edited",
    }
    assert sum(k.calls for k in by_kind) == len(found)
    assert all(k.worst.tokens == max(b.tokens for b in found if b.kind == k.name) for k in by_kind)


@pytest.mark.parametrize(
    ("at", "where"),
    [
        (DivergedAt(None, "tools", 420), "tools at token 420"),
        (DivergedAt(3, None, 9_999), "messages[3] at token 9,999"),
        (DivergedAt(3, "messages", None), "messages[3]"),
        (DivergedAt(None, None, 0), "at token 0"),
        (DivergedAt(None, None, None), "at an unknown place"),
    ],
)
def test_a_place_is_named_with_what_is_known_of_it(at, where):
    """A hash trace, which knows only the token, would show an empty place."""
    replay = results.replay_of(results.rows(1, 2, parts=False))
    replay.calls[1].diverged_at = at
    assert breaks(replay)[0].where == where


def test_refused_skipped_and_notes_are_all_said_and_alike_ones_once():
    """A trace that was not read would be missing from the figures without a word."""
    replay = results.typical()
    for number, trace in enumerate(replay.traces):
        trace.notes = [f"{number + 2} answers do not continue their prompt"]
    found = [(r.kind, r.where, r.text) for r in remarks(replay)]
    assert found == [
        ("refused", "runs/broken.json", "not JSON; is it the right file?"),
        ("skipped", "tuesday/agent.jsonl", "2 records left out of the figures"),
        ("note", "monday/agent.jsonl", "2 answers do not continue their prompt (2 more traces with figures of their own)"),
        ("note", "", "each trace was replayed alone, on fresh workers"),
    ]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([], []),
        (["a/b/c.json"], ["c.json"]),
        (["-"], ["-"]),
        (["r/a/x.json", "r/b/x.json"], ["a/x.json", "b/x.json"]),
        (["r/x.json", "r/x.json"], ["x.json", "x.json"]),
        (["r/x.json", "r"], ["r/x.json", "r"]),
        (["", "a"], ["", "a"]),
    ],
)
def test_short_names_keep_what_tells_traces_apart(paths, names):
    """Two traces would be shown under one name though their folders differ."""
    assert short_names(paths) == names

"""If these fail, what a reader sees of a replay in the terminal is wrong, cut off, or not theirs to trust."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.unit.replay import results
from warmgate.replay.figures import count, percent
from warmgate.replay.table import REMARKS, TRACES, render

ALL = ("typical", "usage_alone", "without_calls", "nothing_reusable", "hostile")


def shown(replay, width=100, **console):
    out = io.StringIO()
    render(replay, Console(file=out, width=width, **console))
    return out.getvalue()


def flat(text):
    return " ".join(text.split())


def test_one_glance_answers_the_five_questions():
    """Someone who looks once must learn what survived, what was lost and why, what lies outside, and what a gate costs."""
    replay = results.typical()
    text = shown(replay)
    totals = replay.totals
    assert re.search(rf"survival +{re.escape(percent(totals.survival))} +predicted", text)
    assert re.search(rf"hit rate +{re.escape(percent(totals.hit_rate))} +predicted", text)
    for cause, tokens in totals.lost_tokens.items():
        assert re.search(rf"{cause} +{count(tokens)} ", text)
    assert re.search(rf"divergence +{count(totals.outside.divergence)} ", text)
    for s in replay.scenarios:
        assert re.search(rf"{s.name} +{count(s.computed_tokens)} +{count(s.floor_tokens)} ", text)
    assert "Per agent call, an aligned gate adds 150 tokens" in flat(text)


def test_every_figure_carries_its_basis_and_the_words_are_explained():
    """A prediction would be quoted as a measurement."""
    measured = shown(results.usage_alone())
    assert re.search(r"hit rate +72\.7 % +measured", measured)
    predicted = shown(results.typical())
    for line in predicted.splitlines():
        if re.match(r" (survival|hit rate|lost|prompt tokens) ", line):
            assert re.search(r"(measured|predicted)", line)
    assert "lost share of R, predicted" in flat(predicted)
    assert "outside R share of all prompt tokens, predicted" in flat(predicted)
    assert "are priced (predicted)" in flat(predicted)
    assert re.search(r"monday/agent.jsonl .* % p .* % p ", predicted)
    assert re.search(r"codex/rollout.jsonl .* n/a .* % m ", predicted)
    assert "measured: reported by the provider or the engine; predicted: computed from the trace's text or block hashes" in flat(predicted)


def test_survived_may_be_measured_while_reusable_is_predicted():
    """The reader would take a ratio of two sources for a measurement."""
    found = results.rows(1, 4)
    for row in found:
        row.basis = "measured"
    assert "survived is measured, reusable predicted" in flat(shown(results.replay_of(found)))


def test_what_is_unknown_is_never_shown_as_zero():
    """No prompt recorded would read as: nothing survived, or: nothing was lost."""
    for make in (results.usage_alone, results.without_calls, results.nothing_reusable):
        text = shown(make())
        assert re.search(r"survival +n/a", text)
        assert not re.search(r"survival +0", text)
    usage = flat(shown(results.usage_alone()))
    assert "Unknown: no prompts are recorded." in usage
    assert "No scenario could be priced" in usage
    assert "not applicable: no call could have reused anything (R = 0)" in flat(shown(results.nothing_reusable()))


def test_nothing_lost_is_said():
    """An empty table would leave the reader guessing."""
    text = shown(results.replay_of(results.rows(2, 9, losses=False, parts=False)))
    assert re.search(r"survival +100\.0 %", text)
    assert "lost share of R, predicted nothing" in flat(text)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("width", [80, 100, 132])
def test_no_line_is_wider_than_the_terminal(make, width):
    """At 80 columns tables would wrap into noise."""
    for line in shown(getattr(results, make)(), width).splitlines():
        assert cell_len(line) <= width


@pytest.mark.parametrize("width", [30, 44, 60, 80])
def test_no_width_cuts_a_figure(width):
    """A narrow terminal would show 1,7… for 1,773,211, and nobody could tell."""
    replay = results.replay_of(results.rows(3, 9, parts=False), priced=True)
    for s in replay.scenarios:
        s.computed_tokens *= 100_000
    text = shown(replay, width)
    assert "…" not in text
    for row in replay.calls[:1]:
        assert count(row.prompt_tokens) not in text  # no row per call: tens of thousands may exist
    assert count(replay.totals.survived_tokens) in flat(text)


@pytest.mark.parametrize("make", ALL)
def test_a_pipe_gets_plain_text(make):
    """Logs and pull requests would be full of escape codes."""
    text = shown(getattr(results, make)())
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_no_colour_is_respected(monkeypatch):
    """NO_COLOR users would get colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(results.typical(), force_terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text)
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[1;36m" in shown(results.typical(), force_terminal=True, color_system="standard")


def test_text_from_a_trace_cannot_style_the_terminal():
    """A session's name could hide figures, fake some, or reverse the line it stands in."""
    text = shown(results.hostile(), force_terminal=True, color_system="standard")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", re.sub(r"\x1b\[[0-9;]*m", "", text))
    bare = flat(re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert "[bold red]x[/]" in bare  # shown as it is, not obeyed
    assert ":boom:" in bare


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_output_without_unicode_gets_plain_signs(encoding):
    """A file or terminal that is not UTF-8 would end the command in a traceback."""
    replay = results.typical()
    replay.calls[0].session = replay.traces[0].path = "сессия-日本"
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    render(replay, Console(file=out, width=80))
    out.flush()
    text = raw.getvalue().decode(encoding)
    assert "survival" in text
    assert "-----" in text


def test_many_traces_and_notes_are_counted_not_poured_out():
    """A folder of a thousand traces would push the answer off the screen; a cut without a count would hide some."""
    found, traces = [], []
    for number in range(30):
        some = results.rows(1, 3, trace=number)
        found += some
        traces.append(results.trace_of(some, f"runs/{number:02}.jsonl", notes=["note " + "x" * number]))
    text = flat(shown(results.replay_of(found, traces=traces)))
    assert f"{30 - TRACES} more {3 * (30 - TRACES)}" in text
    assert f"and {30 - REMARKS} more; --json has all of them" in text


def test_refused_and_skipped_are_always_seen():
    """Figures of half the data would pass for all of it."""
    text = flat(shown(results.typical()))
    assert "refused runs/broken.json: not JSON; is it the right file?" in text
    assert "skipped tuesday/agent.jsonl: 2 records left out of the figures" in text
    assert "refused other.json: not a trace" in flat(shown(results.without_calls()))


def test_time_and_money_appear_only_when_their_rates_were_given():
    """A price of nothing would be read as free; hop and prefill would be added up."""
    assert "money" not in shown(results.replay_of(results.rows()))
    replay = results.replay_of(results.rows(), priced=True)
    for s in replay.scenarios:
        s.tax_money = None
        if s.tax_ms is not None:
            s.tax_ms.prefill = None
    (line,) = [one for one in shown(replay).split("\n tax")[-1].splitlines() if re.match(r" aligned +96 ms", one)][:1]
    assert flat(line) == "aligned 96 ms 4 ms n/a n/a n/a"


def test_what_the_figures_rest_on_is_printed():
    """Two reports with other questions per turn could not be told apart."""
    text = flat(shown(results.typical()))
    for words in (
        "block size: 16 tokens",
        "3 questions a turn of 45 tokens each",
        "workers: 2, routed sticky",
        "unbounded",
        "full attention",
    ):
        assert words in text

"""`warmgate top`: what it shows of a gate's figures, whoever answers and whatever it prints to."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.unit.telemetry.facts import call, finished, outcome, read
from warmgate.cli import top
from warmgate.cli.top_view import view
from warmgate.doctor.exposition import Metrics
from warmgate.errors import MalformedAnswer, OptionError
from warmgate.telemetry.prometheus import Prometheus
from warmgate.telemetry.reading import Reading


def reading(one: Prometheus) -> Reading:
    return Reading.of(Metrics(one.page().decode()))


def printed(now: Reading, before: Reading | None = None, trouble: str = "", *, width: int = 150) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(view(now, before, "http://gate/metrics", trouble, width=width))
    return out.getvalue()


def test_the_command(monkeypatch: pytest.MonkeyPatch):
    """It would print nothing of what the gate counts."""
    one = Prometheus()
    one.agent_call(call(cached=32, reusable=64, tokens=100))
    one.decision_finished(finished())
    monkeypatch.setattr(top, "fetch", lambda url: Metrics(one.page().decode()))
    done = CliRunner().invoke(top.command, ["--once", "user:hunter2@127.0.0.1:9464"], env={"COLUMNS": "140"})
    assert done.exit_code == 0, done.output
    assert "survival 50.0 %" in done.output
    assert "worker_change 32" in done.output
    assert "http://127.0.0.1:9464/metrics" in done.output
    assert "hunter2" not in done.output
    assert "\x1b" not in done.output


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[bad", "http://a:99999", "http://user:hunter2@a:0"])
def test_what_is_no_url_is_said(url: str):
    with pytest.raises(OptionError) as caught:
        top._address(url)
    assert "hunter2" not in str(caught.value)


def test_each_step_and_its_basis():
    """An operator could not tell whether the gate's reads or the agent's calls lose the prefix, nor routing from a wrong prediction."""
    one = Prometheus(prefill_rate=16.0)
    one.read(read(2))
    one.agent_call(call(cached=32, reusable=64, captured=48, tokens=100))
    guessed = outcome(64)
    one.agent_call(replace(call(), survival=replace(guessed, entry=replace(guessed.entry, survived_basis="predicted"))))
    one.agent_call(replace(call(), survival=None))
    text = printed(reading(one))
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if "→" in line}
    assert rows["agent → gate (reads)"][4:] == ["128", "128", "128", "128", "100.0", "%", "measured"]
    assert rows["gate → agent (calls)"][4:10] == ["128", "128", "112", "96", "75.0", "%"]
    assert "50 % measured, the rest predicted" in text
    assert "not predicted, and in no figure of survival or tax: 1 calls" in text
    assert "prefill 5.75 s" in text


def test_only_what_happened_since():
    one = Prometheus()
    one.agent_call(call(cached=32, reusable=64, tokens=100))
    was = reading(one)
    one.agent_call(call(cached=64, reusable=64, tokens=100))
    text = printed(reading(one), was, "gone\x1b[2J")
    assert "survival 100.0 %" in text
    assert "lost: nothing" in text
    assert text.splitlines()[1].startswith("gone")  # in sight however many workers follow
    assert "\x1b" not in text


def test_a_gate_that_was_started_anew_counts_from_the_start():
    """Its counters fell to 0, and the view would show less than nothing."""
    old, new = Prometheus(), Prometheus()
    for _ in range(3):
        old.agent_call(call(cached=32))
    new.agent_call(call(cached=64))
    text = printed(reading(new), reading(old))
    assert "since the gate began" in text
    assert "survival 100.0 %" in text
    assert "-" not in text.split("computed")[1].splitlines()[0]


@pytest.mark.parametrize("width", [1, 20, 40, 80, 99, 100, 120])
def test_a_narrow_terminal_cuts_no_figure(width: int):
    one = Prometheus()
    one.agent_call(call(cached=32, reusable=64, tokens=100, worker="http://a-worker-with-a-long-name.example:8000"))
    text = printed(reading(one), width=width)
    assert "…" not in text
    assert "worker_change32" in "".join(text.split())
    assert "a-worker-with-a-long-name.example:8000" in "".join(text.split())


def test_figures_beyond_all_bounds_are_refused():
    """A page that is no gate's would end in a traceback."""
    page = Metrics(
        "\n".join(f'warmgate_lost_tokens_total{{cause="{n}"}} 1e308\nwarmgate_prompt_tokens_total{{kind="{n}"}} 1e308' for n in range(9))
    )
    with pytest.raises(MalformedAnswer, match="no figures of a gate"):
        Reading.of(page)


def test_labels_of_others_move_nothing():
    page = Metrics('warmgate_worker_sessions{worker="x\\n\x1b[31m\x07"} 1e300\nwarmgate_worker_sessions{worker=""} NaN')
    text = printed(Reading.of(page))
    assert "\x1b" not in text
    assert "\x07" not in text

"""If these fail, scripts around ``warmgate replay`` break: exit codes, pure JSON on stdout, one line an error, nothing half-written."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from warmgate.cli.app import run

EXAMPLES = Path(__file__).parents[3] / "examples/traces"
CHAT = EXAMPLES / "coding-agent.chat.jsonl"
WEKA = EXAMPLES / "coding-agent.weka.json"


def lines(text):
    return [line for line in text.splitlines() if line]


def test_json_on_stdout_is_only_json(capsysbinary):
    """``warmgate replay … --json - | jq`` would fail."""
    assert run(["replay", str(CHAT), str(WEKA), "--json", "-"]) == 0
    result = json.loads(capsysbinary.readouterr().out)
    assert result["schema"] == "warmgate.replay/1"
    assert {t["format"] for t in result["traces"]} == {"openai_chat", "weka"}


def test_the_contract_of_the_json(capsysbinary):
    """Programs that read warmgate.replay/1 would find a field missing."""
    run(["replay", str(CHAT), "--json", "-", "--prefill-rate", "1000", "--hop-ms", "2", "--price-per-mtok", "0.5"])
    result = json.loads(capsysbinary.readouterr().out)
    assert {"schema", "block_size", "tokenizer", "traces", "totals", "scenarios", "calls"} <= result.keys()
    trace = result["traces"][0]
    assert {"path", "format", "sessions", "calls", "prompt_tokens", "skipped_lines", "totals"} <= trace.keys()
    totals = {"calls", "prompt_tokens", "reusable_tokens", "survived_tokens", "survival", "hit_rate", "intra_call_reuse", "surplus_tokens"}
    totals |= {"lost_tokens", "outside", "reported_cached_tokens", "basis"}
    assert totals <= result["totals"].keys()
    assert totals <= trace["totals"].keys()
    assert result["totals"]["outside"].keys() == {"divergence", "namespace_change", "rounding"}
    scenario = {
        "name",
        "route",
        "gate",
        "computed_tokens",
        "floor_tokens",
        "compute_ratio",
        "survival",
        "tax_tokens",
        "tax_ms",
        "tax_money",
    }
    assert [(s["name"], s["route"]) for s in result["scenarios"]] == [
        (n, r) for r in ("sticky", "random") for n in ("none", "separate", "json", "aligned")
    ]
    for row in result["scenarios"]:
        assert scenario <= row.keys()
        assert row["tax_ms"].keys() == {"hop", "prefill"}
    row = {"session", "index", "model", "prompt_tokens", "reusable", "survived", "basis", "lost", "cause", "diverged_at", "why"}
    assert all(row <= call.keys() for call in result["calls"])
    diverged = [c for c in result["calls"] if c["diverged_at"]]
    assert all(c["diverged_at"].keys() == {"message", "field", "token"} for c in diverged)
    assert any("tools changed" in c["why"] for c in diverged)
    assert any("system prompt changed" in c["why"] for c in diverged)


def test_totals_are_the_sum_of_the_traces_and_of_the_calls(capsysbinary):
    """A total would not be what it says."""
    run(["replay", str(CHAT), str(WEKA), "--json", "-", "--workers", "2", "--route", "random", "--kv-tokens", "20000"])
    result = json.loads(capsysbinary.readouterr().out)
    totals, traces, calls = result["totals"], result["traces"], result["calls"]
    for name in ("calls", "prompt_tokens", "reusable_tokens", "survived_tokens"):
        assert totals[name] == sum(t["totals"][name] for t in traces)
    assert totals["calls"] == len(calls)
    assert totals["prompt_tokens"] == sum(c["prompt_tokens"] for c in calls)
    assert totals["survived_tokens"] == sum(c["survived"] for c in calls)
    assert sum(totals["lost_tokens"].values()) == sum(c["lost"] for c in calls) > 0
    assert totals["survival"] == pytest.approx(totals["survived_tokens"] / totals["reusable_tokens"])


def test_one_unbounded_worker_loses_nothing(capsysbinary):
    """Survived must equal reusable there."""
    run(["replay", str(WEKA), "--json", "-"])
    totals = json.loads(capsysbinary.readouterr().out)["totals"]
    assert totals["survived_tokens"] == totals["reusable_tokens"]
    assert totals["survival"] == 1
    assert totals["lost_tokens"] == {}


def test_gz_stdin_glob_and_directory_read_alike(capsysbinary, tmp_path, monkeypatch):
    """A user would have to unpack and list their traces by hand."""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(CHAT.read_bytes()))
    (tmp_path / "b.json").write_bytes(WEKA.read_bytes())
    found = []
    for names in ([str(tmp_path)], [str(tmp_path / "*.js*")]):
        assert run(["replay", *names, "--json", "-"]) == 0
        found.append(json.loads(capsysbinary.readouterr().out)["totals"])
    assert found[0] == found[1]
    done = subprocess.run(
        [sys.executable, "-m", "warmgate", "replay", "-", "--json", "-"], input=CHAT.read_bytes(), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["traces"][0]["path"] == "-"
    assert not done.stderr


def test_one_unreadable_trace_does_not_hide_the_others(capsysbinary, tmp_path):
    """Exit code 2 must come with the report of the rest."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{not json\n")
    assert run(["replay", str(bad), str(CHAT), "--json", "-"]) == 2
    captured = capsysbinary.readouterr()
    result = json.loads(captured.out)
    assert len(result["traces"]) == 1
    assert result["refused"][0]["path"] == str(bad)
    assert len(lines(captured.err.decode())) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], "--workers"),
        (["--workers", "-1"], "--workers"),
        (["--kv-tokens", "0"], "--kv-tokens"),
        (["--block-size", "0"], "--block-size"),
        (["--questions", "-1"], "--questions"),
        (["--question-tokens", "0"], "--question-tokens"),
        (["--prefill-rate", "0"], "--prefill-rate"),
        (["--prefill-rate", "nan"], "--prefill-rate"),
        (["--hop-ms", "-3"], "--hop-ms"),
        (["--tokenizer", "nowhere.json"], "nowhere.json"),
        (["--chat-template", "nowhere.jinja"], "nowhere.jinja"),
        (["--route", "best"], "--route"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_2(arguments, words, capsys):
    """A typo would give a traceback, or worse, a figure."""
    assert run(["replay", str(CHAT), *arguments]) == 2
    err = lines(capsys.readouterr().err)
    assert len(err) == 1
    assert words in err[0]


def test_nothing_named_or_nothing_found_is_one_line_and_exit_2(capsys, tmp_path):
    """An empty glob would pass as an empty report."""
    for names in ([], [str(tmp_path / "*.jsonl")], [str(tmp_path / "missing.json")], [str(tmp_path)]):
        assert run(["replay", *names]) == 2
        assert len(lines(capsys.readouterr().err)) == 1


def test_a_report_appears_whole_or_not_at_all(capsys, tmp_path):
    """A full disk or a wrong path would leave half a page that looks like a report."""
    assert run(["replay", str(CHAT), "--html", str(tmp_path / "no/such/dir/report.html")]) == 2
    assert "report.html" in lines(capsys.readouterr().err)[-1]
    assert run(["replay", str(CHAT), "--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "report.html")]) == 0
    assert json.loads((tmp_path / "out.json").read_bytes())["totals"]["calls"] > 0
    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "report.html"]

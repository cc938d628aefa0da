"""If these fail, a team trusts thresholds that no longer hold, or is told nothing useful about labels that cannot be used."""

from __future__ import annotations

import json

from tests.unit.calibration.test_calibration import rows
from warmgate.cli.app import run


def test_labels_become_a_policy_file_and_a_plot(tmp_path, capsys):
    (tmp_path / "labels.jsonl").write_bytes(rows(800))
    out, plot = tmp_path / "policy.json", tmp_path / "plot.svg"
    assert run(["calibrate", str(tmp_path / "labels.jsonl"), "--max-error", "0.1", "--json", str(out), "--plot", str(plot)]) == 0
    policy = json.loads(out.read_text())
    assert policy["schema"] == "warmgate.policy/1"
    assert policy["entries"][0]["labels"] == 800
    assert plot.read_text().startswith("<svg")
    assert "error ≤" in capsys.readouterr().err


def test_too_few_labels_are_one_line_and_write_nothing(tmp_path, capsys):
    (tmp_path / "labels.jsonl").write_bytes(rows(20))
    out = tmp_path / "policy.json"
    assert run(["calibrate", str(tmp_path / "labels.jsonl"), "--json", str(out)]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "are needed" in shown.err
    assert not out.exists()


def test_a_check_needs_a_policy_file_with_states_and_a_worker(tmp_path, capsys):
    (tmp_path / "labels.jsonl").write_bytes(rows(800))
    out = tmp_path / "policy.json"
    assert run(["calibrate", str(tmp_path / "labels.jsonl"), "--max-error", "0.1", "--json", str(out)]) == 0
    assert run(["calibrate", "--check", str(out)]) == 2
    assert "--worker" in capsys.readouterr().err
    assert run(["calibrate", "--check", str(tmp_path / "labels.jsonl")]) == 2
    assert run(["calibrate"]) == 2
    assert run(["calibrate", str(out), "--check", str(out)]) == 2

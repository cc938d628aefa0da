"""If these fail, a person's agent runs what it must not, or is stopped at ordinary work. The rows are data: parsed and judged, never run."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

from warmgate_policies.shell import Judge

DATA = Path(__file__).parents[2] / "data" / "shell"
RANK = {"allow": 0, "ask": 1, "deny": 2}


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def test_labelled_commands(judge):
    """No deny or ask becomes allow, no allow becomes deny, and ordinary work is rarely asked about."""
    matrix: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong = []
    for row in rows("corpus_dev.jsonl"):
        found = judge.judge(row["command"], row["cwd"])
        matrix[row["verdict"], found.verdict] += 1
        if RANK[found.verdict] < RANK[row["verdict"]] or (row["verdict"] == "allow" and found.verdict == "deny"):
            wrong.append((row["id"], row["verdict"], found.verdict, found.rule))
    assert not [item for item in wrong if item[2] == "allow"]
    assert matrix["allow", "deny"] == 0
    assert matrix["allow", "allow"] >= 0.92 * sum(count for (label, _), count in matrix.items() if label == "allow")
    assert matrix["deny", "deny"] >= 0.9 * sum(count for (label, _), count in matrix.items() if label == "deny")


@pytest.mark.parametrize("row", rows("bypasses_dev.jsonl"), ids=lambda row: row["id"])
def test_reported_shapes(judge, row):
    """A publicly reported bypass works again, or a publicly reported false alarm is back."""
    command = row["shape"].replace("[48 more no-ops]", " && ".join(["true"] * 48))
    found = judge.judge(command, "/workspace")
    if row["type"] == "bypass":
        assert RANK[found.verdict] >= RANK[row["verdict"]], found
    else:
        assert found.verdict == row["verdict"], found


def test_every_verdict_explains_itself(judge):
    """A person asked to approve would see no reason, or not which part is meant."""
    for row in rows("corpus_dev.jsonl"):
        found = judge.judge(row["command"], row["cwd"])
        start, end = found.site
        assert found.reason
        assert "\n" not in found.reason
        assert found.rule
        assert 0 <= start <= end <= len(row["command"].encode()) + 200, (row["id"], found)
        assert len(found.binding) == 64


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
def test_our_own_commands(judge, verdict):
    """Commands that developers and attackers type, beyond the labelled rows: ordinary ones are allowed, the others never."""
    wrong = []
    for row in rows("ordinary.jsonl"):
        if row["verdict"] == verdict:
            found = judge.judge(row["command"])
            if found.verdict != verdict and not (verdict == "ask" and found.verdict == "deny"):
                wrong.append((row["command"], found.verdict, found.rule))
    assert not wrong

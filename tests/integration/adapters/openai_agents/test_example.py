"""The Agents SDK example is what people copy: it must run as it stands, and its trace must be one that replay reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[4] / "examples" / "openai_agents_agent.py"


def test_the_example_runs_removes_nothing_and_leaves_a_trace_that_replays(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), "--trace", "t.jsonl"],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "survival" in done.stdout
    assert "the policy denies it" in done.stdout
    assert "a person refused" in done.stdout
    assert "I did not remove anything" in done.stdout
    replayed = subprocess.run(
        [sys.executable, "-c", "from warmgate.cli import main; main()", "replay", "t.jsonl", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert replayed.returncode == 0, replayed.stderr
    (trace,) = json.loads(replayed.stdout)["traces"]
    assert (trace["format"], trace["sessions"], trace["calls"], trace["skipped_lines"]) == ("warmgate_trace", 1, 3, 0)
    assert trace["totals"]["reported_cached_tokens"] > 0

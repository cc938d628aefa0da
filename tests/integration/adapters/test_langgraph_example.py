"""The LangGraph example is what people copy: it must run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "langgraph_agent.py"


def test_the_example_runs_and_removes_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "mounts   shell, read_file" in done.stdout
    assert "survival" in done.stdout
    assert "Not run" in done.stdout
    assert "I did not remove anything" in done.stdout

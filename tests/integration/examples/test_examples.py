"""Examples that people copy, run as they stand. The three agents have tests beside their adapters, the gateway beside the real gateways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.workers.servers import Redis

EXAMPLES = Path(__file__).parents[3] / "examples"

TESTED_ELSEWHERE = {
    "gateway.py": "tests/engine/test_gateway_example.py",
    "langchain_agent.py": "tests/integration/adapters/test_langchain_example.py",
    "langgraph_agent.py": "tests/integration/adapters/test_langgraph_example.py",
    "openai_agents_agent.py": "tests/integration/adapters/openai_agents/test_example.py",
    "observability": "tests/integration/telemetry/test_observability.py",
    "traces": "tests/unit/replay/test_example_traces.py",
}
HERE = {"claude_code_hook", "redis_two_processes.py"}


def test_every_example_has_a_test():
    """An example nobody runs is broken soon, and nobody knows."""
    found = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "__"))}
    assert found == HERE | TESTED_ELSEWHERE.keys()
    assert [test for test in TESTED_ELSEWHERE.values() if not (EXAMPLES.parent / test).exists()] == []


def test_two_processes_with_redis_meet_on_one_worker():
    """A decision made in one process would else be prefilled again by the other's call."""
    with Redis() as redis:
        command = [sys.executable, "-W", "error", str(EXAMPLES / "redis_two_processes.py"), "--redis", f"{redis.url}/0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 of 6 sessions met their decision's worker" in done.stdout
    assert done.stdout.count("608 of 618 prompt tokens cached") == 6


def hook(command: str, folder: Path) -> tuple[int, str]:
    """What the host runs, with what it sends."""
    (matcher,) = json.loads((EXAMPLES / "claude_code_hook/settings.json").read_text())["hooks"]["PreToolUse"]
    (entry,) = matcher["hooks"]
    assert (matcher["matcher"], entry["type"]) == ("Bash", "command")
    assert entry["timeout"] > 20, "the hook's own deadline must come first"
    sent = {"session_id": "s", "cwd": str(folder), "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}}
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(
        ["/bin/sh", "-c", entry["command"]], input=json.dumps(sent), env=environment, capture_output=True, text=True, timeout=60
    )
    told = json.loads(done.stdout)["hookSpecificOutput"]
    return done.returncode, told["permissionDecision"]


@pytest.mark.parametrize(("command", "verdict"), [("ls -l", "allow"), ("git push", "ask"), ("rm -rf /etc/example", "deny")])
def test_the_claude_code_hook_answers_as_the_host_wants(command: str, verdict: str, tmp_path: Path):
    """Claude Code lets a command run after any other exit or JSON."""
    assert hook(command, tmp_path) == (0, verdict)

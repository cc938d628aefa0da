"""If these fail, a host lets a command run that was refused, or a batch loses or reorders rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data" / "shell"


def run(*arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run([sys.executable, "-m", "warmgate", "shell", *arguments], input=data, capture_output=True, timeout=110)


@pytest.mark.parametrize(("command", "code", "word"), [("ls", 0, b"allow"), ("git push", 10, b"ask"), ("rm -rf /", 20, b"deny")])
def test_exit_codes(command, code, word):
    """Scripts branch on them."""
    done = run(command)
    assert (done.returncode, done.stdout.split(b":")[0]) == (code, word)


@pytest.mark.parametrize(
    "arguments",
    [(), ("ls", "--jsonl", "-"), ("--jsonl", "/nonexistent/x"), ("ls", "--workspace", "relative"), ("ls", "--pack", "/nonexistent.yaml")],
)
def test_bad_input_is_two_and_one_line(arguments):
    """A typo would read as a verdict."""
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_rows_come_back_in_order(jobs):
    """A verdict would be read as another command's."""
    rows = [json.loads(line) for line in (DATA / "corpus_dev.jsonl").read_text().splitlines()][:80]
    done = run("--jsonl", "-", "--jobs", jobs, stdin="\n".join(json.dumps(row) for row in rows))
    assert done.returncode == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    assert all(set(row) == {"id", "verdict", "rule", "site", "reason"} for row in found)


def test_a_bad_row_is_reported_and_the_rest_judged():
    """One broken line would cost the whole batch."""
    done = run(
        "--jsonl",
        "-",
        "--jobs",
        "2",
        stdin='{"id": 1, "command": "ls"}\n{bad\n{"id": 2}\n\xff\n{"id": 3, "command": "ls", "cwd": null}\n'.encode("latin-1"),
    )
    assert done.returncode == 2
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 3]
    assert done.stderr.count(b"line") == 3


@pytest.mark.parametrize("host", ["claude-code", "codex"])
@pytest.mark.parametrize(("command", "word"), [("ls", "allow"), ("git push", "ask"), ("rm -rf /", "deny")])
def test_hooks_answer_in_json(host, command, word):
    """Hosts let every exit code but their own pass."""
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}, "cwd": "/tmp"}
    done = run("--hook", host, stdin=json.dumps(event))
    assert done.returncode == 0
    answer = json.loads(done.stdout)["hookSpecificOutput"]
    assert answer["hookEventName"] == "PreToolUse"
    assert answer["permissionDecision"] == ("deny" if host == "codex" and word == "ask" else word)
    assert answer["permissionDecisionReason"]


@pytest.mark.parametrize(
    "stdin",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"tool_name": "Bash"}',
        b'{"tool_name": "Bash", "tool_input": {}}',
        b'{"tool_name": "Bash", "tool_input": {"command": 3}}',
    ],
)
def test_a_hook_that_fails_refuses(stdin):
    """A crash with exit code 1 lets the command run."""
    done = run("--hook", "claude-code", stdin=stdin)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_hook_leaves_other_tools_alone():
    """Reading a file through the host's own tool would need a shell verdict."""
    done = run("--hook", "claude-code", stdin=json.dumps({"tool_name": "Read", "tool_input": {"file_path": "x"}}))
    assert (done.returncode, done.stdout) == (0, b"")

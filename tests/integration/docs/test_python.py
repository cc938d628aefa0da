"""Python that pages show: it compiles, what it imports is there, and what it sets exists."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys

import pytest

from tests.integration.docs.pages import ROOT, Block, blocks
from warmgate.settings import Settings
from warmgate.standin import StandIn

SHOWN = list(blocks("python"))
PROGRAMS = [block for block in SHOWN if block.page == "README.md"]

SCRIPT = {
    "chat": [
        {"tool_calls": [{"name": "shell", "arguments": {"command": "ls"}}]},
        {"tool_calls": [{"name": "shell", "arguments": {"command": "rm -rf /usr/local/warmgate-example"}}]},
        {"tool_calls": [{"name": "shell", "arguments": {"command": "git push"}}]},
        {"content": "There is nothing left to do."},
    ]
}


def tree_of(block: Block) -> ast.Module:
    """Its syntax tree. ``await`` outside a function is taken for a line of the reader's own function."""
    code = compile(block.text, block.id, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, ast.Module)
    return code


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.id)
def test_it_compiles_and_its_names_exist(block: Block):
    """A snippet with a name of last month sends its reader into an ImportError."""
    for node in ast.walk(tree_of(block)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("warmgate", "langgraph", "langchain", "agents")):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Settings":
            unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - set(Settings.model_fields)
            assert not unknown, f"no such setting: {unknown}"


def run(block: Block, url: str, folder: os.PathLike[str], said: str = "") -> subprocess.CompletedProcess[str]:
    """The block as a program of its own, against a worker at ``url``. Connections left to the end of the process are no fault of it."""
    assert "http://127.0.0.1:8000" in block.text
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WARMGATE_", "OPENAI_", "COVERAGE"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", block.text.replace("http://127.0.0.1:8000", url)],
        cwd=folder, env=environment, input=said, capture_output=True, text=True, timeout=180,
    )  # fmt: skip


@pytest.mark.parametrize("framework", ["warmgate_adapters.langgraph", "warmgate_adapters.openai_agents", "warmgate_adapters.langchain"])
def test_the_readmes_programs_run_as_they_stand(framework: str, tmp_path):
    """What a newcomer copies works the first time: one call runs, one is refused, a person is asked about one and says no."""
    (block,) = [one for one in PROGRAMS if framework in one.text]
    (tmp_path / "notes.txt").write_text("milk\n")
    with StandIn(model="qwen3", script=SCRIPT) as worker:
        done = run(block, worker.url, tmp_path, "n\n")
        calls = [seen for seen in worker.requests if seen.path == "/v1/chat/completions"]
    assert (done.returncode, done.stderr) == (0, "")
    assert "notes.txt" in done.stdout
    assert "the policy denies it: rm deletes /usr/local/warmgate-example" in done.stdout
    assert "git push" in done.stdout
    assert "a person refused this call" in done.stdout
    assert "There is nothing left to do." in done.stdout
    assert len(calls) == 4
    assert {seen.headers.get("x-session-id") for seen in calls} != {None}


def test_what_langgraph_prints_is_what_the_readme_shows(tmp_path):
    """The output beside the program, line for line where it is not left out."""
    (block,) = [one for one in PROGRAMS if "warmgate_adapters.langgraph" in one.text]
    (shown,) = [one for one in blocks("text") if "Run it? [y/N]" in one.text]
    with StandIn(model="qwen3", script=SCRIPT) as worker:
        printed = run(block, worker.url, tmp_path, "n\n").stdout
    at = 0
    for line in shown.text.replace(" [y/N] n\n", " [y/N] ").split("…"):
        for stretch in filter(None, line.split("\n")):
            found = printed.find(stretch, at)
            assert found >= 0, f"{stretch!r} is not in this place of\n{printed}"
            at = found + len(stretch)


def test_the_readmes_script_is_the_one_tested_here():
    """Else the programs above would be tested on another story than the reader's."""
    (block,) = [one for one in blocks("sh") if one.page == "README.md" and "script.json" in one.text]
    assert json.loads(block.text.split("<<'END'\n", 1)[1].split("\nEND\n", 1)[0]) == SCRIPT


def test_the_readmes_program_without_a_framework_runs(tmp_path):
    """For everybody whose framework is their own."""
    (block,) = [one for one in PROGRAMS if "ProposedCall" in one.text]
    with StandIn(model="qwen3") as worker:
        done = run(block, worker.url, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"('shell',) {worker.url}" in done.stdout
    assert "\nallow " in done.stdout


def test_a_policy_of_ones_own_as_shown_goes_by_arguments(tmp_path):
    """The page's example would let a file be written anywhere, or stop commands that the shell policy allows."""
    (block,) = [one for one in SHOWN if one.page == "docs/policies.md"]
    judged = """
from warmgate import ProposedCall, Turn
calls = (("write_file", {"path": "docs/a"}), ("write_file", {"path": "docs/../a"}), ("write_file", "{"), ("other", {}), ("shell", {"command": "ls"}))
for name, arguments in calls:
    call = ProposedCall("c", name, arguments)
    print(name, gate.calls.judge(call, Turn("s", [], proposed_calls=[call])).verdict)
"""
    done = run(block._replace(text=block.text + judged), "http://127.0.0.1:9", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["write_file", "allow", "write_file", "deny", "write_file", "deny", "other", "ask", "shell", "allow"]


def test_the_readme_is_there():
    """A change of its form would leave nothing to run."""
    assert len(PROGRAMS) == 4
    assert (ROOT / "README.md").exists()

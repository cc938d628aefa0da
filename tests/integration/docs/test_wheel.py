"""The README's programs with what the wheel holds and nothing of the checkout. If these fail, they work here and for nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.docs.pages import ROOT
from tests.integration.docs.test_python import PROGRAMS, SCRIPT
from warmgate.standin import StandIn


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("framework", ["warmgate_adapters.langgraph", "warmgate_adapters.openai_agents"])
def test_a_program_of_the_readme_runs_on_the_wheel(framework: str, unpacked: Path, tmp_path: Path):
    """The wheel brings every pack, template and entry point that a first program needs."""
    (block,) = [one for one in PROGRAMS if framework in one.text]
    ours = [
        f"import {name}; assert {name}.__file__.startswith({str(unpacked)!r})"
        for name in ("warmgate", "warmgate_adapters", "warmgate_policies")
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WARMGATE_", "OPENAI_"))}
    with StandIn(model="qwen3", script=SCRIPT) as worker:
        done = subprocess.run(
            [sys.executable, "-c", "\n".join([*ours, block.text.replace("http://127.0.0.1:8000", worker.url)])],
            cwd=tmp_path, env=environment | {"PYTHONPATH": str(unpacked)}, input="n\n", capture_output=True, text=True, timeout=240,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "the policy denies it" in done.stdout
    assert "There is nothing left to do." in done.stdout


def test_the_command_of_the_wheel_starts(unpacked: Path, tmp_path: Path):
    """Replay's report page and the shell's packs are data files: they are easily left out."""
    environment = dict(os.environ, PYTHONPATH=str(unpacked))
    trace = ROOT / "examples/traces/coding-agent.chat.jsonl"
    for arguments in (["replay", str(trace), "--html", "report.html"], ["shell", "ls"]):
        done = subprocess.run(
            [sys.executable, "-m", "warmgate", *arguments], cwd=tmp_path, env=environment, capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000

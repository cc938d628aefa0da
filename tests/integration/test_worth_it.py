"""The commands of docs/worth-it.md, run as written. If this fails, the guide shows a reader figures that the program does not print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/worth-it.md"
LEFT_OUT = "…"


def commands():
    """Each ``$`` line of the guide's console blocks, with the stretches of output shown below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for one in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = one.partition("\n")
            stretches = re.split(rf"^{LEFT_OUT}$\n?", output, flags=re.MULTILINE)
            yield pytest.param(command, [s for s in stretches if s], id=command.removeprefix("warmgate replay examples/traces/")[:60])


def test_the_guide_has_commands():
    """A change of its form would leave nothing to check."""
    assert len(list(commands())) >= 10


@pytest.mark.parametrize(("command", "stretches"), list(commands()))
def test_a_command_of_the_guide_prints_what_the_guide_shows(command, stretches, tmp_path):
    """Stretches must come whole and in this order; an ellipsis stands for any number of lines."""
    if "| jq " in command and shutil.which("jq") is None:
        pytest.skip("no jq on this machine")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = dict(os.environ, COLUMNS="80", PYTHONUTF8="1", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    at = 0
    for stretch in stretches:
        found = done.stdout.find(stretch, at)
        assert found >= 0, f"not in the output, or not in this place:\n{stretch}\n--- output ---\n{done.stdout}"
        at = found + len(stretch)

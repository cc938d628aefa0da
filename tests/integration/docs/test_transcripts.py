"""What pages show as printed is what is printed. docs/worth-it.md has a test of its own (test_worth_it.py)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.docs.pages import ROOT, transcripts
from warmgate.standin import StandIn

OFFLINE = ("warmgate replay ", "warmgate shell ")
SHOWN = [one for one in transcripts() if one[1].startswith(OFFLINE) and not one[0].startswith("docs/worth-it.md")]


def printed(command: str, folder: Path) -> str:
    environment = dict(os.environ, COLUMNS="80", PYTHONUTF8="1", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout


def in_order(stretches: Sequence[str], output: str) -> None:
    at = 0
    for stretch in stretches:
        found = output.find(stretch, at)
        assert found >= 0, f"not in the output, or not in this place:\n{stretch}\n--- output ---\n{output}"
        at = found + len(stretch)


@pytest.mark.parametrize(("place", "command", "stretches"), SHOWN, ids=[f"{place} {command[:50]}" for place, command, _ in SHOWN])
def test_an_offline_command_prints_what_is_shown(place: str, command: str, stretches: list[str], tmp_path: Path):
    """A reader who sees something else takes the page, or the program, for broken."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    in_order(stretches, printed(command, tmp_path))


def test_the_doctor_says_of_old_and_new_engines_what_the_upgrade_page_shows(tmp_path: Path):
    """Who upgrades looks for these lines."""
    shown = [
        (command, stretches) for place, command, stretches in transcripts() if place.startswith("docs/upgrade.md") and "doctor" in command
    ]
    assert len(shown) == 2
    for (command, stretches), version in zip(shown, ("0.31", "0.32"), strict=True):
        with StandIn(version=version) as worker:
            called = re.sub(r"http://127\.0\.0\.1:\d+", worker.url, command)
            assert shlex.split(called)[2] == worker.url
            in_order(stretches, printed(f"COLUMNS=200 {called}", tmp_path))


def test_the_readme_shows_transcripts():
    """A change of its form would leave nothing to check."""
    assert {place.split(":")[0] for place, _, _ in SHOWN} >= {"README.md"}

"""jevcompat, the conformance suite of the TypeSafe dialect, against each style and release of the stand-in.

vLLM speaks a dialect of its own; here is exactly which MUSTs it misses, and why. What the real server misses the stand-in misses too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warmgate.standin import StandIn

pytest.importorskip("jevcompat", reason="jevcompat is not installed")

OPTIONS = "choice.options"
"""2 to 255 options: vLLM labels options A to Z, so 26 are its most."""

UNKNOWN = "request.unknown-fields"


def report(worker: StandIn, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "jevcompat.cli", "test", worker.url, "--json", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert path.is_file(), done.stdout + done.stderr
    return json.loads(path.read_text())


def requirements(told: dict[str, Any], level: str, status: str) -> set[str]:
    return {entry["id"] for entry in told["results"] if entry["level"] == level and entry["status"] == status}


@pytest.mark.parametrize("options", [{"style": "qwen3"}, {"style": "d1"}, {"style": "clef"}, {"style": "dgemma"}, {"version": "0.33"}])
def test_musts(options: dict[str, Any], tmp_path: Path):
    with StandIn(model="jev-latest", **options) as worker:
        told = report(worker, tmp_path)
    assert requirements(told, "MUST", "fail") == {OPTIONS}
    assert len(requirements(told, "MUST", "pass")) == 31
    assert (UNKNOWN in requirements(told, "SHOULD", "fail")) == ("version" in options)  # 0.33 refuses unknown fields
    assert "dropin.sdk-python" in requirements(told, "MUST", "pass")


def test_musts_under_another_name(tmp_path: Path):
    """As docs/standin.md tells: the alias is the suite's own model name, which vLLM serves only when it was given it."""
    with StandIn() as worker:
        told = report(worker, tmp_path, "--model", "standin")
    assert requirements(told, "MUST", "fail") == {OPTIONS, "request.model-alias"}
    assert len(requirements(told, "MUST", "pass")) == 30


def test_musts_with_a_key(tmp_path: Path):
    with StandIn(model="jev-latest", api_key="secret") as worker:
        told = report(worker, tmp_path, "--key", "secret")
    assert requirements(told, "MUST", "fail") == {OPTIONS}
    assert "auth.bearer" in requirements(told, "MUST", "pass")

"""Where the engine lives: `.engine` in the checkout, or wherever WARMGATE_ENGINE_HOME points."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]


def engine_home() -> Path:
    """The folder with the venvs (`venv`, `venv-031`) and the models. It need not exist."""
    return Path(os.environ.get("WARMGATE_ENGINE_HOME") or REPO / ".engine").expanduser().resolve()


def engine_python(version: str = "0.32") -> Path:
    """The interpreter that runs this vLLM release, "0.32" or "0.31". It need not exist."""
    folder = {"0.32": "venv", "0.31": "venv-031"}[version]
    return engine_home() / folder / "bin" / "python"

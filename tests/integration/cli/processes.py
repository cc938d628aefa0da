"""The command line as its own process, started as a shell would, with whatever streams and signals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHAT = Path(__file__).parents[3] / "examples/traces/coding-agent.chat.jsonl"


def warmgate(*arguments: str | bytes | Path, streams: str = "", before: str = ":", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run it; ``streams`` are redirections of a shell (``>&-``), ``before`` is a command of it. Fails after two minutes rather than hang."""
    script = f'{before}; exec "$@" {streams}'
    command = ["bash", "-c", script, "bash", sys.executable, "-m", "warmgate", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | options.pop("env", {})
    return subprocess.run(command, capture_output=True, timeout=120, env=environment, **{"stdin": subprocess.DEVNULL} | options)

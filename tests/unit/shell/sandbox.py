"""Real bash, in an empty folder, with harmless programs alone: does a command reach the marker?"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

from tests.unit.shell.grammar import MARKER

PROGRAMS = ("cat", "env", "nice", "timeout", "nohup", "xargs", "find", "ls", "diff", "grep", "bash", "sh", "sleep")


class Sandbox:
    """A folder of its own with a marker that leaves a file behind."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.cwd = folder / "cwd"
        self.mark = folder / "ran"
        self.bin.mkdir()
        for name in PROGRAMS:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)
        marker = self.bin / MARKER
        marker.write_text(f"#!/bin/sh\n: > '{self.mark}'\n")
        marker.chmod(0o755)

    def runs_marker(self, command: str) -> bool:
        """Run it for at most two seconds. Only for commands made of harmless programs."""
        shutil.rmtree(self.cwd, ignore_errors=True)
        self.cwd.mkdir()
        self.mark.unlink(missing_ok=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["bash", "-c", "ulimit -t 2 -f 1000 -u 4000; exec bash -c \"$1\"", "_", command], cwd=self.cwd, env={"PATH": str(self.bin), "HOME": str(self.cwd)},
                stdin=subprocess.DEVNULL, capture_output=True, timeout=2, executable=shutil.which("bash"),
            )  # fmt: skip
        return self.mark.exists()


def parses(command: str) -> bool:
    """Whether real bash reads it without an error. ``-n`` runs nothing."""
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0

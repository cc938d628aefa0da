"""Install the gateways, once.

    python -m tests.engine.rig_gateways.install

Makes `.engine/venv-gateways` with vllm-router and smg from the package index (60 MB, seconds). They want other releases of common packages than
we do, so they do not share our environment. A second run sees the stamp and returns at once.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.engine.rig.home import engine_home

GATEWAYS = ("vllm-router==0.1.17", "smg==1.13.0")


class GatewayInstallError(Exception):
    """A step failed. One line; the log has the rest."""


def gateway_bin() -> Path:
    """The folder with the gateways' commands. It need not exist."""
    return engine_home() / "venv-gateways" / "bin"


def install() -> Path:
    """Install the gateways unless they are there, and return :func:`gateway_bin`.

    Raises GatewayInstallError.
    """
    folder = gateway_bin()
    venv = folder.parent
    stamp = venv / ".warmgate-installed"
    wanted = repr((GATEWAYS, sys.version_info[:2]))
    venv.parent.mkdir(parents=True, exist_ok=True)
    with (venv.parent / "install-gateways.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs must not install over each other
        if stamp.is_file() and stamp.read_text() == wanted:
            return folder
        shutil.rmtree(venv, ignore_errors=True)
        log = venv.parent / "install-venv-gateways.log"
        for command in (
            [sys.executable, "-m", "venv", str(venv)],
            [str(folder / "python"), "-m", "pip", "install", "--progress-bar", "off", *GATEWAYS],
        ):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            log.write_text(done.stdout)
            if done.returncode:
                errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or [f"exit {done.returncode}"]
                raise GatewayInstallError(f"installing the gateways failed: {errors[-1]} (log: {log})")
        stamp.write_text(wanted)
    return folder


if __name__ == "__main__":
    try:
        print(f"gateways are in {install()}", file=sys.stderr)
    except (GatewayInstallError, OSError) as error:
        raise SystemExit(f"error: {error}") from None

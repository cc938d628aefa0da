"""`warmgate decide` as docs/decide.md shows it, against the stand-in; and interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from warmgate.cli.app import run
from warmgate.standin import StandIn

PAGE = (Path(__file__).parents[3] / "docs/decide.md").read_text()


@pytest.fixture
def example(tmp_path: Path) -> list[str]:
    """The page's own command, without the worker, and its files."""
    for name in ("questions", "state"):
        shown = re.search(rf'```json title="{name}.json"\n(.*?)```', PAGE, re.DOTALL)
        assert shown is not None
        (tmp_path / f"{name}.json").write_text(shown[1])
    line = re.search(r"^\$ warmgate (decide .*)$", PAGE, re.MULTILINE)
    assert line is not None
    words = line[1].replace("questions.json", str(tmp_path / "questions.json")).replace("state.json", str(tmp_path / "state.json")).split()
    del words[words.index("--worker") : words.index("--worker") + 2]
    return words


@pytest.mark.parametrize("engine", [[], ["--engine", "prefix_read"], ["--engine", "round_trip", "--model", "standin"]])
def test_the_example_of_the_page_is_answered(example: list[str], engine: list[str], capsys: pytest.CaptureFixture[str]):
    """Whoever starts with the page would not get past its first command."""
    with StandIn() as worker:
        assert run([*example, "--worker", worker.url, *engine]) == 0
    decision = json.loads(capsys.readouterr().out)
    assert decision["schema"] == "warmgate.decide/1"
    assert {id_: answer["type"] for id_, answer in decision["answers"].items()} == {"tools": "choice", "shell": "noul", "risk": "score"}
    if "round_trip" not in engine:  # whose prompt has other words, and words are all that a stand-in decides by
        assert decision["answers"]["tools"]["value"] == "files"


def connected(pid: int, port: int) -> bool:
    """Whether a process has a connection to a port of this machine."""
    try:
        return any(
            c.raddr and c.raddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in psutil.Process(pid).net_connections("tcp")
        )
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("fault", ["hang", "slow=30", "drip_feed=5"])
def test_an_interrupt_ends_a_decision_under_way(example: list[str], fault: str):
    """Ctrl-C would print a traceback, or wait for the server."""
    with StandIn(fault=fault) as worker:
        command = [sys.executable, "-m", "warmgate", *example, "--worker", worker.url, "--deadline-ms", "60000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            give_up = time.monotonic() + 30
            while not connected(process.pid, worker.port) and time.monotonic() < give_up and process.poll() is None:
                time.sleep(0.05)
            time.sleep(0.2)  # the request is out
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, out, err) == (130, "", "warmgate: interrupted\n")

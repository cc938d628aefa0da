"""The example behind real gateways: what people copy who have one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.rig import tiny_models
from tests.engine.rig_gateways.gateway import RunningGateway
from tests.engine.rig_gateways.install import install
from warmgate.standin import StandIn

EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway.py"


@pytest.fixture(scope="session", autouse=True)
def _gateways_installed() -> None:
    install()


@pytest.mark.parametrize("name", ["vllm-router", "smg"])
def test_decisions_and_calls_meet_behind_a_gateway(name: str):
    """Every call must find what its decision computed; behind smg only with the chat template given."""
    template = tiny_models.build("qwen3") / "chat_template.jinja"
    more = ["--chat-template", str(template)] if name == "smg" else []
    with (
        StandIn(chat_template=template) as one,
        StandIn(chat_template=template) as other,
        RunningGateway(name, [one.url, other.url]) as gateway,
    ):
        command = [sys.executable, "-W", "error", str(EXAMPLE), gateway.url, "--gateway", name, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 12
    for line in lines:
        found, _, prompt = line.split("decision  ")[1].split()[:3]
        assert "aligned decision" in line
        assert int(found) >= int(prompt) - 32, line

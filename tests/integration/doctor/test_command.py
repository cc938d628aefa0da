"""If these fail, scripts around ``warmgate doctor`` break: exit codes, pure JSON on stdout, one line an error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from warmgate.standin import StandIn

from .servers import dead_port


def warmgate(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warmgate", "doctor", *arguments], capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def test_json_on_stdout_is_only_json_and_the_file_holds_the_same_shape(tmp_path):
    """``warmgate doctor … --json - | jq`` would fail."""
    with StandIn() as worker:
        done = warmgate(worker.url, "--json", "-")
        assert done.returncode == 0
        assert done.stderr == ""
        data = json.loads(done.stdout)
        assert data["schema"] == "warmgate.doctor/1"
        target = tmp_path / "report.json"
        done = warmgate(worker.url, "--json", str(target))
    assert "route" in done.stdout
    assert json.loads(target.read_text())["endpoints"][0].keys() == data["endpoints"][0].keys()


def test_a_dead_port_exits_3():
    done = warmgate(f"http://127.0.0.1:{dead_port()}")
    assert done.returncode == 3
    assert "connection refused" in done.stdout
    assert done.stderr == ""


def test_a_failed_check_exits_1():
    with StandIn(version="0.31") as worker:
        assert warmgate(worker.url).returncode == 1


def test_the_key_comes_from_the_environment_and_is_not_shown():
    with StandIn(api_key="sesame-open") as worker:
        done = warmgate(worker.url, "--api-key-env", "DOCTOR_KEY", environment={"DOCTOR_KEY": "sesame-open"})
        assert done.returncode == 0
        assert "sesame" not in done.stdout + done.stderr
        assert warmgate(worker.url, environment={}).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "URL"),
        (["127.0.0.1:8000"], "http://host:port"),
        (["ftp://a"], "http://host:port"),
        (["http://u:p@a"], "credentials"),
        (["http://a", "--origin", "https://b.example/"], "without a path"),
        (["http://a", "--api-key-env", "NO_SUCH_VARIABLE"], "not set"),
        (["http://a", "--timeout", "0"], "--timeout"),
        (["http://a", "--timeout", "nan"], "--timeout"),
        (["http://a", "--timeout", "soon"], "--timeout"),
        (["http://127.0.0.1:1", "--json", "/no/such/folder/x.json"], "cannot be written"),
        (["http://a", "--bogus"], "--bogus"),
    ],
)
def test_bad_input_exits_2_with_one_line(arguments, words):
    """A typing error would end in a traceback, or be examined."""
    done = warmgate(*arguments)
    assert done.returncode == 2, done
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_key_no_header_can_carry():
    done = warmgate("http://127.0.0.1:1", "--api-key-env", "DOCTOR_KEY", environment={"DOCTOR_KEY": "line\nbreak"})
    assert done.returncode == 2
    assert "line" not in done.stderr

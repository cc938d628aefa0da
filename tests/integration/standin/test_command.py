"""``warmgate standin`` as a process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from warmgate.standin import FAULTS

COMMAND = [sys.executable, "-m", "warmgate", "standin"]


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([*COMMAND, "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 30)[0], "it printed no URL"
        yield process, process.stdout.readline().rstrip("\n")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_and_a_clean_end(number: signal.Signals):
    """Scripts wait for the line, use it as it is, and expect status 0 at the end."""
    with running() as (process, url):
        assert httpx.get(url + "/health").status_code == 200
        httpx.post(url + "/v1/systemone", json={"state": "x", "questions": {"q": {"type": "noul"}}}, headers={"x-standin-fault": "slow=0"})
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")


def test_every_option_arrives(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"decisions": [{"probabilities": {"yes": 0.75}}]}))
    arguments = ["--model", "a", "--model", "b", "--lora", "l", "--version-string", "0.33", "--kv-tokens", "512", "--block-size", "8"]
    arguments += ["--script", str(script), "--api-key", "k", "--allowed-origins", '["https://a.example"]', "--kv-events-port", "0"]
    with running(*arguments, "--fault", "404@/v1/completions") as (_, url):
        with httpx.Client(base_url=url, headers={"authorization": "Bearer k"}) as client:
            assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["a", "b", "l"]
            assert client.get("/v1/models").json()["data"][0]["max_model_len"] == 512
            assert client.get("/version").json()["version"] == "0.33.0"
            body = {"model": "b", "state": "x", "questions": {"q": {"type": "noul"}}}
            assert client.post("/v1/systemone", json=body).json()["answers"]["q"]["noul"] == 0.75
            assert client.post("/v1/completions", json={"prompt": "x"}).json() == {"detail": "Not Found"}
            assert client.get("/kv_event_sources").json()["0"]["publisher"] == "zmq"
            assert 'block_size="8"' in client.get("/metrics").text
            assert (
                client.get("/health", headers={"origin": "https://a.example"}).headers["access-control-allow-origin"] == "https://a.example"
            )
        assert httpx.get(url + "/v1/models").status_code == 401


def test_faults_are_listed():
    done = subprocess.run([*COMMAND, "--fault", "list"], capture_output=True, text=True)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(FAULTS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--style", "gpt"],
        ["--version-string", "1"],
        ["--fault", "nonsense"],
        ["--script", "/nowhere.json"],
        ["--tokenizer", "/nowhere.json"],
        ["--chat-template", "/nowhere.jinja"],
        ["--allowed-origins", "https://a.example"],
        ["--allowed-origins", "[1]"],
        ["--port", "70000"],
        ["--port", "x"],
        ["--block-size", "0"],
        ["--host", "203.0.113.9"],
        ["--nonsense"],
    ],
)
def test_mistakes_are_one_line_on_stderr(arguments: list[str]):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("warmgate: ")
    assert done.stderr.count("\n") == 1


def test_a_taken_port():
    with running() as (_, url):
        port = url.rpartition(":")[2]
        done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=30)
        assert (done.returncode, "cannot listen" in done.stderr, done.stderr.count("\n")) == (2, True, 1)

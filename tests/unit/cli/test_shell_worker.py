"""If these fail, ``warmgate shell --worker`` lets a model wave through what it was never measured on, or a dead worker stops a person's work."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import msgspec
import pytest
import respx

from tests.unit.engines.support import WORKER
from tests.unit.shell.test_policy import labels
from warmgate.cli.app import run
from warmgate_policies.calibration import calibrate, parse_labels
from warmgate_policies.shell import ShellPolicy

URL = f"{WORKER}/v1/systemone"


@pytest.fixture
def policy(tmp_path: Path) -> list[str]:
    path = tmp_path / "policy.json"
    path.write_bytes(msgspec.json.encode(calibrate(parse_labels(labels(f"shell {ShellPolicy().version}"), where="labels"))))
    return ["--worker", WORKER, "--model", "m", "--policy", str(path)]


def says(allow: float):
    """A worker that finds ``allow`` as probable as that, in whatever order it is asked."""

    def reply(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)["questions"]
        answers, seen = {}, {}
        for name, question in asked.items():
            by_word = {"allow": allow, "ask": 1 - allow}
            names = list(question["criteria"]) if isinstance(question["criteria"], dict) else list(by_word)
            answers[name] = {
                "type": "choice",
                "choice": max(by_word, key=by_word.__getitem__),
                "probabilities": {word: by_word[word] for word in names},
                "confidence": 0.5,
            }
            seen[name] = {"label_mass": 0.9, "argmax_is_label": True}
        body = {"id": "d", "object": "structured_decision", "created": 1, "model": "m", "answers": answers}
        return httpx.Response(200, json={**body, "usage": {"input_tokens": 9, "output_tokens": 2}, "diagnostics": seen})

    return reply


@respx.mock
@pytest.mark.parametrize(("allow", "code", "word"), [(0.95, 0, "allow"), (0.85, 10, "ask")])
def test_a_grey_case_is_settled_by_a_measured_model(policy, capsys, allow, code, word):
    """A threshold would not count, and every fetch would go to a person, or none."""
    respx.post(URL).mock(side_effect=says(allow))
    assert run(["shell", "git fetch", *policy]) == code
    assert capsys.readouterr().out.startswith(word + ":")


@respx.mock
@pytest.mark.parametrize(("command", "code"), [("ls", 0), ("rm -rf /", 20), ("cat .env", 10), ('eval "$X"', 10)])
def test_no_model_is_asked_where_it_may_not_move_anything(policy, command, code):
    """A model would lift a deny, or doubt about what the text means."""
    route = respx.post(URL).mock(side_effect=says(1.0))
    assert run(["shell", command, *policy]) == code
    assert not route.called


@respx.mock
@pytest.mark.parametrize(
    "fault", [httpx.ConnectError("refused"), httpx.Response(500), httpx.Response(200, json={"answers": {}}), httpx.Response(200, text="no")]
)
def test_any_fault_is_ask(policy, capsys, fault):
    """A dead worker would allow, or end in a crash."""
    respx.post(URL).mock(side_effect=[fault] * 4)
    assert run(["shell", "git fetch", *policy]) == 10
    out, err = capsys.readouterr()
    assert out.startswith("ask: git fetch contacts the remote repository (no model was heard")
    assert not err


def test_a_worker_without_thresholds_is_refused(policy, capsys):
    """An uncalibrated model would decide."""
    assert run(["shell", "git fetch", "--worker", WORKER]) == 2
    assert run(["shell", "git fetch", "--policy", policy[-1]]) == 2
    assert run(["shell", "--jsonl", "-", *policy]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3

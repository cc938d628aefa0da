"""``warmgate decide``: JSON on stdout, one line on stderr, and exit codes a script can rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from tests.unit.engines.support import WORKER, vllm_reply
from warmgate.cli.app import run

QUESTIONS = {
    "route": {"type": "choice", "instructions": "Which tools?", "criteria": {"fs": "files", "web": None}},
    "shell": {"type": "yes_no", "instructions": "Is a shell needed?"},
    "risk": {"type": "score", "instructions": "How risky?", "criteria": ["none", "some", "high"]},
}
URL = f"{WORKER}/v1/systemone"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "questions.json").write_text(json.dumps(QUESTIONS))
    (tmp_path / "state.txt").write_text("The user asked to list files.")
    return [
        "decide",
        "--worker",
        WORKER,
        "--model",
        "m",
        "--questions",
        str(tmp_path / "questions.json"),
        "--state",
        str(tmp_path / "state.txt"),
    ]


@respx.mock
def test_a_decision_is_printed_as_json_and_exits_0(files: list[str], capsys: pytest.CaptureFixture[str]):
    route = respx.post(URL).respond(json=vllm_reply())
    assert run([*files, "--request-id", "t-1"]) == 0
    out, err = capsys.readouterr()
    decision = json.loads(out)
    assert decision["schema"] == "warmgate.decide/1"
    assert decision["outcome"] == "answered"
    assert list(decision["answers"]) == ["route", "shell", "risk"]
    first = decision["answers"]["route"]
    assert (first["value"], first["probabilities"], first["uncalibrated"]) == ("web", {"fs": 0.25, "web": 0.75}, False)
    assert first["source"]["engine"] == "systemone"
    assert (decision["unanswered"], err) == ({}, "")
    sent = route.calls.last.request
    assert json.loads(sent.content)["state"] == "The user asked to list files."
    assert sent.headers["x-request-id"] == "t-1"


@respx.mock
def test_no_answer_exits_3_with_the_reason_in_one_line_and_json_all_the_same(files: list[str], capsys: pytest.CaptureFixture[str]):
    respx.post(URL).respond(501, json={"error": {"message": "The model does not support the structured decision API"}})
    assert run(files) == 3
    out, err = capsys.readouterr()
    decision = json.loads(out)
    assert decision["outcome"] == "no_answer"
    assert list(decision["unanswered"]) == ["route", "shell", "risk"]
    assert decision["steps"][0]["code"] == "WG314"
    assert err.count("\n") == 1
    assert err.startswith("warmgate: no answer to route, shell, risk: systemone: 501")
    assert "prefix_read" in err


@respx.mock
def test_several_engines_are_tried_in_the_order_given(files: list[str], capsys: pytest.CaptureFixture[str]):
    respx.post(URL).respond(501, json={"error": {"message": "no"}})
    respx.post(f"{WORKER}/tokenize").respond(404, json={"detail": "Not Found"})
    assert run([*files, "--engine", "systemone", "--engine", "prefix_read"]) == 3
    decision = json.loads(capsys.readouterr().out)
    assert [step["engine"] for step in decision["steps"]] == ["systemone", "prefix_read"]


@respx.mock
def test_the_api_key_comes_from_the_environment_by_name(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A key on the command line would stand in the process list and the shell's history."""
    route = respx.post(URL).respond(json=vllm_reply())
    monkeypatch.setenv("MY_KEY", "sk-secret")
    assert run([*files, "--api-key-env", "MY_KEY"]) == 0
    assert route.calls.last.request.headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "kind", "state"),
    [
        ('{"a": [1]}', "auto", {"a": [1]}),
        ("[1, 2]", "auto", [1, 2]),
        ('{"a": [1]}', "text", '{"a": [1]}'),
        ("{not json", "auto", "{not json"),
        ("3", "auto", "3"),
        ("3", "json", 3),
        ("", "auto", ""),
        ('{"a": 1, "a": 2}', "auto", '{"a": 1, "a": 2}'),
        ('{"a": NaN}', "auto", '{"a": NaN}'),
        ('\ufeff{"a": 1}', "auto", {"a": 1}),
    ],
)
@respx.mock
def test_a_state_is_text_or_json(text: str, kind: str, state: Any, files: list[str], tmp_path: Path):
    route = respx.post(URL).respond(json=vllm_reply())
    (tmp_path / "state.txt").write_text(text)
    assert run([*files, "--state-as", kind]) == 0
    assert json.loads(route.calls.last.request.content)["state"] == state


@respx.mock
def test_the_json_can_go_to_a_file(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    respx.post(URL).respond(json=vllm_reply())
    assert run([*files, "--json", str(tmp_path / "out.json")]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "out.json").read_text())["outcome"] == "answered"


@respx.mock
def test_all_that_the_dialect_takes_is_passed_on(files: list[str], tmp_path: Path):
    def answer(sent: httpx.Request) -> httpx.Response:
        body = json.loads(sent.content)
        assert (body["instructions"], body["cache_salt"]) == ("Be brief.", "s")
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        reply = vllm_reply()
        reply["answers"]["route~reversed"] = reply["answers"]["route"]
        return httpx.Response(200, json=reply)

    respx.post(URL).mock(side_effect=answer)
    (tmp_path / "i.txt").write_text("Be brief.")
    options = ["--instructions", str(tmp_path / "i.txt"), "--cache-salt", "s", "--check-order"]
    assert run([*files, *options, "--chat-template-kwargs", '{"enable_thinking": false}', "--dialect", "vllm-0.33"]) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--questions", "/nonexistent"], "cannot be read"),
        (["--state", "/nonexistent"], "cannot be read"),
        (["--instructions", "/nonexistent"], "cannot be read"),
        (["--state", "\0"], "cannot be read"),
        (["--state-as", "json"], "is not JSON"),
        (["--worker", "ftp://h"], "not a worker's URL"),
        (["--dialect", "typesafe", "--cache-salt", "s"], "would ignore it"),
        (["--dialect", "openai"], "has no dialect openai"),
        (["--engine", "guess"], "guess"),
        (["--deadline-ms", "0"], "deadline-ms"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE is not set"),
        (["--chat-template-kwargs", "[1]"], "is not a JSON object"),
        (["--chat-template-kwargs", '{"a": NaN}'], "is not a JSON object"),
        (["--state", "-", "--questions", "-"], "only one can come on standard input"),
        (["--prompt", "/dev/null"], "add --engine prefix_read"),
        (["--deadline-ms", "999999999999"], "deadline-ms"),
        (["--state", "/dev/zero"], "longer than the 32 MiB"),
        (["--instructions", "/dev/zero"], "longer than the 32 MiB"),
        (["--prompt", "/dev/zero"], "longer than the 32 MiB"),
        (["--questions", "/dev/zero"], "longer than the 1 MiB"),
        (["--request-id", "a b"], "request id"),
        (["--json", "/nonexistent/x"], "cannot be written"),
    ],
)
@respx.mock
def test_bad_input_exits_2_with_one_line(changes: list[str], words: str, files: list[str], capsys: pytest.CaptureFixture[str]):
    respx.post(URL).respond(json=vllm_reply())
    assert run([*files, *changes]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_questions_that_cannot_be_asked_exit_2_and_name_question_field_limit_and_dialect(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    many = {"q": {"type": "choice", "criteria": {f"o{n}": None for n in range(27)}}}
    (tmp_path / "questions.json").write_text(json.dumps(many))
    assert run(files) == 2
    assert "question 'q', criteria: 27 options, at most 26 (dialect vllm)" in capsys.readouterr().err


def test_a_state_that_is_not_utf8_exits_2(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "state.txt").write_bytes(b"\xff\xfe")
    assert run(files) == 2
    assert "not UTF-8" in capsys.readouterr().err


@respx.mock
def test_the_state_may_come_on_standard_input(files: list[str], monkeypatch: pytest.MonkeyPatch):
    import io
    import sys

    route = respx.post(URL).respond(json=vllm_reply())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe")))
    assert run([*files, "--state", "-"]) == 0
    assert json.loads(route.calls.last.request.content)["state"] == "from a pipe"


@pytest.mark.parametrize(("option", "limit"), [("--questions", "1 MiB"), ("--state", "32 MiB"), ("--instructions", "32 MiB")])
def test_a_file_that_is_too_long_is_refused_by_its_size(
    option: str, limit: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Reading and parsing a wrong file, a log or a model, could take minutes and all memory. The file here is sparse: nobody reads it."""
    with (tmp_path / "big").open("wb") as big:
        big.truncate(1 << 40)
    assert run([*files, option, str(tmp_path / "big")]) == 2
    err = capsys.readouterr().err
    assert f"has 1048576 MiB, more than the {limit}" in err
    assert err.count("\n") == 1


@respx.mock
def test_a_key_that_stands_twice_is_refused_where_json_is_asked_for(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The first of the two would be lost without a word."""
    (tmp_path / "state.txt").write_text('{"a": 1, "a": 2}')
    assert run([*files, "--state-as", "json"]) == 2
    assert "'a' stands twice" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["systemone", "prefix_read", "round_trip"])
@pytest.mark.parametrize(
    ("state", "words"),
    [
        ('"\\ud800"', "half of a surrogate pair"),
        ('{"a": ["\\ud800"]}', "half of a surrogate pair"),
        ("1e999", "a number that is not finite"),
        ('{"a": 1e999}', "a number that is not finite"),
        ("9" * 5000, "a number with thousands of digits"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
@respx.mock
def test_a_state_that_cannot_be_sent_is_bad_input_whichever_engine_asks(
    state: str, words: str, engine: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Half a character, which models and JSON escapes produce, crashed some engines and was no answer in others."""
    (tmp_path / "state.txt").write_text(state)
    assert run([*files, "--state-as", "json", "--engine", engine]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


@respx.mock
def test_an_output_that_cannot_be_written_is_found_before_anything_is_asked(files: list[str]):
    route = respx.post(URL).respond(json=vllm_reply())
    assert run([*files, "--json", "/nonexistent/x"]) == 2
    assert not route.called

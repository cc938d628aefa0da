"""The rig itself: what every other engine test takes for granted about its server."""

from __future__ import annotations

import os
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.rig import tiny_models
from tests.engine.rig.home import REPO
from tests.engine.rig.server import EngineStartError, ServerOptions, VllmServer

QUESTIONS = {
    "route": {"type": "choice", "instructions": "Which tool?", "criteria": {"shell": "runs a command", "none": None}},
    "safe": {"type": "noul", "instructions": "Is it safe?"},
    "risk": {"type": "score", "instructions": "How risky?", "criteria": ["low", "middle", "high"]},
}


def test_the_server_is_the_release_the_project_speaks_to(vllm_qwen3: VllmServer):
    assert vllm_qwen3.get("/health").status == 200
    assert vllm_qwen3.get("/version").json() == {"version": "0.32.0"}
    (model,) = vllm_qwen3.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == (vllm_qwen3.model, 16384)


def test_systemone_answers_every_question_type_with_its_documented_fields(vllm_qwen3: VllmServer):
    reply = vllm_qwen3.post("/v1/systemone", {"state": "Delete the folder.", "instructions": "You judge.", "questions": QUESTIONS})
    assert reply.status == 200, reply.body
    body = reply.json()
    assert set(body) == {"id", "object", "created", "model", "answers", "usage", "diagnostics"}
    _documented_answers(body)
    assert body["usage"]["output_tokens"] == len(QUESTIONS)
    assert all(set(d) == {"label_mass", "argmax_is_label"} for d in body["diagnostics"].values())


def test_every_label_is_one_token(vllm_qwen3: VllmServer):
    """Were one not, systemone would answer 501 and the reason would be in a debug log."""
    for label in ("yes", "no", *string.ascii_uppercase, *string.digits):
        assert vllm_qwen3.post("/tokenize", {"model": vllm_qwen3.model, "prompt": label}).json()["count"] == 1, label


def test_a_read_is_the_chat_prompt_that_tokenize_renders(vllm_qwen3: VllmServer):
    """Prefix alignment foretells decision prompts by this equality."""
    state = "The agent wants to list a directory."
    question = "Question: Is it safe?\nyes\nno\nAnswer with yes or no only."
    rendered = vllm_qwen3.post(
        "/tokenize",
        {
            "model": vllm_qwen3.model,
            "messages": [{"role": "system", "content": "You judge."}, {"role": "user", "content": f"{state}\n\n{question}"}],
            "add_generation_prompt": True,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    ).json()
    asked = {"state": state, "instructions": "You judge.", "questions": {"safe": QUESTIONS["safe"]}}
    assert vllm_qwen3.post("/v1/systemone", asked).json()["usage"]["input_tokens"] == rendered["count"]


def test_chat_reports_the_tokens_it_found_cached(vllm_qwen3: VllmServer):
    chat = {
        "model": vllm_qwen3.model,
        "messages": [{"role": "user", "content": "Tell me about the long history of the budget. " * 20}],
        "max_tokens": 2,
        "cache_salt": "test-rig-chat",
    }
    first, second = (vllm_qwen3.post("/v1/chat/completions", chat).json()["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    # Whole blocks of 32, and the last token is always computed again.
    assert second["prompt_tokens_details"]["cached_tokens"] == (second["prompt_tokens"] - 1) // 32 * 32


def test_metrics_count_the_tokens_a_decision_queried_and_found(vllm_qwen3: VllmServer):
    asked = {"state": "The budget of the team. " * 40, "questions": QUESTIONS, "cache_salt": "test-rig-metrics"}
    vllm_qwen3.post("/v1/systemone", asked)
    time.sleep(0.5)  # lets an earlier test's last counts arrive
    before = _prefix_cache(vllm_qwen3)
    used = vllm_qwen3.post("/v1/systemone", asked).json()["usage"]["input_tokens"]
    deadline = time.monotonic() + 10
    while (after := _prefix_cache(vllm_qwen3))[0] - before[0] < used and time.monotonic() < deadline:
        time.sleep(0.1)
    queried, found = after[0] - before[0], after[1] - before[1]
    assert queried == used
    assert 0.8 * used < found < used


def test_the_template_strips_old_reasoning_and_groups_tool_results(vllm_qwen3: VllmServer):
    """The two habits of Qwen3's template that break a prefix; without them the engine tests would prove too little."""
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    loop: list[dict[str, Any]] = [
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": "", "reasoning": "I must look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "1", "content": "two"},
    ]
    inside, after = _render(vllm_qwen3, loop), _render(vllm_qwen3, [*loop, {"role": "user", "content": "thanks"}])
    assert "I must look." in inside
    assert "I must look." not in after
    assert inside.count("<|im_start|>user") == 2  # the question, and one turn for both results


def test_models_are_the_same_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Token counts in the engine tests would differ between two checkouts otherwise."""
    built: list[dict[str, bytes]] = []
    for name in ("one", "two"):
        monkeypatch.setenv("WARMGATE_ENGINE_HOME", str(tmp_path / name))
        folder = tiny_models.build("qwen3")
        built.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert built[0] == built[1]
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"} <= set(built[0])


def test_a_missing_engine_fails_the_run_and_says_what_installs_it(tmp_path: Path):
    """A skip would let a run without an engine pass for a tested one."""
    one = f"{Path(__file__)}::test_the_server_is_the_release_the_project_speaks_to"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", one],
        cwd=REPO,
        env={**os.environ, "WARMGATE_ENGINE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1, run.stdout
    assert "make test-engine" in run.stdout
    assert "Traceback" not in run.stdout


@pytest.mark.engine_all
@pytest.mark.parametrize("model", ["qwen35", "qwen35moe", "lfm2vl"])
def test_the_other_generating_architectures_answer_in_the_same_style(vllm_server: Callable[..., VllmServer], model: str):
    server = vllm_server(model=model)
    reply = server.post("/v1/systemone", {"state": "Delete the folder.", "instructions": "You judge.", "questions": QUESTIONS})
    assert reply.status == 200, reply.body
    _documented_answers(reply.json())
    assert reply.json()["usage"]["output_tokens"] == len(QUESTIONS)


@pytest.mark.engine_all
def test_clef_reads_all_questions_at_once_and_never_the_cache(vllm_server: Callable[..., VllmServer]):
    server = vllm_server(model="clef")
    asked = {"state": "Delete the folder. " * 200, "questions": QUESTIONS}
    for _ in range(2):
        reply = server.post("/v1/systemone", asked)
        assert reply.status == 200, reply.body
        body = reply.json()
        _documented_answers(body)
        assert body["usage"]["output_tokens"] == 0
        assert all(d == {"label_mass": 1.0, "argmax_is_label": True} for d in body["diagnostics"].values())
    assert _prefix_cache(server) == (0, 0)
    refused = server.post("/v1/systemone", {**asked, "instructions": "You judge."})
    assert (refused.status, refused.json()["error"]["type"]) == (400, "BadRequestError")
    assert server.post("/v1/chat/completions", {"model": "clef", "messages": []}).status == 404


@pytest.mark.engine_all
def test_the_release_before_has_no_decision_endpoint(vllm_server: Callable[..., VllmServer]):
    server = vllm_server(version="0.31")
    reply = server.post("/v1/systemone", {"state": "x", "questions": {"safe": QUESTIONS["safe"]}})
    assert (reply.status, reply.json()) == (404, {"detail": "Not Found"})


@pytest.mark.engine_all
def test_the_wrong_logprobs_mode_is_a_501(vllm_server: Callable[..., VllmServer]):
    server = vllm_server(fresh=True, extra=("--logprobs-mode", "raw_logits"))
    reply = server.post("/v1/systemone", {"state": "x", "questions": {"safe": QUESTIONS["safe"]}})
    assert (reply.status, reply.json()["error"]["type"]) == (501, "NotImplementedError")


@pytest.mark.engine_all
def test_nothing_is_left_of_a_stopped_server():
    """Three processes a server, each half a gigabyte: leftovers would fill a CI machine."""
    server = VllmServer(ServerOptions(num_gpu_blocks=65, max_model_len=1024))
    server.start()
    mine = _processes_naming(str(server.port))
    assert mine
    server.stop()
    assert not _processes_naming(str(server.port))
    assert not [pid for pid in mine if Path(f"/proc/{pid}").exists()]


@pytest.mark.engine_all
def test_a_server_that_dies_shows_the_end_of_its_log():
    server = VllmServer(ServerOptions(extra=("--block-size", "nonsense")))
    with pytest.raises(EngineStartError, match=r"(?s)ended with 2 while starting qwen3.*nonsense"):
        server.start()


def _documented_answers(body: dict[str, Any]) -> None:
    answers = body["answers"]
    assert list(answers) == list(QUESTIONS)
    assert set(answers["route"]) == {"type", "choice", "probabilities", "confidence"}
    assert set(answers["safe"]) == {"type", "noul", "probabilities", "confidence"}
    assert set(answers["risk"]) == {"type", "score", "legend", "probabilities", "confidence"}
    assert set(answers["route"]["probabilities"]) == {"shell", "none"}
    assert answers["safe"]["noul"] == answers["safe"]["probabilities"]["yes"]
    assert answers["risk"]["legend"] == {"0": "low", "1": "middle", "2": "high"}
    assert all(sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-3) for answer in answers.values())


def _prefix_cache(server: VllmServer) -> tuple[float, float]:
    return server.metric("vllm:prefix_cache_queries_total"), server.metric("vllm:prefix_cache_hits_total")


def _render(server: VllmServer, messages: list[dict[str, Any]]) -> str:
    ids = server.post("/tokenize", {"model": server.model, "messages": messages, "add_generation_prompt": True}).json()["tokens"]
    text: str = server.post("/detokenize", {"model": server.model, "tokens": ids}).json()["prompt"]
    return text


def _processes_naming(text: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if text in command:
                found.append(int(entry.name))
    return found

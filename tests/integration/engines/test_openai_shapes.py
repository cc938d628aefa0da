"""The engines on the openai client, over a real socket (it runs on httpx2, which no stub of httpx reaches)."""

from __future__ import annotations

import asyncio
import copy
import math
from typing import Any

import pytest

from tests.integration.engines.scripted import Scripted, Sent, reply
from warmgate.answers import Answers, Usage
from warmgate.engines import AskRequest, Chain, Deadline, Decisions, RoundTrip
from warmgate.errors import BadRequest, MalformedAnswer, Refused, RouteAbsent
from warmgate.questions import Choice, Noul, Question, Score

QUESTIONS: dict[str, Question] = {
    "route": Choice(instructions="Which tools?", criteria={"fs": "files", "web": None}),
    "shell": Noul(instructions="Is a shell needed?", criteria={"true": "commands must run", "false": None}),  # type: ignore[arg-type]
    "risk": Score(instructions="How risky?", criteria=("none", "some", "high")),
}
OPENAI: dict[str, Any] = {
    "model": "gpt",
    "answers": [
        {
            "type": "choice",
            "name": "route",
            "choice": "web",
            "confidence": 0.6,
            "probabilities": [{"value": "fs", "probability": 0.25}, {"value": "web", "probability": 0.75}],
        },
        {"type": "predicate", "name": "shell", "probability": 0.9},
        {
            "type": "score",
            "name": "risk",
            "score": 0.7,
            "confidence": 0.3,
            "probabilities": [{"value": n, "label": "x", "probability": p} for n, p in enumerate((0.5, 0.3, 0.2))],
        },
    ],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 103,
    },
}
SGLANG: dict[str, Any] = {
    "model": "qwen",
    "prompt_format_version": 1,
    "answers": {
        "route": {"type": "choice", "choice": "web", "probabilities": {"fs": 0.25, "web": 0.75}, "label_mass": 0.8},
        "shell": {"type": "yes_no", "probabilities": {"yes": 0.9, "no": 0.1}, "label_mass": 0.7},
        "risk": {"type": "score", "score": 0.7, "probabilities": {"0": 0.5, "1": 0.3, "2": 0.2}, "label_mass": 0.6},
    },
    "usage": {"prompt_tokens": 100, "total_tokens": 100},
}


class Says:
    """Answers every request with the same status and body."""

    def __init__(self, body: object, status: int = 200) -> None:
        self.body = body
        self.status = status

    async def __call__(self, _: Sent, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(self.status, self.body))


async def decide(body: object, *, dialect: str = "openai", status: int = 200, **changes: Any) -> tuple[Answers, Sent]:
    with Scripted(Says(body, status)) as server:
        async with Decisions(server.url, model="m", dialect=dialect, api_key="k") as engine:
            request = AskRequest(**{"questions": QUESTIONS, "state": "list files", **changes})
            return await engine.ask(request, deadline=Deadline(5)), server.sent[0]


async def test_openais_shape_goes_out_and_comes_back():
    answers, sent = await decide(OPENAI)
    assert (sent.method, sent.path, sent.headers["authorization"]) == ("POST", "/v1/decisions", "Bearer k")
    assert sent.json() == {
        "model": "m",
        "input": "list files",
        "questions": [
            {
                "type": "choice",
                "name": "route",
                "instructions": "Which tools?",
                "choices": [{"value": "fs", "description": "files"}, {"value": "web"}],
            },
            {"type": "predicate", "name": "shell", "instructions": "Is a shell needed?\nTrue means: commands must run"},
            {
                "type": "score",
                "name": "risk",
                "instructions": "How risky?",
                "levels": [{"label": "none"}, {"label": "some"}, {"label": "high"}],
            },
        ],
    }
    assert answers.answers["route"].value == "web"
    assert answers.answers["route"].server_confidence == 0.6
    assert answers.answers["shell"].probabilities == {"yes": 0.9, "no": pytest.approx(0.1)}
    assert answers.answers["risk"].value == pytest.approx(0.7)
    assert answers.usage == Usage(input_tokens=100, output_tokens=3, cached_tokens=64)
    assert (answers.source.engine, answers.source.model, answers.source.dialect) == ("decisions", "gpt", "openai")


async def test_instructions_become_a_developer_message_and_json_state_becomes_text():
    _, sent = await decide(OPENAI, instructions="Be brief.", state={"a": [1]})
    assert sent.json()["input"] == [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": '{"a":[1]}'}]


async def test_vllm_0_33_gets_no_field_it_would_refuse():
    answers, sent = await decide(OPENAI, dialect="vllm-0.33")
    assert set(sent.json()) == {"model", "input", "questions"}
    assert answers.source.dialect == "vllm-0.33"


async def test_unnamed_answers_are_taken_by_their_place():
    body = copy.deepcopy(OPENAI)
    for answer in body["answers"]:
        answer["name"] = None
    assert (await decide(body))[0].answers["shell"].value == 0.9


async def test_a_refusal_of_one_question_leaves_the_others():
    body = copy.deepcopy(OPENAI)
    body["answers"][1] = {"type": "refusal", "name": "shell"}
    answers, _ = await decide(body)
    assert list(answers.answers) == ["route", "risk"]
    assert list(answers.refused) == ["shell"]


async def test_a_refusal_of_all_is_an_error_and_a_reason_in_the_chain():
    body = {**OPENAI, "answers": [{"type": "refusal", "name": id_} for id_ in QUESTIONS]}
    with pytest.raises(Refused):
        await decide(body)
    with Scripted(Says(body)) as server:
        async with Chain([Decisions(server.url, model="m")]) as chain:
            result = await chain.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(5))
    assert result.outcome == "no_answer"
    assert "declined" in result.reason


def spoiled(change: Any) -> dict[str, Any]:
    body = copy.deepcopy(OPENAI)
    change(body["answers"])
    return body


@pytest.mark.parametrize(
    "change",
    [
        lambda answers: answers.pop(),
        lambda answers: answers.append(answers[0]),
        lambda answers: answers.reverse(),
        lambda answers: answers[0].update(type="predicate", probability=0.5),
        lambda answers: answers[0].update(choice="fs"),
        lambda answers: answers[0].update(choice=True),
        lambda answers: answers[0]["probabilities"].pop(),
        lambda answers: answers[0]["probabilities"][0].update(value="FS"),
        lambda answers: answers[0]["probabilities"][0].update(value="web"),
        lambda answers: answers[0]["probabilities"][0].update(probability="0.25"),
        lambda answers: answers[0]["probabilities"][0].update(probability=0.9),
        lambda answers: answers[1].update(probability=1.5),
        lambda answers: answers[1].update(probability=None),
        lambda answers: answers[1].update(type="unsure"),
        lambda answers: answers[2].update(score=2.0),
        lambda answers: answers[2].update(score=None),
        lambda answers: answers[2]["probabilities"][0].update(value=7),
        lambda answers: answers[2]["probabilities"][0].update(value=1),
        lambda answers: answers[2]["probabilities"][0].update(value=True),
    ],
)
async def test_a_reply_that_is_no_answer_to_the_questions_is_an_error(change: Any):
    """The client's own models check nothing: they would hand all of these on."""
    with pytest.raises(MalformedAnswer):
        await decide(spoiled(change))


async def test_errors_keep_their_words_and_a_missing_route_is_told_from_a_missing_model():
    with pytest.raises(RouteAbsent):
        await decide({"detail": "Not Found"}, status=404)
    with pytest.raises(BadRequest, match="choice values must be distinct"):
        await decide({"error": {"message": "choice values must be distinct", "type": "invalid_request_error"}}, status=400)


async def test_sglangs_own_shape_goes_out_and_comes_back():
    answers, sent = await decide(SGLANG, dialect="sglang", chat_template_kwargs={"x": 1})
    assert sent.json() == {
        "input": "list files",
        "model": "m",
        "chat_template_kwargs": {"x": 1},
        "questions": [
            {
                "id": "route",
                "type": "choice",
                "question": "Which tools?",
                "options": [{"name": "fs", "description": "files"}, {"name": "web"}],
            },
            {"id": "shell", "type": "yes_no", "question": "Is a shell needed?", "yes": "commands must run"},
            {"id": "risk", "type": "score", "question": "How risky?", "levels": ["none", "some", "high"]},
        ],
    }
    assert answers.answers["shell"].value == pytest.approx(0.9)
    assert answers.answers["route"].label_mass == 0.8
    assert list(answers.answers["risk"].probabilities or ()) == ["none", "some", "high"]
    assert answers.usage == Usage(input_tokens=100)


@pytest.mark.parametrize(
    "change",
    [
        lambda answers: answers.pop("shell"),
        lambda answers: answers["shell"].update(type="choice"),
        lambda answers: answers["shell"]["probabilities"].pop("no"),
        lambda answers: answers["route"].update(choice="fs"),
        lambda answers: answers["risk"].update(score=2.0),
        lambda answers: answers["risk"]["probabilities"].update({"3": 0.0}),
        lambda answers: answers["risk"].update(label_mass=5),
    ],
)
async def test_sglangs_replies_are_checked_too(change: Any):
    body = copy.deepcopy(SGLANG)
    change(body["answers"])
    with pytest.raises(MalformedAnswer):
        await decide(body, dialect="sglang")


# ---------------------------------------------------------------- round trip


def chat(content: str | None, *, finish: str = "stop", logprobs: Any = None, refusal: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    usage = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59, "prompt_tokens_details": {"cached_tokens": 16}}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice], "usage": usage}


GOOD = '{"q1":"B","q2":"yes","q3":"0"}'


def listed(*pieces: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for piece in pieces:
        text, alternatives = (piece, {piece: 1.0}) if isinstance(piece, str) else piece
        top = [{"token": t, "logprob": math.log(p), "bytes": None} for t, p in alternatives.items()]
        content.append({"token": text, "logprob": math.log(alternatives[text]), "bytes": None, "top_logprobs": top})
    return {"content": content, "refusal": None}


WITH_LOGPROBS = listed(
    '{"q1":"',
    ("B", {"B": 0.6, "A": 0.2, "The": 0.1}),
    '","q2":"',
    ("yes", {"yes": 0.8, "no": 0.1, "maybe": 0.05}),
    '","q3":"',
    ("0", {"0": 0.5, "1": 0.3, "2": 0.2}),
    '"}',
)


async def trip(body: object, *, status: int = 200, dialect: str = "openai", **changes: Any) -> tuple[Answers, list[Sent]]:
    with Scripted(body if callable(body) else Says(body, status)) as server:  # type: ignore[arg-type]
        async with RoundTrip(server.url, model="small", dialect=dialect) as engine:
            request = AskRequest(**{"questions": QUESTIONS, "state": {"a": 1}, **changes})
            return await engine.ask(request, deadline=Deadline(5)), server.sent


async def test_a_round_trip_asks_for_labels_by_schema_and_reads_them():
    answers, sent = await trip(chat(GOOD), instructions="You are a router.")
    body = sent[0].json()
    assert sent[0].path == "/v1/chat/completions"
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"]["q1"]["enum"] == ["A", "B"]
    assert (body["temperature"], body["logprobs"], body["top_logprobs"]) == (0, True, 20)
    assert body["messages"][0]["content"].startswith("You are a router.")
    assert '{"a":1}' in body["messages"][1]["content"]
    assert "shell" not in body["messages"][1]["content"].replace("a shell needed", "")  # ids are ours, not the model's
    assert [answer.value for answer in answers.answers.values()] == ["web", 1.0, 0.0]
    assert all(answer.uncalibrated and answer.confidence is None for answer in answers.answers.values())
    assert answers.usage == Usage(input_tokens=50, output_tokens=9, cached_tokens=16)


async def test_log_probabilities_make_the_answer_calibrated():
    answers, _ = await trip(chat(GOOD, logprobs=WITH_LOGPROBS))
    route, shell, risk = answers.answers.values()
    assert route.probabilities == {"fs": pytest.approx(0.25), "web": pytest.approx(0.75)}
    assert (route.label_mass, route.argmax_is_label) == (pytest.approx(0.8), True)
    assert shell.value == pytest.approx(0.8 / 0.9)
    assert risk.value == pytest.approx(0.7)
    assert not route.uncalibrated


async def test_a_label_that_is_not_the_likeliest_is_kept_without_numbers():
    """A schema can force another label than the model preferred at that place."""
    other = listed('{"q1":"', ("B", {"B": 0.1, "A": 0.8, "x": 0.1}), '","q2":"yes","q3":"0"}')
    route = (await trip(chat(GOOD, logprobs=other)))[0].answers["route"]
    assert (route.value, route.uncalibrated) == ("web", True)


async def test_the_vllm_dialect_constrains_by_expression():
    _, sent = await trip(chat(GOOD), dialect="vllm", cache_salt="s", priority=1, chat_template_kwargs={"enable_thinking": False})
    body = sent[0].json()
    assert body["structured_outputs"] == {"regex": r'\{"q1":"(A|B)","q2":"(yes|no)","q3":"(0|1|2)"\}'}
    assert "response_format" not in body
    assert (body["cache_salt"], body["priority"], body["chat_template_kwargs"]) == ("s", 1, {"enable_thinking": False})


async def test_parameters_that_the_server_refuses_by_name_are_left_out_from_then_on():
    """Reasoning models refuse log-probabilities, diffusion models a temperature."""

    async def script(sent: Sent, writer: asyncio.StreamWriter) -> None:
        body = sent.json()
        for name in ("logprobs", "temperature"):
            if name in body:
                writer.write(reply(400, {"error": {"message": f"{name} is not supported with this model", "param": name}}))
                return
        writer.write(reply(200, chat(GOOD)))

    with Scripted(script) as server:
        async with RoundTrip(server.url, model="small") as engine:
            for expected in (3, 4):
                answers = await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(5))
                assert answers.answers["route"].uncalibrated
                assert len(server.sent) == expected


async def test_two_orders_are_two_calls():
    """In one reply the second answer would be conditioned on the first."""

    async def script(sent: Sent, writer: asyncio.StreamWriter) -> None:
        first = "q3" in sent.json()["response_format"]["json_schema"]["schema"]["properties"]
        writer.write(reply(200, chat(GOOD if first else '{"q1":"B"}')))

    answers, sent = await trip(script, check_order=True)
    assert len(sent) == 2
    assert answers.answers["route"].order_agrees is False
    assert list(answers.answers) == list(QUESTIONS)
    assert answers.usage == Usage(input_tokens=100, output_tokens=18, cached_tokens=32)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "B",
        "null",
        "[]",
        '[{"q1":"B","q2":"yes","q3":"0"}]',
        '{"q1":"B","q2":"yes"}',
        '{"q1":"B","q2":"yes","q3":"0","q4":"A"}',
        '{"q1":"A","q1":"B","q2":"yes","q3":"0"}',
        '{"q1":"C","q2":"yes","q3":"0"}',
        '{"q1":"web","q2":"yes","q3":"0"}',
        '{"q1":"B","q2":true,"q3":0}',
        '{"q1":"B","q2":"Yes","q3":"0"}',
        '{"q1":{"q1":"B"},"q2":"yes","q3":"0"}',
        GOOD + " and more",
        "```json\n" + GOOD + "\n```",
    ],
)
async def test_a_reply_that_is_not_exactly_the_labels_asked_is_an_error(content: str | None):
    with pytest.raises(MalformedAnswer):
        await trip(chat(content))


async def test_a_reply_that_was_cut_is_an_error_and_a_refusal_is_one_of_its_own():
    with pytest.raises(MalformedAnswer, match="length"):
        await trip(chat(GOOD, finish="length"))
    with pytest.raises(MalformedAnswer, match="content_filter"):
        await trip(chat("", finish="content_filter"))
    with pytest.raises(Refused, match="I cannot"):
        await trip(chat(None, refusal="I cannot help with that"))
    with pytest.raises(MalformedAnswer):
        await trip({**chat(GOOD), "choices": []})

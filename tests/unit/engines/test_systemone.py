"""``/v1/systemone``: what goes out and what comes back, in each dialect."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import httpx
import pytest
import respx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.engines.support import QUESTIONS, WORKER, request, vllm_reply
from warmgate.answers import Answers, Usage
from warmgate.engines import Deadline, SystemOne
from warmgate.engines._base import AskRequest, Call
from warmgate.engines.systemone import encode_request, parse_reply
from warmgate.errors import EngineError, MalformedAnswer, OptionError, QuestionError
from warmgate.questions import Choice, Noul, Score

URL = f"{WORKER}/v1/systemone"


def parse(reply: Any, asked: AskRequest | None = None) -> Answers:
    raw = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return parse_reply(raw, Call(SystemOne(WORKER), asked or request(request_id="r"), Deadline(5)))


def test_the_body_is_the_wires_shape():
    body = json.loads(
        encode_request(request(instructions="Be brief.", cache_salt="s", priority=3, chat_template_kwargs={"enable_thinking": False}))
    )
    assert body == {
        "state": "The user asked to list files.",
        "model": "m",
        "instructions": "Be brief.",
        "questions": {
            "route": {"type": "choice", "instructions": "Which tools?", "criteria": {"fs": "files", "web": None}},
            "shell": {"type": "noul", "instructions": "Is a shell needed?"},
            "risk": {"type": "score", "instructions": "How risky?", "criteria": ["none", "some", "high"]},
        },
        "cache_salt": "s",
        "priority": 3,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert list(body["questions"]) == list(QUESTIONS)


def test_what_was_not_given_is_not_sent():
    """vLLM 0.33 answers 400 to fields it does not know, and a null priority is no number."""
    assert set(json.loads(encode_request(AskRequest(questions=QUESTIONS)))) == {"state", "questions"}


def test_criteria_of_a_noul_are_sent_one_sided():
    body = json.loads(encode_request(request(questions={"q": Noul(instructions="?", criteria={"true": "it is"})})))  # type: ignore[arg-type]
    assert body["questions"]["q"]["criteria"] == {"true": "it is"}


@pytest.mark.parametrize("state", ["text", None, {"b": 1, "a": [2, {"x": None}]}, [1, "2"], 3, 0.5, True, "größe 日本 \u2028", {"é": "\n"}])
def test_any_json_state_arrives_as_it_is(state: Any):
    assert json.loads(encode_request(request(state=state)))["state"] == state


@pytest.mark.parametrize("state", [math.nan, {"a": math.inf}, {"a": {1, 2}}, object(), b"bytes", "\ud800", {"a": "\ud800"}])
def test_a_state_that_json_cannot_say_is_refused_not_altered(state: Any):
    """An encoder that writes NaN as null would ask about another state."""
    with pytest.raises(QuestionError) as caught:
        encode_request(request(state=state))
    assert caught.value.field == "state"


def test_a_reply_of_vllm_is_read_whole():
    answers = parse(vllm_reply())
    route, shell, risk = (answers.answers[id_] for id_ in QUESTIONS)
    assert (route.value, route.probabilities, route.confidence, route.server_confidence) == ("web", {"fs": 0.25, "web": 0.75}, 0.5, 0.45)
    assert (route.label_mass, route.argmax_is_label, shell.argmax_is_label) == (0.6, True, False)
    assert shell.value == pytest.approx(0.9)
    assert risk.value == pytest.approx(0.7)
    assert list(risk.probabilities or ()) == ["none", "some", "high"]
    assert answers.usage == Usage(input_tokens=178, output_tokens=3)
    assert answers.usage.cached_tokens is None
    source = route.source
    assert (source.engine, source.worker, source.model, source.dialect, source.request_id) == ("systemone", WORKER, "m", "vllm", "r")
    assert source.latency_s >= 0


def test_a_reply_of_typesafe_has_less_and_is_enough():
    """No probabilities and no confidence on a noul, no diagnostics."""
    reply = vllm_reply(model="jev", usage={"input_tokens": 1, "output_tokens": 2})
    del reply["diagnostics"], reply["answers"]["shell"]["probabilities"], reply["answers"]["shell"]["confidence"]
    shell = parse(reply).answers["shell"]
    assert shell.probabilities == {"yes": 0.9, "no": pytest.approx(0.1)}
    assert (shell.server_confidence, shell.label_mass, shell.argmax_is_label) == (None, None, None)
    assert shell.source.model == "jev"


def test_a_reply_of_sglang_has_its_mass_in_the_answer():
    reply = vllm_reply()
    del reply["diagnostics"]
    for answer in reply["answers"].values():
        answer["x_label_mass"] = 0.4
        answer["x_calibration"] = "raw"
    assert parse(reply).answers["route"].label_mass == 0.4


def test_a_reply_of_llamacpp_has_levels_as_keys_and_counts_no_output():
    reply = vllm_reply(usage={"input_tokens": 9, "output_tokens": 0})
    del reply["diagnostics"], reply["answers"]["shell"]["probabilities"]
    assert parse(reply).usage == Usage(input_tokens=9, output_tokens=0)


def test_unknown_fields_are_skipped_and_options_may_come_in_another_order():
    reply = vllm_reply(latency_ms=1, x_debug={"a": [1]})
    reply["answers"]["route"]["probabilities"] = {"web": 0.75, "fs": 0.25}
    reply["answers"]["more"] = {"type": "noul", "noul": 0.5}
    answers = parse(reply).answers
    assert list(answers) == list(QUESTIONS)
    assert list(answers["route"].probabilities or ()) == ["fs", "web"]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ("many", Usage()),
        ({"input_tokens": "9", "output_tokens": True}, Usage()),
        ({"input_tokens": 9.0, "output_tokens": -1}, Usage(input_tokens=9)),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(input_tokens=5, output_tokens=1, cached_tokens=4)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}, Usage(input_tokens=5, cached_tokens=4)),
        ({"input_tokens": 5, "input_tokens_details": None}, Usage(input_tokens=5)),
    ],
)  # fmt: skip
def test_an_odd_bill_does_not_spoil_the_answers(usage: Any, expected: Usage):
    assert parse(vllm_reply(usage=usage)).usage == expected


def changed(path: str, value: Any) -> dict[str, Any]:
    """A reply with one thing changed; ``...`` removes it."""
    reply = copy.deepcopy(vllm_reply())
    *parents, last = path.split(".")
    place: Any = reply
    for name in parents:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return reply


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("answers", ...),
        ("answers", []),
        ("answers", None),
        ("answers.route", ...),
        ("answers.route", None),
        ("answers.route.type", "noul"),
        ("answers.route.type", ...),
        ("answers.route.choice", ...),
        ("answers.route.choice", "fs"),
        ("answers.route.choice", "WEB"),
        ("answers.route.choice", 1),
        ("answers.route.probabilities", ...),
        ("answers.route.probabilities", {"fs": 1.0}),
        ("answers.route.probabilities", {"FS": 0.25, "web": 0.75}),
        ("answers.route.probabilities", {"fs": 0.25, "web": 0.75, "none": 0.0}),
        ("answers.route.probabilities", {"fs": "0.25", "web": 0.75}),
        ("answers.route.probabilities", {"fs": None, "web": 0.75}),
        ("answers.route.probabilities", {"fs": True, "web": False}),
        ("answers.route.probabilities", {"fs": -0.1, "web": 1.1}),
        ("answers.route.probabilities", {"fs": 0.45, "web": 0.75}),
        ("answers.route.probabilities", [0.25, 0.75]),
        ("answers.shell.noul", ...),
        ("answers.shell.noul", 1.9),
        ("answers.shell.noul", "yes"),
        ("answers.shell.noul", 0.1),
        ("answers.shell.probabilities", {"yes": 0.9}),
        ("answers.shell.probabilities", {"true": 0.9, "false": 0.1}),
        ("answers.risk.score", ...),
        ("answers.risk.score", 0),
        ("answers.risk.probabilities", {"1": 0.5, "2": 0.3, "3": 0.2}),
        ("answers.risk.probabilities", {"none": 0.5, "some": 0.3, "high": 0.2}),
        ("answers.risk.probabilities", {"0": 0.4, "1": 0.24, "2": 0.16}),
        ("diagnostics.route.label_mass", "high"),
        ("diagnostics.route.label_mass", 7),
    ],
)
def test_a_reply_that_is_not_an_answer_is_an_error(path: str, value: Any):
    """The one thing worse than no answer is a wrong one."""
    with pytest.raises(MalformedAnswer):
        parse(changed(path, value))


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"{}", b"garbage", b'{"answers": {', b")]}'\n{}", b"\xff\xfe", b'{"answers": {"route": NaN}}', b"[" * 100_000],
)
def test_a_body_that_is_not_json_is_an_error(raw: bytes):
    with pytest.raises(MalformedAnswer):
        parse(raw)


JSON = st.recursive(st.none() | st.booleans() | st.floats(0, 1) | st.text(max_size=5), lambda x: st.lists(x, max_size=3) | st.dictionaries(
    st.sampled_from(["type", "choice", "noul", "score", "probabilities", "fs", "web", "yes", "no", "0", "1", "2"]), x), max_leaves=8)  # fmt: skip


@given(st.sampled_from(["answers", "answers.route", "answers.shell", "answers.risk", "diagnostics", "usage", "model"]), JSON)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_server_puts_anywhere_the_result_is_an_answer_to_the_question_or_an_error(path: str, value: Any):
    try:
        answers = parse(changed(path, value))
    except EngineError:
        return
    for id_, question in QUESTIONS.items():
        p = answers.answers[id_].probabilities
        assert p is not None
        assert tuple(p) == question.labels
        assert math.isclose(sum(p.values()), 1, rel_tol=1e-9)


@respx.mock
async def test_two_orders_go_out_in_one_request_and_disagreement_is_reported():
    """The order of the options moves answers; a gate abstains where two orders disagree."""

    def answer(sent: httpx.Request) -> httpx.Response:
        asked = json.loads(sent.content)["questions"]
        assert list(asked["q"]["criteria"]) == ["a", "b", "c"]
        assert list(asked["q~reversed"]["criteria"]) == ["c", "b", "a"]
        first = {"type": "choice", "choice": "a", "probabilities": {"a": 0.6, "b": 0.3, "c": 0.1}}
        second = {"type": "choice", "choice": "c", "probabilities": {"c": 0.7, "b": 0.1, "a": 0.2}}
        same = {"type": "choice", "choice": "x", "probabilities": {"x": 0.9, "y": 0.1}}
        return httpx.Response(
            200, json={"answers": {"q": first, "q~reversed": second, "r": same, "r~reversed": same, "n": {"type": "noul", "noul": 1}}}
        )

    route = respx.post(URL).mock(side_effect=answer)
    questions = {
        "q": Choice(instructions="?", criteria={"a": None, "b": None, "c": None}),
        "r": Choice(instructions="?", criteria={"x": None, "y": None}),
        "n": Noul(instructions="?"),
    }
    async with SystemOne(WORKER) as engine:
        found = (await engine.ask(request(questions=questions, check_order=True), deadline=Deadline(5))).answers
    assert route.call_count == 1
    assert list(found) == ["q", "r", "n"]
    assert (found["q"].value, found["q"].order_agrees) == ("a", False)
    assert found["q"].probabilities == {"a": 0.6, "b": 0.3, "c": 0.1}
    assert found["q"].order_probabilities == {"a": pytest.approx(0.2), "b": pytest.approx(0.1), "c": pytest.approx(0.7)}
    assert list(found["q"].order_probabilities or ()) == ["a", "b", "c"]
    assert found["r"].order_agrees is True
    assert found["n"].order_agrees is None


async def test_the_second_order_counts_towards_the_limit():
    questions = {f"q{n}": Choice(instructions="?", criteria={"a": None, "b": None}) for n in range(33)}
    async with SystemOne(WORKER) as engine:
        with pytest.raises(QuestionError, match=r"66 questions, at most 64.*check_order"):
            await engine.ask(request(questions=questions, check_order=True), deadline=Deadline(5))


@respx.mock
async def test_a_users_id_that_looks_derived_is_kept_apart():
    questions = {"q": Choice(criteria={"a": None, "b": None}), "q~reversed": Choice(criteria={"b": None, "a": None})}

    def answer(sent: httpx.Request) -> httpx.Response:
        asked = json.loads(sent.content)["questions"]
        said = {id_: {"type": "choice", "choice": "a", "probabilities": {"a": 0.9, "b": 0.1}} for id_ in asked}
        return httpx.Response(200, json={"answers": said})

    respx.post(URL).mock(side_effect=answer)
    async with SystemOne(WORKER) as engine:
        found = (await engine.ask(request(questions=questions, check_order=True), deadline=Deadline(5))).answers
    assert list(found) == ["q", "q~reversed"]
    assert found["q~reversed"].order_agrees is True


@pytest.mark.parametrize(
    "changes", [{"questions": {}}, {"request_id": "a b"}, {"request_id": "a\r\nX: y"}, {"cache_salt": ""}, {"priority": 2**63}]
)
def test_a_request_that_no_server_could_take_is_refused(changes: dict[str, Any]):
    with pytest.raises(OptionError):
        request(**changes)


def test_the_engines_model_is_used_where_the_request_names_none():
    engine = SystemOne(WORKER, model="served")
    assert engine.check(request(model=None)).model == "served"
    assert engine.check(request(model="lora")).model == "lora"


def test_a_score_of_two_levels_is_read():
    asked = request(questions={"s": Score(criteria=("lo", "hi"))}, request_id="r")
    reply = {"answers": {"s": {"type": "score", "score": 0.25, "probabilities": {"0": 0.75, "1": 0.25}}}}
    assert parse(reply, asked).answers["s"].value == pytest.approx(0.25)

"""What every worker with ``/v1/systemone`` must do, asked through the engines and once in raw bytes where the engines would not send it.

Answers are not compared with anything: a tiny model's are noise. Shapes, statuses, words, limits and cached tokens are.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Literal

import httpx
import pytest

from warmgate.answers import Answers
from warmgate.engines import AgentPrompt, AskRequest, Chain, Deadline, Decisions, Http, PrefixRead, RoundTrip, SystemOne
from warmgate.engines.retry import NO_RETRY
from warmgate.errors import BadRequest, DeadlineExceeded, EngineError, RouteAbsent, UnknownModel
from warmgate.questions import Choice, Noul, Question, Score

BUDGET_S = 60.0
"""For one call. A real engine on a busy two-core machine takes its time; how long is not what is tested here."""


@dataclass(frozen=True)
class Worker:
    """The server under test.

    ``model`` is the name to ask for and ``says`` the name it answers with. ``constraints`` are the dialects of round trips it can take: a
    model of random weights pads the JSON of a schema with white space until it is cut, the stand-in knows no regular expressions.
    """

    url: str
    model: str
    says: str
    style: Literal["qwen3", "d1", "clef", "dgemma"] = "qwen3"
    constraints: tuple[str, ...] = ("openai", "vllm")
    keeps_prefixes: bool = True
    """Whether the cache keeps a shorter prefix of what it saw; hybrid and window models do only when told to."""

    @property
    def chats(self) -> bool:
        """Whether completions and chat are served beside decisions, at temperature 0."""
        return self.style in ("qwen3", "d1")


QUESTIONS: dict[str, Question] = {
    "route": Choice(instructions="Which tool set next?", criteria={"files": "read and write files", "web": "the web", "none": None}),
    "shell": Noul(instructions="Does the next step need a shell?", criteria={"true": "a command must run"}),  # type: ignore[arg-type]
    "risk": Score(instructions="How risky is it?", criteria=("none", "some", "high")),
}


def text(words: int = 200) -> str:
    """A state that nobody has asked about before."""
    return f"{token_hex(8)} " + "The user asked to list the files of the project. " * (words // 9)


async def ask(worker: Worker, *, dialect: str = "vllm", **changes: Any) -> Answers:
    async with SystemOne(worker.url, model=worker.model, dialect=dialect, policy=NO_RETRY) as engine:
        return await engine.ask(AskRequest(**{"questions": QUESTIONS, "state": text(), **changes}), deadline=Deadline(BUDGET_S))


async def post(worker: Worker, body: Mapping[str, Any] | bytes, path: str = "/v1/systemone", **headers: str) -> httpx.Response:
    """Bytes that the engines would refuse to send."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": worker.model, "state": "x", **body}).encode()
    async with httpx.AsyncClient(trust_env=False, timeout=BUDGET_S) as client:
        return await client.post(worker.url + path, content=raw, headers={"content-type": "application/json", **headers})


def check(answers: Answers, worker: Worker, questions: Mapping[str, Question]) -> None:
    assert list(answers.answers) == list(questions)
    for id_, question in questions.items():
        answer = answers.answers[id_]
        assert answer.type == question.type
        assert answer.probabilities is not None
        assert tuple(answer.probabilities) == question.labels
        assert math.isclose(math.fsum(answer.probabilities.values()), 1.0, rel_tol=1e-9)
        assert answer.source.worker == worker.url
        assert answer.source.model == worker.says
        assert 0 < answer.source.latency_s < BUDGET_S


async def test_all_three_types_are_answered_with_mass_and_usage(worker: Worker):
    answers = await ask(worker)
    check(answers, worker, QUESTIONS)
    for answer in answers.answers.values():
        assert answer.label_mass is not None
        assert 0 <= answer.label_mass <= 1
        assert isinstance(answer.argmax_is_label, bool)
        assert answer.server_confidence is not None
        assert answer.probabilities is not None
        assert answer.server_confidence == pytest.approx(max(answer.probabilities.values()) * answer.label_mass, rel=1e-3, abs=1e-6)
    assert answers.usage.input_tokens is not None
    assert answers.usage.input_tokens > 50
    assert answers.usage.output_tokens == {"clef": 0, "dgemma": 6}.get(worker.style, 3)
    assert answers.usage.cached_tokens is None


@pytest.mark.parametrize("state", [None, "", {"b": 1, "a": [2, {"c": None}]}, [1, "two"], 3, True, "größe 日本語 \n <b>"])
async def test_any_json_is_a_state(worker: Worker, state: Any):
    check(await ask(worker, state=state), worker, QUESTIONS)


async def test_instructions_are_taken_or_refused_with_a_reason(worker: Worker):
    if worker.style == "clef":
        with pytest.raises(BadRequest, match="takes no instructions"):
            await ask(worker, instructions="You are a router.")
    else:
        check(await ask(worker, instructions="You are a router."), worker, QUESTIONS)


async def test_every_optional_field_is_taken(worker: Worker):
    answers = await ask(worker, cache_salt="salt", priority=1, chat_template_kwargs={"enable_thinking": False}, request_id="turn-1")
    assert answers.source.request_id == "turn-1"


async def test_the_0_33_dialect_sends_nothing_that_0_32_refuses(worker: Worker):
    check(await ask(worker, dialect="vllm-0.33"), worker, QUESTIONS)


async def test_the_largest_questions_are_answered(worker: Worker):
    questions: dict[str, Question] = {
        "choice": Choice(instructions="?", criteria={f"o{n}": None for n in range(26)}),
        "score": Score(instructions="?", criteria=tuple(f"l{n}" for n in range(10))),
        "one": Choice(instructions="?", criteria={"only": None}),
        "bare": Noul(),
    }
    check(await ask(worker, questions=questions), worker, questions)


async def test_sixty_four_questions_are_answered_in_order(worker: Worker):
    questions: dict[str, Question] = {f"q {n}": Noul(instructions=f"Is it {n}?") for n in range(64)}
    check(await ask(worker, questions=questions, state="x"), worker, questions)


async def test_two_orders_are_asked_in_one_request(worker: Worker):
    answers = await ask(worker, check_order=True)
    check(answers, worker, QUESTIONS)
    route = answers.answers["route"]
    assert isinstance(route.order_agrees, bool)
    assert list(route.order_probabilities or ()) == list(route.probabilities or ())
    assert answers.answers["shell"].order_agrees is None


async def test_calls_side_by_side_all_come_back(worker: Worker):
    async with SystemOne(worker.url, model=worker.model) as engine:
        requests = [AskRequest(questions=QUESTIONS, state=f"state {n}") for n in range(24)]
        for answers in await asyncio.gather(*(engine.ask(one, deadline=Deadline(BUDGET_S)) for one in requests)):
            check(answers, worker, QUESTIONS)


async def test_an_unknown_model_is_named(worker: Worker):
    with pytest.raises(UnknownModel) as caught:
        await ask(worker, model="no-such-model")
    assert caught.value.status == 404
    assert "no-such-model" in (caught.value.server_words or "")


async def test_an_absent_route_is_told_from_an_unknown_model(worker: Worker):
    async with SystemOne(f"{worker.url}/elsewhere", model=worker.model, policy=NO_RETRY) as engine:
        with pytest.raises(RouteAbsent) as caught:
            await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(BUDGET_S))
    assert caught.value.server_words == "Not Found"


async def test_0_32_has_no_decisions_route(worker: Worker):
    async with Decisions(worker.url, model=worker.model, dialect="vllm-0.33", policy=NO_RETRY) as engine:
        with pytest.raises(RouteAbsent):
            await engine.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(BUDGET_S))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"questions": {}}, "at least one question"),
        ({"questions": {f"q{n}": {"type": "noul"} for n in range(65)}}, "at most 64"),
        ({"questions": {"q": {"type": "choice", "criteria": {f"o{n}": None for n in range(27)}}}}, "at most 26"),
        ({"questions": {"q": {"type": "score", "criteria": [f"l{n}" for n in range(11)]}}}, "at most 10"),
        ({"questions": {"q": {"type": "score", "criteria": ["one"]}}}, "levels"),
        ({"questions": {"q": {"type": "score", "criteria": ["a", "a"]}}}, "duplicate"),
        ({"questions": {"q": {"type": "choice", "criteria": {}}}}, "criteria"),
        ({"questions": {"q": {"type": "noul", "criteria": {"maybe": "x"}}}}, "true and false"),
        ({"questions": {"q": {"type": "rank"}}}, "unknown question type"),
        ({"questions": {"q": {"type": "noul", "weight": 2}}}, "unknown field"),
        ({"questions": {"": {"type": "noul"}}}, "non-empty"),
        ({"questions": {"q": {"type": "noul"}}, "cache_salt": ""}, "cache_salt"),
    ],
)
async def test_bad_requests_are_refused_in_the_usual_envelope(worker: Worker, body: dict[str, Any], words: str):
    """The limits in our table are the server's own: each is refused there with these words."""
    reply = await post(worker, body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["type"]) == (400, 400, "BadRequestError")
    assert words in error["message"]


async def test_thinking_is_refused_where_the_label_is_the_first_token(worker: Worker):
    if worker.style == "clef":
        check(await ask(worker, chat_template_kwargs={"enable_thinking": True}), worker, QUESTIONS)
    else:
        with pytest.raises(BadRequest, match="thinking must be off"):
            await ask(worker, chat_template_kwargs={"enable_thinking": True})


async def test_a_compressed_body_is_refused(worker: Worker):
    """Why the engines never compress."""
    raw = json.dumps({"model": worker.model, "state": "x", "questions": {"q": {"type": "noul"}}}).encode()
    reply = await post(worker, zlib.compress(raw), **{"content-encoding": "deflate"})
    assert reply.status_code == 400


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"state": "x"}', b'{"questions": {"q": {"type": "noul"}}}'])
async def test_what_is_no_request_is_a_400_with_words(worker: Worker, raw: bytes):
    async with Http(worker.url, policy=NO_RETRY) as http:
        with pytest.raises(BadRequest) as caught:
            await http.post("/v1/systemone", raw, deadline=Deadline(BUDGET_S), request_id="r")
    assert caught.value.server_words


async def test_a_deadline_cuts_the_call_and_the_worker_answers_the_next(worker: Worker):
    with pytest.raises(DeadlineExceeded):
        async with SystemOne(worker.url, model=worker.model) as engine:
            await engine.ask(AskRequest(questions=QUESTIONS, state=text(6000)), deadline=Deadline(0.005))
    check(await ask(worker), worker, QUESTIONS)


async def test_a_prompt_that_is_too_long_is_refused_never_cut(worker: Worker):
    if worker.style == "clef":
        pytest.skip("clef cuts a long state without a word")
    with pytest.raises(BadRequest) as caught:
        await ask(worker, state="word " * 400_000)
    assert "maximum context length" in (caught.value.server_words or "")
    assert "--max-model-len" in (caught.value.mend or "")


# ---------------------------------------------------------------- reads on the agent's prompt


CHATML = {"before": "<|im_start|>user\n", "after": "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"}


async def read(worker: Worker, **changes: Any) -> Answers:
    async with PrefixRead(worker.url, model=worker.model, policy=NO_RETRY) as engine:
        return await engine.ask(AskRequest(**{"questions": QUESTIONS, **changes}), deadline=Deadline(BUDGET_S))


def needs_completions(worker: Worker) -> None:
    if not worker.chats:
        pytest.skip(f"{worker.style} serves no completions at temperature 0")


async def test_a_read_extends_the_agents_prompt_and_finds_it_cached(worker: Worker):
    """The point of the whole thing: the decision costs its question's tokens, not the conversation's."""
    needs_completions(worker)
    prefix = f"<|im_start|>system\n{text(600)}<|im_end|>\n"
    first = await read(worker, prompt=AgentPrompt(prefix, **CHATML))
    check(first, worker, QUESTIONS)
    second = await read(worker, prompt=AgentPrompt(prefix, **CHATML))
    for id_, answer in second.answers.items():
        assert answer.usage is not None
        assert answer.usage.input_tokens is not None
        assert answer.usage.cached_tokens is not None
        if worker.keeps_prefixes:
            assert answer.usage.cached_tokens > 0.7 * answer.usage.input_tokens
        assert answer.probabilities == pytest.approx(first.answers[id_].probabilities, abs=0.05)
        assert answer.label_mass is not None
        assert isinstance(answer.argmax_is_label, bool)


async def test_a_read_by_ids_is_the_read_by_text(worker: Worker):
    needs_completions(worker)
    prefix = f"<|im_start|>system\n{text(300)}<|im_end|>\n"
    reply = await post(worker, json.dumps({"model": worker.model, "prompt": prefix, "add_special_tokens": False}).encode(), "/tokenize")
    by_ids = await read(worker, prompt=AgentPrompt(tuple(reply.json()["tokens"]), **CHATML))
    by_text = await read(worker, prompt=AgentPrompt(prefix, **CHATML))
    assert by_ids.usage.input_tokens == by_text.usage.input_tokens
    for id_ in QUESTIONS:
        assert by_ids.answers[id_].probabilities == pytest.approx(by_text.answers[id_].probabilities, abs=0.05)


async def test_a_read_without_an_agents_prompt_renders_the_state(worker: Worker):
    needs_completions(worker)
    check(await read(worker, state={"a": 1}, instructions="You are a router."), worker, QUESTIONS)


async def test_a_cache_salt_keeps_prefixes_apart(worker: Worker):
    """Else one tenant could learn another's prompt from what is quick."""
    needs_completions(worker)
    prefix = f"<|im_start|>system\n{text(600)}<|im_end|>\n"
    one: dict[str, Question] = {"shell": QUESTIONS["shell"]}
    for salt, warm in (("a", False), ("b", False), ("a", True)):
        usage = (await read(worker, prompt=AgentPrompt(prefix, **CHATML), cache_salt=salt, questions=one)).usage
        assert usage.cached_tokens is not None
        if worker.keeps_prefixes:
            assert (usage.cached_tokens > 0) is warm


# ---------------------------------------------------------------- round trips and the chain


@pytest.mark.parametrize("dialect", ["openai", "vllm"])
async def test_a_round_trip_parses(worker: Worker, dialect: str):
    needs_completions(worker)
    if dialect not in worker.constraints:
        pytest.skip("this worker cannot be constrained that way")
    async with RoundTrip(worker.url, model=worker.model, dialect=dialect, policy=NO_RETRY) as engine:
        request = AskRequest(questions=QUESTIONS, state="x", chat_template_kwargs={"enable_thinking": False}, check_order=True)
        answers = await engine.ask(request, deadline=Deadline(BUDGET_S))
    assert list(answers.answers) == list(QUESTIONS)
    for id_, question in QUESTIONS.items():
        answer = answers.answers[id_]
        if answer.probabilities is not None:
            assert tuple(answer.probabilities) == question.labels
    assert isinstance(answers.answers["route"].order_agrees, bool)


async def test_the_chain_falls_back_and_says_why(worker: Worker):
    needs_completions(worker)
    engines = [Decisions(worker.url, model=worker.model, dialect="vllm-0.33"), PrefixRead(worker.url, model=worker.model)]
    async with Chain(engines) as chain:
        result = await chain.ask(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(BUDGET_S))
    assert result.outcome == "answered"
    assert {answer.source.engine for answer in result.answers.values()} == {"prefix_read"}
    assert [(step.outcome, step.code) for step in result.steps] == [("failed", "WG313"), ("answered", None)]


def test_the_sync_face_asks_the_same_worker(worker: Worker):
    engine = SystemOne(worker.url, model=worker.model)
    answers = engine.ask_sync(AskRequest(questions=QUESTIONS, state="x"), deadline=Deadline(BUDGET_S))
    check(answers, worker, QUESTIONS)
    from warmgate.engines import get_portal

    get_portal().run(engine.aclose())


async def test_faults_of_one_call_do_not_reach_another(worker: Worker):
    async with SystemOne(worker.url, model=worker.model, policy=NO_RETRY) as engine:

        async def one(number: int) -> Answers | EngineError:
            model = "no-such-model" if number % 2 else worker.model
            try:
                return await engine.ask(AskRequest(questions=QUESTIONS, state="x", model=model), deadline=Deadline(BUDGET_S))
            except EngineError as error:
                return error

        for number, outcome in enumerate(await asyncio.gather(*map(one, range(12)))):
            assert isinstance(outcome, UnknownModel if number % 2 else Answers)

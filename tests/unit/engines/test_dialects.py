"""Limits are checked before sending: a user learns which question, field, limit and dialect, and no request is wasted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engines.support import QUESTIONS, request
from warmgate.engines._base import AgentPrompt
from warmgate.engines.dialects import DECISIONS, PREFIX_READ, ROUND_TRIP, SYSTEMONE, Dialect, dialect
from warmgate.errors import OptionError, QuestionError
from warmgate.questions import Choice, Noul, Question, Score

ALL = [*SYSTEMONE.values(), *DECISIONS.values(), PREFIX_READ, *ROUND_TRIP.values()]


def options(count: int) -> Choice:
    return Choice(instructions="?", criteria={f"o{n}": None for n in range(count)})


@pytest.mark.parametrize("one", ALL, ids=lambda d: f"{d.path} {d.name}")
def test_every_dialect_takes_the_ordinary_request(one: Dialect):
    one.check(request())


@pytest.mark.parametrize(
    ("name", "table", "question", "limit"),
    [
        ("vllm", SYSTEMONE, options(27), 26),
        ("vllm-0.33", SYSTEMONE, options(27), 26),
        ("typesafe", SYSTEMONE, options(256), 255),
        ("sglang", SYSTEMONE, options(256), 255),
        ("llamacpp", SYSTEMONE, options(256), 255),
        ("openai", DECISIONS, options(1), 2),
        ("vllm-0.33", DECISIONS, options(27), 26),
        ("sglang", DECISIONS, options(1), 2),
        ("vllm", SYSTEMONE, Score(instructions="?", criteria=tuple(f"l{n}" for n in range(11))), 10),
        ("openai", ROUND_TRIP, options(27), 26),
    ],
)
def test_counts_beyond_a_dialects_limit_are_named(name: str, table: dict[str, Dialect], question: Question, limit: int):
    with pytest.raises(QuestionError) as caught:
        table[name].check(request(questions={"q": question}))
    error = caught.value
    assert (error.question, error.field, error.limit, error.dialect) == ("q", "criteria", limit, name)
    assert str(limit) in str(error)
    assert name in str(error)


def test_counts_at_the_limit_pass():
    SYSTEMONE["vllm"].check(request(questions={"q": options(26), "r": Score(criteria=tuple(f"l{n}" for n in range(10)))}))
    SYSTEMONE["vllm"].check(request(questions={f"q{n}": Noul(instructions="?") for n in range(64)}))


def test_too_many_questions_are_named():
    with pytest.raises(QuestionError, match="65 questions, at most 64") as caught:
        SYSTEMONE["vllm"].check(request(questions={f"q{n}": Noul(instructions="?") for n in range(65)}))
    assert caught.value.limit == 64


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("typesafe", {"instructions": "You are a router."}),
        ("sglang", {"instructions": "You are a router."}),
        ("sglang", {"cache_salt": "secret"}),
        ("llamacpp", {"cache_salt": "secret"}),
        ("typesafe", {"chat_template_kwargs": {"x": 1}}),
    ],
)
def test_a_field_that_the_server_would_ignore_is_refused(name: str, changes: dict[str, Any]):
    """Else instructions would silently not be followed, or a private cache namespace silently be shared."""
    with pytest.raises(QuestionError) as caught:
        SYSTEMONE[name].check(request(**changes))
    assert caught.value.field == next(iter(changes))


@pytest.mark.parametrize(("name", "state"), [("sglang", None), ("llamacpp", None), ("typesafe", None), ("typesafe", 3), ("sglang", True)])
def test_a_state_that_the_server_refuses_is_refused_here(name: str, state: Any):
    with pytest.raises(QuestionError) as caught:
        SYSTEMONE[name].check(request(state=state))
    assert caught.value.field == "state"


@pytest.mark.parametrize("state", [None, "text", "", {"a": [1]}, [1], 3, 0.5, True])
def test_vllm_takes_any_json_as_state(state: Any):
    SYSTEMONE["vllm"].check(request(state=state))


def test_llamacpp_wants_a_text_with_every_question_and_openai_a_model():
    with pytest.raises(QuestionError, match="needs a text"):
        SYSTEMONE["llamacpp"].check(request(questions={"q": Noul()}))
    with pytest.raises(QuestionError, match="needs a model"):
        DECISIONS["openai"].check(request(model=None))
    SYSTEMONE["vllm"].check(request(model=None, questions={"q": Noul()}))


def test_a_dialect_is_found_by_name_or_the_names_are_listed():
    assert dialect(SYSTEMONE, "sglang").name == "sglang"
    with pytest.raises(OptionError, match=r"one of vllm, vllm-0.33, typesafe, sglang, llamacpp"):
        dialect(SYSTEMONE, "ollama")


def test_the_questions_used_here_are_in_order():
    assert list(QUESTIONS) == ["route", "shell", "risk"]


@pytest.mark.parametrize("field", ["state", "instructions", "model", "cache_salt"])
def test_half_a_character_is_refused_before_it_is_sent(field: str):
    """No server can be sent it: the client would crash where it builds the body."""
    with pytest.raises(QuestionError, match=f"{field}: has half of a surrogate pair"):
        SYSTEMONE["vllm"].check(request(**{field: "caf\xe9 \ud83d"}))


def test_half_a_character_in_the_agents_prompt_is_refused_too():
    with pytest.raises(QuestionError, match=r"prompt\.after"):
        PREFIX_READ.check(request(prompt=AgentPrompt("x", after="\ud83d")))

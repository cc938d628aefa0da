"""Cached tokens out of every shape of usage that an agent's call may come back with."""

from __future__ import annotations

from types import SimpleNamespace as Object
from typing import Any

import pytest
from openai.types import CompletionUsage
from openai.types.completion_usage import PromptTokensDetails

from warmgate.prefix.usage import Reported, reported

CHAT = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64, "created_cache_tokens": 32}}
RESPONSES = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 64}, "total_tokens": 107}
ANTHROPIC = {"input_tokens": 4, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 32, "output_tokens": 7}
LANGCHAIN = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107, "input_token_details": {"cache_read": 64}}


class Hostile:
    @property
    def usage(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("answer", "shape"),
    [
        (CHAT, "openai_chat"),
        ({"usage": CHAT}, "openai_chat"),
        (
            CompletionUsage(
                prompt_tokens=100, completion_tokens=7, total_tokens=107, prompt_tokens_details=PromptTokensDetails(cached_tokens=64)
            ),
            "openai_chat",
        ),
        (RESPONSES, "openai_responses"),
        (Object(usage=Object(input_tokens=100, output_tokens=7, input_tokens_details=Object(cached_tokens=64))), "openai_responses"),
        (ANTHROPIC, "anthropic"),
        (Object(usage=Object(**ANTHROPIC)), "anthropic"),
        (LANGCHAIN, "langchain"),
        (Object(usage_metadata=LANGCHAIN, response_metadata={}), "langchain"),
        ({"response_metadata": {"token_usage": CHAT}}, "openai_chat"),
        (Object(requests=1, input_tokens=100, output_tokens=7, input_tokens_details=Object(cached_tokens=64)), "agents_sdk"),
        (Object(raw_responses=[Object(usage=None), Object(usage=Object(requests=1, **RESPONSES))]), "agents_sdk"),
    ],
)
def test_every_shape(answer: Any, shape: str):
    """That framework's users would see no measured survival."""
    found = reported(answer)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens, found.shape) == (100, 64, 7, shape)
    assert found.measured


@pytest.mark.parametrize(
    "answer",
    [
        {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": None},
        {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107},
        {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107, "input_token_details": {}},
    ],
)
def test_not_reported_is_not_zero(answer: Any):
    """A server that reports nothing would look like one whose cache never hits."""
    found = reported(answer)
    assert found.cached_tokens is None
    assert found.prompt_tokens == 100
    assert not found.measured
    assert found.problem is not None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        [],
        "usage",
        Hostile(),
        {"usage": None},
        {"prompt_tokens": True},
        {"prompt_tokens": -1},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}},
        {"prompt_tokens": 1 << 40},
        {"prompt_tokens": "7"},
        {"input_tokens": "7", "cache_read_input_tokens": 4},
        {"prompt_tokens": 0, "completion_tokens": 0},
    ],
)
def test_nonsense_is_refused_with_a_reason(answer: Any):
    """An answer must never break an agent, nor put a figure into the ledger that nobody measured."""
    found = reported(answer)
    assert found.prompt_tokens is None
    assert found.cached_tokens is None
    assert found.problem


def test_sums_of_several_requests_measure_none():
    """An Agents SDK run sums its calls; taken for one call, survival would be nonsense."""
    found = reported(Object(requests=3, input_tokens=100, output_tokens=7, input_tokens_details=Object(cached_tokens=64)))
    assert found.requests == 3
    assert not found.measured
    assert Reported().measured is False

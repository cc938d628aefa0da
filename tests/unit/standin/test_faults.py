"""Faults on demand: named, counted, and each visible in what a client receives."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.unit.standin.asking import Asker, noul, read
from warmgate.errors import OptionError
from warmgate.standin.faults import FAULTS, STATUSES, TRANSPORT, Faults, parse

QUESTIONS = {
    "route": {"type": "choice", "criteria": {"files": None, "web": None}},
    "red": noul(),
    "risk": {"type": "score", "criteria": ["low", "high"]},
}
CONTENT = sorted(set(FAULTS) - TRANSPORT - {str(s) for s in STATUSES} - {"slow", "hang", "huge_body"})


@pytest.mark.parametrize("text", ["", "nothing", "slow=", "slow=-1", "slow=nan", "slow=1e9", "500=x", "slow,", "a@b"])
def test_faults_that_do_not_exist(text: str):
    """A misspelt fault must not pass as a healthy worker."""
    if text == "slow=":
        assert parse(text)[0].value is None
        return
    with pytest.raises(OptionError):
        parse(text)


def test_several_at_once():
    plan = Faults().plan("POST", "/x", "slow=0.5,slow=0.25,nan,drip_feed")
    assert (plan.delay, list(plan.spoil), plan.transport) == (0.75, ["nan"], {"drip_feed": 0.05})
    assert math.isinf(Faults().plan("POST", "/x", "hang").delay)


def test_where_and_how_often():
    faults = Faults(["500@/v1/models"])
    faults.add("429=0.05", times=2, path="/v1/systemone")
    assert list(faults.plan("GET", "/v1/models", None).spoil) == ["500"]
    assert [list(faults.plan("POST", "/v1/systemone", None).spoil) for _ in range(3)] == [["429"], ["429"], []]
    faults.add("nan")
    assert list(faults.plan("POST", "/anything", None).spoil) == ["nan"]
    assert not faults.plan("GET", "/health", None).spoil
    faults.clear()
    assert not faults.plan("POST", "/anything", None).spoil


@pytest.mark.parametrize("status", STATUSES)
async def test_each_status(status: int):
    reply = await Asker().request("POST", "/v1/systemone", {}, {"x-standin-fault": str(status)})
    assert reply.status == status
    headers = dict(reply.headers)
    assert ("retry-after" in headers) == (status == 429)
    if status == 429:
        assert (headers["retry-after"], headers["retry-after-ms"]) == ("1", "1000")


async def test_retry_after_of_choice():
    reply = await Asker().request("POST", "/v1/systemone", {}, {"x-standin-fault": "503=0.05"})
    assert (dict(reply.headers)["retry-after"], dict(reply.headers)["retry-after-ms"]) == ("1", "50")


@pytest.mark.parametrize("fault", CONTENT)
async def test_each_fault_of_content_changes_a_decision(fault: str):
    """A fault that changed nothing would prove nothing about a client."""
    asker = Asker()
    body = {"state": "x", "questions": QUESTIONS, "request_id": "same"}
    good = await asker.request("POST", "/v1/systemone", body)
    bad = await asker.request("POST", "/v1/systemone", body, {"x-standin-fault": fault})
    assert bad.status == 200
    assert (good.content(), good.content_type) != (bad.content(), bad.content_type)


async def spoilt(fault: str, version: str = "0.32") -> dict[str, Any]:
    reply = await Asker(version=version).request(
        "POST", "/v1/systemone", {"state": "x", "questions": QUESTIONS}, {"x-standin-fault": fault}
    )
    return read(reply)


async def test_what_the_faults_of_content_do():
    answers = (await spoilt("nan"))["answers"]
    assert math.isnan(answers["red"]["noul"])
    assert math.isnan(answers["route"]["probabilities"]["web"])
    assert (await spoilt("out_of_range"))["answers"]["route"]["probabilities"]["files"] == 1.7
    assert sum((await spoilt("bad_sum"))["answers"]["route"]["probabilities"].values()) == pytest.approx(0.5)
    assert list((await spoilt("missing_answer"))["answers"]) == ["route", "red"]
    assert list((await spoilt("wrong_ids"))["answers"]) == ["route_other", "red_other", "risk_other"]
    assert isinstance((await spoilt("wrong_types"))["answers"]["red"]["noul"], str)
    extra = await spoilt("extra_fields")
    assert list(extra["answers"]) == list(QUESTIONS)
    assert "x_unheard_of" in extra["answers"]["red"]
    wrong = (await spoilt("wrong_argmax"))["answers"]["route"]
    assert wrong["probabilities"][wrong["choice"]] == min(wrong["probabilities"].values())


@pytest.mark.parametrize(
    "fault", ["nan", "out_of_range", "bad_sum", "missing_answer", "wrong_types", "wrong_ids", "wrong_argmax", "extra_fields"]
)
async def test_faults_of_content_reach_the_other_routes(fault: str):
    """OpenAI's decisions, prefix reads and chat reads meet the same faults."""
    asker = Asker(version="0.33")
    header = {"x-standin-fault": fault}
    decisions = {
        "model": "standin",
        "input": "x",
        "questions": [
            {"type": "predicate", "instructions": "x", "name": "a"},
            {"type": "choice", "instructions": "x", "choices": [{"value": "a"}, {"value": "b"}]},
        ],
    }
    good = await asker.request("POST", "/v1/decisions", decisions)
    bad = await asker.request("POST", "/v1/decisions", decisions, header)
    assert bad.status == 200
    assert good.content() != bad.content()
    labels = [asker.served.text.single(label) for label in ("yes", "no")]
    reads = {"prompt": "x", "max_tokens": 1, "logprobs": 1, "logprob_token_ids": labels}
    chat = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "logprob_token_ids": labels, "max_tokens": 1}
    for path, body in (("/v1/completions", reads), ("/v1/chat/completions", chat)):
        assert (await asker.request("POST", path, body, header)).status == 200


async def test_a_nan_is_written_as_python_writes_it():
    reply = await Asker().request("POST", "/v1/systemone", {"state": "x", "questions": QUESTIONS}, {"x-standin-fault": "nan"})
    assert b":NaN" in reply.content()


async def test_errors_are_not_spoilt():
    """A 400 with a fault of content stays the 400 it is."""
    reply = await Asker().request("POST", "/v1/systemone", {}, {"x-standin-fault": "nan"})
    assert reply.status == 400


async def test_a_slow_request_runs_meanwhile():
    """It counts as running and holds its blocks, as on a busy worker."""
    import asyncio

    asker = Asker()
    task = asyncio.create_task(
        asker.request("POST", "/v1/systemone", {"state": "x", "questions": QUESTIONS}, {"x-standin-fault": "slow=0.1"})
    )
    await asyncio.sleep(0.02)
    assert asker.served.engine.counters.running == 3
    assert asker.served.engine.usage > 0
    assert (await task).status == 200
    assert asker.served.engine.counters.running == 0


async def test_an_unknown_fault_in_a_header_is_told():
    reply = await Asker().request("POST", "/v1/systemone", {}, {"x-standin-fault": "nonsense"})
    assert (reply.status, "nonsense" in json.dumps(read(reply))) == (400, True)

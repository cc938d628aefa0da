"""Replies recorded from vLLM 0.32's own router, for every model family it serves, become answers or the right error.

The records lie beside the checkout, in ``../shared/engine/golden``, and are not part of it: without them these tests are skipped.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import respx

from tests.unit.engines.support import WORKER
from warmgate.engines import AskRequest, Deadline, SystemOne
from warmgate.engines.envelopes import error_of
from warmgate.errors import BadRequest, EngineError, InputError, NotSupported, RouteAbsent, ServerFault, UnknownModel
from warmgate.questions import parse_questions

GOLDEN = Path(__file__).parents[4] / "shared/engine/golden"
CLASS: dict[int, type[EngineError]] = {400: BadRequest, 422: BadRequest, 500: ServerFault, 501: NotSupported}


def pairs() -> list[Any]:
    found: list[Any] = []
    for path in sorted(GOLDEN.glob("*.json")):
        records = json.loads(path.read_text())
        found += [pytest.param(record, id=f"{path.stem}: {record['name']}") for record in records]
    return found


RECORDS = pairs()
pytestmark = pytest.mark.skipif(not RECORDS, reason="no recorded pairs in ../shared/engine/golden")


def parse(record: dict[str, Any]) -> AskRequest:
    """The recorded request as ours. Media have no place in it, and play no part in reading the reply."""
    sent = record["request"]
    return AskRequest(
        questions=parse_questions(sent["questions"]),
        state=sent.get("state"),
        instructions=sent.get("instructions"),
        model=sent.get("model"),
        cache_salt=sent.get("cache_salt"),
        priority=sent.get("priority"),
        chat_template_kwargs=sent.get("chat_template_kwargs"),
    )


def systemone(record: dict[str, Any]) -> bool:
    return record.get("path", "/v1/systemone") == "/v1/systemone"


@pytest.mark.parametrize("record", [r for r in RECORDS if systemone(r.values[0])])
@respx.mock
async def test_every_recorded_reply_is_an_answer_or_the_right_error(record: dict[str, Any]):
    """What the client was tried on must be what the server says, not what we think it says."""
    status, response = record["status"], record["response"]
    if status != 200:
        raw = json.dumps(response).encode()
        error = error_of(status, {}, raw, where=WORKER, request_id="r", path="/v1/systemone")
        expected = CLASS.get(status) or (UnknownModel if "does not exist" in str(response) else RouteAbsent)
        assert type(error) is expected
        assert error.server_words
        assert not error.retryable
    if not isinstance(record["request"], dict) or "questions" not in record["request"]:
        return
    async with SystemOne(WORKER) as engine:
        try:
            request = parse(record)
            engine.check(request)
        except InputError:
            assert status != 200, "a question that the server answers is refused here"
            return
        respx.post(f"{WORKER}/v1/systemone").respond(status, json=response)
        if status != 200:
            with pytest.raises(EngineError) as caught:
                await engine.ask(request, deadline=Deadline(5))
            assert caught.value.status == status
            return
        answers = await engine.ask(request, deadline=Deadline(5))
    assert list(answers.answers) == list(request.questions)
    for id_, question in request.questions.items():
        answer, wire = answers.answers[id_], response["answers"][id_]
        assert answer.probabilities is not None
        assert tuple(answer.probabilities) == question.labels
        assert math.isclose(sum(answer.probabilities.values()), 1.0, rel_tol=1e-9)
        assert answer.server_confidence == wire["confidence"]
        assert answer.label_mass == pytest.approx(response["diagnostics"][id_]["label_mass"])
        assert answer.argmax_is_label == response["diagnostics"][id_]["argmax_is_label"]
        said = wire[wire["type"]]
        assert answer.value == pytest.approx(said, abs=1e-6) if isinstance(said, float) else answer.value == said
    assert answers.usage.input_tokens == response["usage"]["input_tokens"]
    assert answers.usage.cached_tokens is None


@pytest.mark.parametrize("record", [r for r in RECORDS if not systemone(r.values[0]) and r.values[0]["status"] != 200])
def test_recorded_refusals_of_other_routes_are_typed(record: dict[str, Any]):
    path = record["path"]
    error = error_of(record["status"], {}, json.dumps(record["response"]).encode(), where=WORKER, request_id="r", path=path)
    assert error.status == record["status"]
    assert not error.retryable
    assert error.server_words


def test_there_are_pairs_of_every_family_and_both_kinds():
    names = {str(record.id).split(":")[0].split("_")[1] for record in RECORDS}
    assert names >= {"qwen3", "clef", "d1", "dgemma"}
    statuses = {record.values[0]["status"] for record in RECORDS}
    assert {200, 400} <= statuses

"""``POST /v1/decisions``: OpenAI's shape (OpenAI itself, vLLM since 0.33) and SGLang's own of the same path.

OpenAI's: ``input``, ordered ``questions[]`` of type predicate, choice or score, ordered ``answers[]``; any question may be answered by a
``refusal`` while the others are answered. A predicate has no criteria, so what yes and no mean is written under its instructions.
SGLang's: ``input``, ``questions[]`` with ``id`` and ``question``, type ``yes_no``; answers keyed by id, with ``label_mass``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from warmgate.answers import Answer, Answers, calibrated, malformed
from warmgate.engines._base import AskRequest, BaseEngine, Call
from warmgate.engines.dialects import DECISIONS
from warmgate.engines.dialects import dialect as named
from warmgate.engines.http import Http, decode
from warmgate.engines.openai_http import OpenAIHttp
from warmgate.engines.wire import text_state, usage_of
from warmgate.errors import Refused
from warmgate.questions import NOUL_WORDS, Choice, Noul, Question, Score


class _Probability(msgspec.Struct):
    probability: float
    value: str | bool | int


class _OpenAIAnswer(msgspec.Struct):
    type: str
    name: str | None = None
    probability: float | None = None
    choice: str | bool | None = None
    score: float | None = None
    confidence: float | None = None
    probabilities: list[_Probability] | None = None


class _OpenAIReply(msgspec.Struct):
    answers: list[_OpenAIAnswer]
    model: str | None = None
    usage: Any = None


class _SglangAnswer(msgspec.Struct):
    type: str
    probabilities: dict[str, float]
    label_mass: float | None = None
    choice: str | None = None
    score: float | None = None


class _SglangReply(msgspec.Struct):
    answers: dict[str, _SglangAnswer]
    model: str | None = None
    usage: Any = None


class Decisions(BaseEngine):
    """Ask ``/v1/decisions`` of one server.

    Args:
        worker: Base URL.
        model: Used where the request names none.
        dialect: ``openai``, ``vllm-0.33`` or ``sglang``.
        options: As for :class:`~warmgate.engines.http.Http`: ``api_key``, ``headers``, ``policy`` …
    """

    def __init__(self, worker: str, *, model: str | None = None, dialect: str = "openai", **options: Any) -> None:
        self._client = OpenAIHttp(worker, **options) if dialect != "sglang" else None
        self._http = Http(worker, **options) if dialect == "sglang" else None
        name = self._client.worker if self._client is not None else cast("Http", self._http).worker
        super().__init__(name="decisions", worker=name, dialect=named(DECISIONS, dialect), model=model)

    async def _ask(self, call: Call) -> Answers:
        if self._http is not None:
            body = msgspec.json.encode(_sglang_request(call.request))
            raw = await self._http.post(self.dialect.path, body, deadline=call.deadline, request_id=call.request_id)
            return _from_sglang(raw, call)
        request = call.request
        questions = [_openai_question(id_, question) for id_, question in request.questions.items()]
        text = text_state(request.state)
        state: Any = text
        if request.instructions:
            state = [{"role": "developer", "content": request.instructions}, {"role": "user", "content": text}]
        raw = await cast("OpenAIHttp", self._client).call(
            lambda client, headers: client.decisions.with_raw_response.create(
                input=state, model=request.model or "", questions=cast("Iterable[Any]", questions), extra_headers=headers
            ),
            path=self.dialect.path,
            deadline=call.deadline,
            request_id=call.request_id,
        )
        return _from_openai(raw, call)

    async def aclose(self) -> None:
        """See :meth:`~warmgate.engines.Engine.aclose`."""
        for connections in (self._client, self._http):
            if connections is not None:
                await connections.aclose()


def _openai_question(id_: str, question: Question) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": id_, "instructions": question.instructions}
    if isinstance(question, Choice):
        options = [{"value": name, **_described(text)} for name, text in question.criteria.items()]
        return {"type": "choice", **wire, "choices": options}
    if isinstance(question, Score):
        return {"type": "score", **wire, "levels": [{"label": name} for name in question.criteria]}
    if question.criteria is not None:
        sides = (("True means", question.criteria.true), ("False means", question.criteria.false))
        lines = [f"{word}: {text}" for word, text in sides if text]
        wire["instructions"] = "\n".join(filter(None, [question.instructions, *lines]))
    return {"type": "predicate", **wire}


def _described(text: str | None) -> dict[str, str]:
    return {"description": text} if text else {}  # null is refused there


def _from_openai(raw: bytes, call: Call) -> Answers:
    source = call.source()
    reply: _OpenAIReply = decode(raw, _OpenAIReply, worker=source.worker, request_id=call.request_id)
    source = msgspec.structs.replace(source, model=reply.model or source.model)
    questions = call.request.questions
    if len(reply.answers) != len(questions):
        raise malformed(next(iter(questions)), f"{len(reply.answers)} answers to {len(questions)} questions")
    answers: dict[str, Answer] = {}
    refused: dict[str, str] = {}
    for (id_, question), given in zip(questions.items(), reply.answers, strict=True):
        if given.name is not None and given.name != id_:
            raise malformed(id_, f"the answer in its place is named {given.name!r}")
        if given.type == "refusal":
            refused[id_] = "the model declined to answer"
            continue
        probabilities, value = _read(id_, question, given)
        answers[id_] = calibrated(id_, question, probabilities, source, server_value=value, server_confidence=given.confidence)
    if not answers:
        raise Refused("the model declined to answer any question", where=source.worker, status=200, request_id=call.request_id)
    return Answers(answers=answers, source=source, usage=usage_of(reply.usage), refused=refused)


def _read(id_: str, question: Question, given: _OpenAIAnswer) -> tuple[Mapping[str, float], str | float | None]:
    kind = "noul" if given.type in NOUL_WORDS else given.type
    if kind != question.type:
        raise malformed(id_, f"a {question.type} was answered with {given.type!r}")
    if isinstance(question, Noul):
        if given.probability is None:
            raise malformed(id_, "the answer has no probability")
        return {"yes": given.probability, "no": 1.0 - given.probability}, None
    listed = given.probabilities
    if listed is None or len(listed) != len(question.labels):
        raise malformed(id_, f"probabilities for {len(listed or ())} of {len(question.labels)} labels")
    if isinstance(question, Choice):
        if not isinstance(given.choice, str) or any(not isinstance(entry.value, str) for entry in listed):
            raise malformed(id_, "the choice is not one of the names asked")
        return {str(entry.value): entry.probability for entry in listed}, given.choice
    if given.score is None:
        raise malformed(id_, "the answer has no score")
    levels: dict[str, float] = {}
    for entry in listed:
        if isinstance(entry.value, bool | str) or not 0 <= entry.value < len(question.criteria):
            raise malformed(id_, f"{entry.value!r} is no level")
        levels[question.criteria[entry.value]] = entry.probability
    return levels, given.score


def _sglang_request(request: AskRequest) -> dict[str, Any]:
    questions: list[dict[str, Any]] = []
    for id_, question in request.questions.items():
        wire: dict[str, Any] = {"id": id_, "type": question.type, "question": question.instructions}
        if isinstance(question, Choice):
            wire["options"] = [{"name": name, **_described(text)} for name, text in question.criteria.items()]
        elif isinstance(question, Score):
            wire["levels"] = list(question.criteria)
        else:
            wire["type"] = "yes_no"
            if question.criteria is not None:
                wire |= {k: v for k, v in (("yes", question.criteria.true), ("no", question.criteria.false)) if v}
        questions.append(wire)
    body: dict[str, Any] = {"input": text_state(request.state), "questions": questions}
    if request.model:
        body["model"] = request.model
    if request.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(request.chat_template_kwargs)
    return body


def _from_sglang(raw: bytes, call: Call) -> Answers:
    source = call.source()
    reply: _SglangReply = decode(raw, _SglangReply, worker=source.worker, request_id=call.request_id)
    source = msgspec.structs.replace(source, model=reply.model or source.model)
    answers: dict[str, Answer] = {}
    for id_, question in call.request.questions.items():
        given = reply.answers.get(id_)
        if given is None:
            raise malformed(id_, "the reply has no answer to it")
        if ("noul" if given.type in NOUL_WORDS else given.type) != question.type:
            raise malformed(id_, f"a {question.type} was answered with {given.type!r}")
        p: Mapping[str, float] = given.probabilities
        if isinstance(question, Score):  # counted from 0 on the wire
            if sorted(p) != sorted(str(level) for level in range(len(question.criteria))):
                raise malformed(id_, f"the levels are {list(p)[:12]}")
            p = {name: p[str(level)] for level, name in enumerate(question.criteria)}
        value = given.score if isinstance(question, Score) else given.choice
        answers[id_] = calibrated(id_, question, p, source, server_value=value, label_mass=given.label_mass)
    return Answers(answers=answers, source=source, usage=usage_of(reply.usage))

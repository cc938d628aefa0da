"""``POST /v1/systemone``: all questions in one request, answered by label probabilities.

Spoken by vLLM since 0.32, TypeSafe, SGLang and llama.cpp, each a :mod:`dialect <warmgate.engines.dialects>`. Fields of the reply that
are not known are skipped; those that are absent (a noul's probabilities, usage, diagnostics, confidence) stay None or are derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from warmgate.answers import Answer, Answers, calibrated, malformed
from warmgate.engines._base import AskRequest, BaseEngine, Call
from warmgate.engines.dialects import SYSTEMONE
from warmgate.engines.dialects import dialect as named
from warmgate.engines.http import Http, decode
from warmgate.engines.wire import json_state, usage_of, wire_question
from warmgate.errors import QuestionError
from warmgate.questions import NOUL_WORDS, Noul, Question, Score


class _Answer(msgspec.Struct):
    """One answer as servers send it. Types are strict: ``"0.5"`` and ``true`` are no numbers."""

    type: str
    choice: str | None = None
    noul: float | None = None
    score: float | None = None
    probabilities: dict[str, float] | None = None
    confidence: float | None = None
    x_label_mass: float | None = None


class _Diagnostics(msgspec.Struct):
    label_mass: float | None = None
    argmax_is_label: bool | None = None


class _Reply(msgspec.Struct):
    answers: dict[str, _Answer]
    model: str | None = None
    usage: Any = None
    diagnostics: dict[str, _Diagnostics] | None = None


class SystemOne(BaseEngine):
    """Ask ``/v1/systemone`` of one worker.

    Args:
        worker: Base URL, or an :class:`Http` to share its connections.
        model: Used where the request names none.
        dialect: ``vllm`` (0.32), ``vllm-0.33``, ``typesafe``, ``sglang`` or ``llamacpp``.
        options: For :class:`Http`, where ``worker`` is a URL: ``api_key``, ``headers``, ``policy`` …
    """

    def __init__(self, worker: str | Http, *, model: str | None = None, dialect: str = "vllm", **options: Any) -> None:
        self._http = worker if isinstance(worker, Http) else Http(worker, **options)
        super().__init__(name="systemone", worker=self._http.worker, dialect=named(SYSTEMONE, dialect), model=model)

    async def _ask(self, call: Call) -> Answers:
        body = encode_request(call.request)
        raw = await self._http.post(self.dialect.path, body, deadline=call.deadline, request_id=call.request_id)
        return parse_reply(raw, call)

    async def aclose(self) -> None:
        """See :meth:`~warmgate.engines.Engine.aclose`."""
        await self._http.aclose()


def encode_request(request: AskRequest) -> bytes:
    """The JSON body.

    Raises:
        QuestionError: The state is not something JSON can say.
    """
    body: dict[str, Any] = {"state": json_state(request.state)}
    if request.model is not None:
        body["model"] = request.model
    if request.instructions:
        body["instructions"] = request.instructions
    body["questions"] = {id_: wire_question(question) for id_, question in request.questions.items()}
    for field in ("cache_salt", "priority", "chat_template_kwargs"):
        value = getattr(request, field)
        if value is not None:
            body[field] = value
    try:
        return msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError, ValueError, RecursionError) as fault:
        raise QuestionError(f"cannot be sent as JSON ({fault})", field="state") from None


def parse_reply(raw: bytes, call: Call) -> Answers:
    """Checked answers from the body of a 200.

    Raises:
        MalformedAnswer: Not an answer to what was asked.
    """
    source = call.source()
    reply: _Reply = decode(raw, _Reply, worker=source.worker, request_id=call.request_id)
    if reply.model:
        source = msgspec.structs.replace(source, model=reply.model)
    diagnostics = reply.diagnostics or {}
    answers: dict[str, Answer] = {}
    for id_, question in call.request.questions.items():
        given = reply.answers.get(id_)
        if given is None:
            raise malformed(id_, "the reply has no answer to it")
        seen = diagnostics.get(id_)
        probabilities, value = _read(id_, question, given)
        mass = seen.label_mass if seen is not None else given.x_label_mass
        answers[id_] = calibrated(
            id_,
            question,
            probabilities,
            source,
            server_value=value,
            server_confidence=given.confidence,
            label_mass=mass,
            argmax_is_label=seen.argmax_is_label if seen is not None else None,
        )
    return Answers(answers=answers, source=source, usage=usage_of(reply.usage))


def _read(id_: str, question: Question, given: _Answer) -> tuple[Mapping[str, float], str | float | None]:
    """The probabilities by our labels, and the server's own value."""
    kind = "noul" if given.type in NOUL_WORDS else given.type
    if kind != question.type:
        raise malformed(id_, f"a {question.type} was answered with {given.type!r}")
    p = given.probabilities
    if isinstance(question, Noul):
        if given.noul is None:
            raise malformed(id_, "the answer has no noul")
        if p is None:  # only vLLM sends both sides
            return {"yes": given.noul, "no": 1.0 - given.noul}, None
        return p, given.noul
    if p is None:
        raise malformed(id_, "the answer has no probabilities")
    if isinstance(question, Score):
        if given.score is None:
            raise malformed(id_, "the answer has no score")
        return _by_level(id_, question, p), given.score
    if given.choice is None:
        raise malformed(id_, "the answer has no choice")
    return p, given.choice


def _by_level(id_: str, question: Score, p: Mapping[str, float]) -> Mapping[str, float]:
    """The wire counts levels, ``"0"`` upwards."""
    expected = [str(level) for level in range(len(question.criteria))]
    if len(p) != len(expected) or any(level not in p for level in expected):
        raise malformed(id_, f"the score's levels are {list(p)[:12]}, not 0 to {len(expected) - 1}")
    return dict(zip(question.criteria, (p[level] for level in expected), strict=True))

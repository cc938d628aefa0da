"""A local round trip: a small model on any OpenAI-compatible server fills in a JSON object whose values are labels.

Options are labelled A–Z, levels 0–9, a noul ``yes`` and ``no``; a schema (dialect ``openai``) or a regular expression that also rules
out white space (``vllm``; models that pad JSON with it can run on until they are cut) allows nothing else. The reply is parsed strictly.

Probabilities come from the log-probabilities at the token where a label begins: every listed token that starts a label there counts for
it, and the shares of the labels' mass are the distribution. A label that is not among the listed tokens can have at most the least
listed probability; where all such labels together could hold more than :data:`UNSEEN` of the labels' mass, where the server gives no
log-probabilities, or where another label was written than the likeliest, the answer is uncalibrated: a label, and no number.
vLLM lists probabilities *after* the schema's mask, where the labels hold all the mass by force: ``label_mass`` is given only where a
token that is no label has some. A later answer is conditioned on those written before it; the two orders of a choice are two calls.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from openai import AsyncOpenAI

from warmgate.answers import AGREEMENT_TOLERANCE, Answer, Answers, calibrated, malformed, uncalibrated, winner
from warmgate.engines._base import BaseEngine, Call
from warmgate.engines.dialects import ROUND_TRIP
from warmgate.engines.dialects import dialect as named
from warmgate.engines.http import decode
from warmgate.engines.openai_http import OpenAIHttp, Raw
from warmgate.engines.order import second_orders
from warmgate.engines.prefix_read import NO_MASS, question_text
from warmgate.engines.together import together
from warmgate.engines.wire import text_state, usage_of
from warmgate.errors import BadRequest, MalformedAnswer, Refused
from warmgate.questions import Choice, Noul, Question

UNSEEN = 0.01
"""Largest share of the labels' mass that labels outside the listed tokens may hold."""

TOP = 20
"""Tokens listed at each position: the most that OpenAI and vLLM's default allow."""

OPTIONAL = ("logprobs", "temperature", "max_tokens")
"""Parameters some servers refuse (reasoning models, diffusion models): left out when the server's words name them."""


_PADS = (
    "a model that pads its JSON with blanks needs vLLM's "
    '--structured-outputs-config {"backend":"xgrammar","disable_any_whitespace":true}; a server without schemas, another one'
)


class _Listed(msgspec.Struct):
    token: str
    logprob: float


class _Token(msgspec.Struct):
    token: str
    top_logprobs: list[_Listed] = []


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: Any = None


class RoundTrip(BaseEngine):
    """Ask a chat model of an OpenAI-compatible server.

    Args:
        worker: Base URL.
        model: Used where the request names none.
        dialect: ``openai`` (``response_format`` with a JSON schema) or ``vllm`` (``structured_outputs`` with a regular expression).
        options: As for :class:`~warmgate.engines.http.Http`: ``api_key``, ``headers``, ``policy`` …
    """

    def __init__(self, worker: str, *, model: str | None = None, dialect: str = "openai", **options: Any) -> None:
        self._client = OpenAIHttp(worker, **options)
        self._left_out: set[str] = set()
        super().__init__(name="round_trip", worker=self._client.worker, dialect=named(ROUND_TRIP, dialect), model=model)

    async def _ask(self, call: Call) -> Answers:
        second = second_orders(call.request.questions)
        calls = [{id_: q for id_, q in call.request.questions.items() if id_ not in second}]
        if second:
            calls.append({id_: call.request.questions[id_] for id_ in second})
        parts = await together([self._one(number, questions, call) for number, questions in enumerate(calls)])
        answers = {id_: answer for part in parts for id_, answer in part.answers.items()}
        usage = parts[0].usage if len(parts) == 1 else parts[0].usage + parts[1].usage
        return Answers(answers=answers, source=parts[0].source, usage=usage)

    async def _one(self, number: int, questions: Mapping[str, Question], call: Call) -> Answers:
        labels = {id_: labels_of(question) for id_, question in questions.items()}
        request_id = f"{call.request_id}-{number}"
        raw = await self._send(questions, labels, call, request_id)
        reply: _Reply = decode(raw, _Reply, worker=self.worker, request_id=request_id)
        return self._answers(reply, questions, labels, call)

    async def _send(self, questions: Mapping[str, Question], labels: Mapping[str, tuple[str, ...]], call: Call, request_id: str) -> bytes:
        """One reply; parameters that the server refuses by name are left out from then on."""

        async def send(client: AsyncOpenAI, headers: Mapping[str, str]) -> Raw:
            create = cast("Any", client.chat.completions.with_raw_response.create)  # its overloads take no body made by parts
            raw: Raw = await create(**self._body(questions, labels, call), extra_headers=headers)
            return raw

        while True:
            try:
                return await self._client.call(send, path=self.dialect.path, deadline=call.deadline, request_id=request_id)
            except BadRequest as error:
                words = error.server_words or ""
                refused = {name for name in OPTIONAL if name in words} - self._left_out
                if not refused:
                    raise
                self._left_out |= refused

    def _body(self, questions: Mapping[str, Question], labels: Mapping[str, tuple[str, ...]], call: Call) -> dict[str, Any]:
        request = call.request
        asked = "\n\n".join(f"{key(n)}. {question_text(q, labels[id_])}" for n, (id_, q) in enumerate(questions.items()))
        system = "Answer every question about the state. Reply with one JSON object from question number to label."
        if request.instructions:
            system = f"{request.instructions}\n\n{system}"
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": f"State:\n{text_state(request.state)}\n\n{asked}"},
            ],
        }
        if "temperature" not in self._left_out:
            body["temperature"] = 0
        if "max_tokens" not in self._left_out:  # enough for a tokenizer of single bytes
            body["max_tokens"] = 32 + 24 * len(questions)
        if "logprobs" not in self._left_out:
            body |= {"logprobs": True, "top_logprobs": TOP}
        extra = {field: getattr(request, field) for field in ("cache_salt", "priority") if getattr(request, field) is not None}
        if request.chat_template_kwargs:
            extra["chat_template_kwargs"] = dict(request.chat_template_kwargs)
        allowed = [labels[id_] for id_ in questions]
        if self.dialect.name == "vllm":
            extra["structured_outputs"] = {"regex": regex_of(allowed)}
        else:
            schema = {"name": "answers", "strict": True, "schema": schema_of(allowed)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if extra:
            body["extra_body"] = extra
        return body

    def _answers(self, reply: _Reply, questions: Mapping[str, Question], labels: Mapping[str, tuple[str, ...]], call: Call) -> Answers:
        source = call.source(reply.model)
        if not reply.choices:
            raise MalformedAnswer("the reply has no choices", where=self.worker, request_id=call.request_id)
        choice = reply.choices[0]
        if choice.message.refusal:
            raise Refused(
                "the model declined to answer", where=self.worker, server_words=choice.message.refusal, request_id=call.request_id
            )
        if choice.finish_reason not in ("stop", None):
            mend = _PADS if choice.finish_reason == "length" else None
            raise MalformedAnswer(f"the reply ended by {choice.finish_reason!r}", where=self.worker, mend=mend, request_id=call.request_id)
        text = choice.message.content or ""
        written = self._parse(text, len(questions), call)
        tokens = (choice.logprobs.content if choice.logprobs is not None else None) or []
        answers: dict[str, Answer] = {}
        for n, (id_, question) in enumerate(questions.items()):
            label = written[key(n)]
            if label not in labels[id_]:
                raise malformed(id_, f"the answer {label!r} is none of the labels")
            name = question.labels[labels[id_].index(label)]
            seen = probabilities_at(text, tokens, key(n), labels[id_])
            answers[id_] = _answer(id_, question, name, seen, source)
        return Answers(answers=answers, source=source, usage=usage_of(reply.usage))

    def _parse(self, text: str, count: int, call: Call) -> dict[str, str]:
        """Exactly the keys asked, each once, each a text.

        Raises:
            MalformedAnswer: Anything else.
        """
        pairs: list[tuple[str, object]] = []

        def keep(found: list[tuple[str, object]]) -> None:
            pairs.extend(found)

        try:
            if json.loads(text, object_pairs_hook=keep) is not None:  # the hook makes None of an object: this is another value
                pairs = []
        except (ValueError, RecursionError):
            pairs = []
        written = {name: value for name, value in pairs if isinstance(value, str)}
        if len(pairs) != count or written.keys() != {key(n) for n in range(count)}:
            raise MalformedAnswer(
                "the reply is not a JSON object with one label a question",
                where=self.worker,
                mend="use a server that enforces response_format json_schema",
                request_id=call.request_id,
            )
        return written

    async def aclose(self) -> None:
        """See :meth:`~warmgate.engines.Engine.aclose`."""
        await self._client.aclose()


def key(number: int) -> str:
    """The name of a question in the reply. Ids are not shown to the model."""
    return f"q{number + 1}"


def schema_of(allowed: list[tuple[str, ...]]) -> dict[str, Any]:
    """The JSON schema of a reply whose n-th question has these labels."""
    properties = {key(n): {"type": "string", "enum": list(labels)} for n, labels in enumerate(allowed)}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def regex_of(allowed: list[tuple[str, ...]]) -> str:
    """The same as a regular expression, keys in order and without white space."""
    return r"\{" + ",".join(f'"{key(n)}":"({"|".join(labels)})"' for n, labels in enumerate(allowed)) + r"\}"


def labels_of(question: Question) -> tuple[str, ...]:
    """What the model writes for each label of the question."""
    if isinstance(question, Noul):
        return question.labels
    letters = string.ascii_uppercase if isinstance(question, Choice) else string.digits
    return tuple(letters[: len(question.labels)])


class Seen(msgspec.Struct, frozen=True):
    """What the listed tokens say about the labels at one position."""

    probabilities: tuple[float, ...]
    label_mass: float | None
    argmax_is_label: bool | None


def probabilities_at(text: str, tokens: list[_Token], name: str, labels: tuple[str, ...]) -> Seen | None:
    """The labels' probabilities where the value of ``name`` begins, or None where they cannot be known."""
    found = re.search(rf'"{name}"\s*:\s*"', text)
    if found is None or not "".join(token.token for token in tokens).startswith(text):  # vLLM lists the end token too
        return None
    end = 0
    for token in tokens:
        start, end = end, end + len(token.token)
        if end > found.end():
            lead = text[start : found.end()]  # such as the quote, where it is part of the token
            return _weigh(lead, token.top_logprobs, labels)
    return None


def _weigh(lead: str, listed: list[_Listed], labels: tuple[str, ...]) -> Seen | None:
    mass: dict[int, float] = {}
    others: list[float] = []
    if any(entry.logprob > 1e-3 for entry in listed):  # logits, or nonsense
        return None
    for entry in listed:
        p = math.exp(min(0.0, entry.logprob)) if entry.logprob > NO_MASS else 0.0
        index = _label(entry.token, lead, labels)
        if index is None:
            others.append(p)
        else:
            mass[index] = mass.get(index, 0.0) + p
    total = math.fsum(mass.values())
    least = min((math.exp(min(0.0, entry.logprob)) for entry in listed), default=1.0)
    if total <= 0.0 or (len(labels) - len(mass)) * least > UNSEEN * total:
        return None
    masked = not any(others)
    return Seen(
        tuple(mass.get(index, 0.0) / total for index in range(len(labels))),
        None if masked else min(1.0, total),
        None if masked else _label(max(listed, key=lambda entry: entry.logprob).token, lead, labels) is not None,
    )


def _label(token: str, lead: str, labels: tuple[str, ...]) -> int | None:
    """Which label a token begins or writes, after the text that precedes it in the token."""
    if not token.startswith(lead):
        return None
    rest, quote, _ = token[len(lead) :].partition('"')
    if not rest:
        return None
    fits = [index for index, label in enumerate(labels) if label == rest or (not quote and label.startswith(rest))]
    return fits[0] if len(fits) == 1 else None


def _answer(id_: str, question: Question, name: str, seen: Seen | None, source: Any) -> Answer:
    if seen is not None:
        given = dict(zip(question.labels, seen.probabilities, strict=True))
        if given[name] >= given[winner(given)] - AGREEMENT_TOLERANCE:
            value = name if isinstance(question, Choice) else None
            return calibrated(
                id_,
                question,
                given,
                source,
                server_value=value,
                label_mass=seen.label_mass,
                argmax_is_label=seen.argmax_is_label,
            )
    return uncalibrated(id_, question, name, source)

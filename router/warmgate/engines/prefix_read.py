"""A read on the agent's own prompt over ``POST /v1/completions``: for models that ``/v1/systemone`` answers 501 for.

The prompt is the agent's, by ids or by text, then the question with its options labelled; one token is generated and the labels'
log-probabilities are asked for by id (``logprob_token_ids``, vLLM since 0.32). Softmax over them gives the probabilities, their plain
sum ``label_mass``. Every question is one request, all go out side by side and each reports its cached tokens.

Without an :class:`~warmgate.engines.AgentPrompt` the worker's chat template renders ``instructions`` and ``state`` first, over
``/tokenize``. An appended chat message is not used: it can break the prefix (Qwen3's template then strips the tool loop's reasoning).
"""

from __future__ import annotations

import math
import string
from typing import Any

import msgspec

from warmgate.answers import Answer, Answers, Usage, calibrated, malformed
from warmgate.engines._base import BaseEngine, Call
from warmgate.engines.dialects import PREFIX_READ
from warmgate.engines.http import Http, decode
from warmgate.engines.together import together
from warmgate.engines.tokens import Ids, Tokenizer
from warmgate.engines.wire import text_state, usage_of
from warmgate.errors import NotSupported
from warmgate.questions import Choice, Noul, Question

NO_MASS = -9000.0
"""vLLM writes −9999 for a probability of zero."""

CHOICE_LABELS = (tuple(string.ascii_uppercase + "123456789"),)
NOUL_LABELS = (("yes", "no"), ("Yes", "No"), ("A", "B"))
SCORE_LABELS = (tuple(string.digits), tuple(string.ascii_uppercase))


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: Any = None


class PrefixRead(BaseEngine):
    """Read labels over ``/v1/completions`` of one vLLM.

    Args:
        worker: Base URL, or an :class:`Http` to share its connections.
        model: Used where the request names none.
        options: For :class:`Http`, where ``worker`` is a URL.
    """

    def __init__(self, worker: str | Http, *, model: str | None = None, **options: Any) -> None:
        self._http = worker if isinstance(worker, Http) else Http(worker, **options)
        self._tokenizer = Tokenizer(self._http)
        super().__init__(name="prefix_read", worker=self._http.worker, dialect=PREFIX_READ, model=model)

    async def _ask(self, call: Call) -> Answers:
        items = call.request.questions.items()
        reads = await together([self._read(number, id_, question, call) for number, (id_, question) in enumerate(items)])
        usage = Usage(input_tokens=0, output_tokens=0, cached_tokens=0)
        for answer in reads:
            usage = usage + (answer.usage or Usage())
        return Answers(answers={answer.id: answer for answer in reads}, source=reads[0].source, usage=usage)

    async def _read(self, number: int, id_: str, question: Question, call: Call) -> Answer:
        prompt, label_ids = await self._prompt(question, call)
        request = call.request
        body: dict[str, Any] = {
            "prompt": prompt,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": 1,
            "logprob_token_ids": label_ids,
            "return_tokens_as_token_ids": True,
        }
        if isinstance(prompt, str):
            body["add_special_tokens"] = False  # a rendered prompt writes its own
        for field in ("model", "cache_salt", "priority"):
            value = getattr(request, field)
            if value is not None:
                body[field] = value
        request_id = f"{call.request_id}-{number}"
        raw = await self._http.post(PREFIX_READ.path, msgspec.json.encode(body), deadline=call.deadline, request_id=request_id)
        reply: _Reply = decode(raw, _Reply, worker=self.worker, request_id=request_id)
        return self._answer(id_, question, label_ids, reply, call)

    async def _prompt(self, question: Question, call: Call) -> tuple[str | list[int], Ids]:
        """What to send for a question, and its labels' ids."""
        tokenizer = self._tokenizer
        agent = call.request.prompt
        sets = CHOICE_LABELS if isinstance(question, Choice) else NOUL_LABELS if isinstance(question, Noul) else SCORE_LABELS
        count = len(question.labels)
        if agent is None:
            labels, label_ids = await tokenizer.labels(sets, count, await tokenizer.chat_ending(call), call)
            state = text_state(call.request.state)
            content = f"{state}\n\n{question_text(question, labels)}" if state else question_text(question, labels)
            messages = [{"role": "user", "content": content}]
            if call.request.instructions:
                messages.insert(0, {"role": "system", "content": call.request.instructions})
            return list(await tokenizer.chat_ids(messages, call)), label_ids
        after = agent.after or "\nAnswer:"
        labels, label_ids = await tokenizer.labels(sets, count, after, call)
        text = agent.before + question_text(question, labels) + after
        if isinstance(agent.prefix, str):
            return agent.prefix + text, label_ids
        return [*agent.prefix, *await tokenizer.ids(text, call)], label_ids

    def _answer(self, id_: str, question: Question, label_ids: Ids, reply: _Reply, call: Call) -> Answer:
        logprobs = reply.choices[0].logprobs if reply.choices else None
        if logprobs is None or not logprobs.tokens or not logprobs.top_logprobs or logprobs.top_logprobs[0] is None:
            raise malformed(id_, "the reply has no logprobs")
        given = logprobs.top_logprobs[0]
        names = [f"token_id:{label}" for label in label_ids]
        missing = [name for name in names if name not in given]
        if missing:
            raise NotSupported(
                f"question {id_!r}: no log-probability for {len(missing)} of {len(names)} labels",
                where=self.worker,
                mend="the server ignores logprob_token_ids, which vLLM takes since 0.32",
                request_id=call.request_id,
            )
        values = [given[name] for name in names]
        if max(values) > 1e-3:
            raise NotSupported(
                f"question {id_!r}: the server sends logits, not log-probabilities",
                where=self.worker,
                mend="start it with --logprobs-mode raw_logprobs",
                request_id=call.request_id,
            )
        weights = [0.0 if value <= NO_MASS else math.exp(value) for value in values]
        top = max(values)
        if top <= NO_MASS:  # a softmax would make a uniform answer out of nothing
            raise malformed(id_, "the model gives none of the labels any probability")
        shares = [math.exp(value - top) for value in values]
        total = math.fsum(shares)
        return calibrated(
            id_,
            question,
            dict(zip(question.labels, (share / total for share in shares), strict=True)),
            call.source(reply.model),
            label_mass=min(1.0, math.fsum(weights)),
            argmax_is_label=logprobs.tokens[0] in names,
            usage=usage_of(reply.usage),
        )

    async def aclose(self) -> None:
        """See :meth:`~warmgate.engines.Engine.aclose`."""
        await self._http.aclose()


def question_text(question: Question, labels: tuple[str, ...]) -> str:
    """The question as the model reads it: its text, a line a label, and how to reply."""
    lines = [f"Question: {question.instructions}"] if question.instructions else []
    if isinstance(question, Noul):
        sides = (question.criteria.true, question.criteria.false) if question.criteria is not None else (None, None)
        bare = labels == ("A", "B")
        texts = [text or (("yes", "no")[i] if bare else None) for i, text in enumerate(sides)]
        lines += [f"{label}: {text}" if text else label for label, text in zip(labels, texts, strict=True)]
        lines.append(f"Reply with {labels[0]} or {labels[1]}, nothing else.")
    else:
        texts = list(question.criteria.values()) if isinstance(question, Choice) else [None] * len(labels)
        for label, name, text in zip(labels, question.labels, texts, strict=True):
            lines.append(f"{label}: {name} - {text}" if text else f"{label}: {name}")
        what = "option" if isinstance(question, Choice) else "level"
        lines.append(f"Reply with the label of one {what}, nothing else.")
    return "\n".join(lines)

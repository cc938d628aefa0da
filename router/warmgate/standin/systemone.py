"""``POST /v1/systemone``: typed questions about a state, one engine request each (``entrypoints/generate/structured_decisions``)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmgate.errors import TemplateError
from warmgate.standin import clef, liquid
from warmgate.standin.answers import Opinion
from warmgate.standin.bodies import StrictSystemOneBody, SystemOneBody, check, read_json
from warmgate.standin.engine import Adapter, Output, Prompt
from warmgate.standin.options import NAME
from warmgate.standin.questions import LABELS, Question, answer, parse_questions, question_text
from warmgate.standin.replies import Reply, refusal, unsupported
from warmgate.standin.served import Request, Served, hold

THOUGHT = "<|channel>thought\n<channel|>"
"""The empty thought a diffusion read puts behind the prompt."""


@dataclass(frozen=True, slots=True)
class Read:
    """One question's outcome."""

    opinion: Opinion
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    created_tokens: int = 0


class Decider:
    """Asks questions of the claimed model.

    ``labels`` maps every label to its token behind the template's generation prompt; it is ``None``, and the route answers 501, where a
    label would not be one token there.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        prompts = served.prompts
        self.labels: dict[str, int] | None = None
        self._tail: list[int] = []
        self._thought = prompts.text.encode(THOUGHT) if served.style.canvas else []
        try:
            probe = prompts.text.encode(prompts.template.render([{"role": "user", "content": "x"}], enable_thinking=False))
        except TemplateError:
            return
        self._tail = prompts.tail(probe)
        found: dict[str, int] = {}
        for labels in LABELS.values():
            ids = prompts.label_ids(self._thought or probe, labels)
            if ids is None:
                return
            found.update(zip(labels, ids, strict=True))
        self.labels = found

    @property
    def supported(self) -> bool:
        """Whether this model has a read strategy."""
        return self.labels is not None or self.served.style.pooling

    async def read(
        self,
        request: Request,
        questions: Sequence[Question],
        instructions: str | None,
        state: Any,
        *,
        kwargs: Mapping[str, Any] | None = None,
        salt: str | None = None,
        adapter: Adapter | None = None,
        media: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Read]:
        """Answer questions that came together.

        Raises:
            Refused: The model cannot read them.
        """
        if self.served.style.pooling:
            return await self._pooled(request, questions, instructions, state, media or {})
        if (kwargs or {}).get("enable_thinking"):
            raise refusal("a read is the reply's first token, so thinking must be off")
        digests = self.served.prompts.media(media or {})
        text = liquid.state_text(state) if self.served.style.name == "d1" else state_text(state)
        prompts = [self._prompt(question, instructions, text, kwargs, digests, salt, adapter) for question in questions]
        opinions = [self.served.answers.question(question, text, instructions or "") for question in questions]
        outputs = [self._output(question, opinion) for question, opinion in zip(questions, opinions, strict=True)]
        async with self.served.running(request, prompts, outputs) as runs:
            return [
                Read(opinion, len(run.prompt.ids), len(run.output.ids), run.cached, run.created)
                for opinion, run in zip(opinions, runs, strict=True)
            ]

    def _prompt(
        self,
        question: Question,
        instructions: str | None,
        state: str,
        kwargs: Mapping[str, Any] | None,
        digests: Sequence[str],
        salt: str | None,
        adapter: Adapter | None,
    ) -> Prompt:
        prompts, style = self.served.prompts, self.served.style
        content = liquid.content(prompts.text, question, state) if style.name == "d1" else f"{state}\n\n{question_text(question)}"
        if digests:
            content = f"{prompts.placeholders(digests)}\n{content}"
        messages = [{"role": "user", "content": content}]
        if instructions:
            messages.insert(0, {"role": "system", "content": instructions})
        ids = prompts.encode(prompts.chat(messages, None, {"enable_thinking": False, **(kwargs or {})}))
        prompts.fits(ids)
        if ids[len(ids) - len(self._tail) :] != self._tail:
            raise refusal("these chat options end the prompt differently, so the labels' tokens are unknown")
        if style.canvas:
            extra = len(self._thought) + style.canvas
            if len(ids) + extra > prompts.max_model_len:
                raise refusal(
                    f"the prompt has {len(ids)} tokens and a canvas read adds {extra}, more than max_model_len={prompts.max_model_len}"
                )
            ids = ids + self._thought
        return Prompt(ids, salt, adapter, prompts.spans(ids, digests))

    def _output(self, question: Question, opinion: Opinion) -> Output:
        token = (self.labels or {}).get(question.labels[opinion.best], 0)
        return Output([token] * self.served.style.output_tokens, "length")

    async def _pooled(
        self, request: Request, questions: Sequence[Question], instructions: str | None, state: Any, media: Mapping[str, Sequence[str]]
    ) -> list[Read]:
        if instructions:
            raise refusal("this model reads a fixed prompt, so it takes no instructions")
        digests = self.served.prompts.media(media)
        text = clef.state_text(state)
        tokens = clef.prompt_tokens(self.served.prompts, questions, text, digests)
        await hold(request.plan)
        self.served.engine.pooled(tokens)
        reads: list[Read] = []
        for number, question in enumerate(questions):
            opinion = self.served.answers.question(question, text)
            reads.append(Read(Opinion(opinion.probabilities, 1.0), 0 if number else tokens, 0))
        return reads


def state_text(state: Any) -> str:
    """The state as a chat model reads it: text as it is, anything else as JSON."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


async def systemone(decider: Decider, request: Request) -> Reply:
    """Answer one decision request."""
    served = decider.served
    strict = served.since("0.33")
    body = check(StrictSystemOneBody if strict else SystemOneBody, read_json(request.body, request.headers.get("content-type", "")))
    if not decider.supported:
        raise unsupported()
    adapter = served.adapter(body.model)
    questions = parse_questions(body.questions)
    attached = {"image": body.images, "audio": body.audio, "video": body.videos}
    media = {kind: urls for kind, urls in attached.items() if urls}
    if refused := media.keys() - served.style.media:
        raise refusal(f"this model does not take {', '.join(sorted(refused))} inputs")
    if isinstance(body, StrictSystemOneBody) and body.joint:
        raise refusal("joint: this model reads each question on its own; joint reads need DiffusionGemma")
    reads = await decider.read(
        request,
        questions,
        body.instructions,
        body.state,
        kwargs=body.chat_template_kwargs,
        salt=body.cache_salt,
        adapter=adapter,
        media=media,
    )
    return Reply(payload=_response(request.id(body.request_id), questions, reads, strict=strict))


def _response(request_id: str, questions: Sequence[Question], reads: Sequence[Read], *, strict: bool) -> dict[str, Any]:
    pairs = list(zip(questions, reads, strict=True))
    response: dict[str, Any] = {
        "id": f"decision-{request_id}",
        "object": "structured_decision",
        "created": int(time.time()),
        "model": NAME,
        "answers": {q.id: answer(q, read.opinion.probabilities, read.opinion.label_mass) for q, read in pairs},
        "usage": {"input_tokens": sum(r.input_tokens for r in reads), "output_tokens": sum(r.output_tokens for r in reads)},
        "diagnostics": {
            q.id: {"label_mass": read.opinion.label_mass, "argmax_is_label": read.opinion.argmax_is_label} for q, read in pairs
        },
    }
    if strict:
        response["joint"] = None
    return response

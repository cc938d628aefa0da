"""``POST /v1/decisions`` of vLLM 0.33: OpenAI's Decisions API over the same reads (``vllm/entrypoints/openai/decisions``)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, model_validator

from warmgate.standin.bodies import Body, check, read_json
from warmgate.standin.options import NAME
from warmgate.standin.questions import LABELS, MAX_QUESTIONS, Option, Question
from warmgate.standin.replies import Reply, refusal, unsupported
from warmgate.standin.served import Request
from warmgate.standin.systemone import Decider, Read

ShortText = Annotated[StrictStr, Field(max_length=1 << 20)]
InputText = Annotated[StrictStr, Field(max_length=10 << 20)]
ChoiceValue = StrictStr | StrictBool


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class _TextPart(_Strict):
    type: Literal["input_text"]
    text: InputText


class _Message(_Strict):
    role: Literal["user"]
    content: InputText | Annotated[list[_TextPart], Field(max_length=16384)]
    type: Literal["message"] = "message"


class _Asked(_Strict):
    instructions: ShortText
    name: ShortText | None = None

    @model_validator(mode="after")
    def _named(self) -> _Asked:
        if "name" in self.model_fields_set and self.name is None:
            raise ValueError("name must be a string when provided")
        return self


class _Predicate(_Asked):
    type: Literal["predicate"]


class _ChoiceOption(_Strict):
    value: ChoiceValue
    description: ShortText = ""


class _Choice(_Asked):
    type: Literal["choice"]
    choices: list[_ChoiceOption] = Field(min_length=2, max_length=255)

    @model_validator(mode="after")
    def _distinct(self) -> _Choice:
        values = [(type(choice.value), choice.value) for choice in self.choices]
        if len(set(values)) != len(values):
            raise ValueError("choice values must be distinct")
        return self


class _Level(_Strict):
    label: ShortText
    description: ShortText = ""


class _Score(_Asked):
    type: Literal["score"]
    levels: list[_Level] = Field(min_length=2, max_length=10)


class DecisionsBody(Body):
    """The request; unknown fields (``prompt_cache_key`` among them) are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: ShortText  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    input: InputText | Annotated[list[_Message], Field(max_length=131072)]
    questions: list[Annotated[_Predicate | _Choice | _Score, Field(discriminator="type")]] = Field(min_length=1, max_length=200)
    safety_identifier: Annotated[StrictStr, Field(max_length=128)] | None = None
    joint: StrictBool = False
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None


async def decisions(decider: Decider, request: Request) -> Reply:
    """Answer one request."""
    body = check(DecisionsBody, read_json(request.body, request.headers.get("content-type", "")))
    if not decider.supported:
        raise unsupported("The model does not support the Decisions API")
    adapter = decider.served.adapter(body.model)
    if len(body.questions) > MAX_QUESTIONS:
        raise refusal(f"questions: at most {MAX_QUESTIONS} for this model")
    questions = [_question(number, asked) for number, asked in enumerate(body.questions)]
    if body.joint:
        raise refusal("joint: this model reads each question on its own; joint reads need DiffusionGemma")
    reads = await decider.read(request, questions, None, _input(body.input), salt=body.cache_salt, adapter=adapter)
    inputs, outputs = sum(read.input_tokens for read in reads), sum(read.output_tokens for read in reads)
    payload = {
        "model": NAME,
        "answers": [_answer(asked, read) for asked, read in zip(body.questions, reads, strict=True)],
        "usage": {
            "input_tokens": inputs,
            "input_tokens_details": {
                "cached_tokens": sum(read.cached_tokens for read in reads),
                "cache_write_tokens": sum(read.created_tokens for read in reads),
            },
            "output_tokens": outputs,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": inputs + outputs,
        },
    }
    return Reply(payload=payload)


def _input(given: str | list[_Message]) -> str:
    if isinstance(given, str):
        return given
    texts = [m.content if isinstance(m.content, str) else "\n".join(part.text for part in m.content) for m in given]
    return "\n\n".join(texts)


def _question(number: int, asked: _Predicate | _Choice | _Score) -> Question:
    if isinstance(asked, _Predicate):
        options = [Option("false"), Option("true")]
    elif isinstance(asked, _Choice):
        options = [Option(json.dumps(choice.value, ensure_ascii=False), choice.description) for choice in asked.choices]
    else:
        options = [Option(level.label, level.description) for level in asked.levels]
    labels = LABELS["choice"]
    if len(options) > len(labels):
        raise refusal(f"This model supports at most {len(labels)} choices per question")
    return Question(asked.name or str(number), "choice", asked.instructions, tuple(options), labels[: len(options)])


def _answer(asked: _Predicate | _Choice | _Score, read: Read) -> dict[str, Any]:
    shares, best = read.opinion.probabilities, read.opinion.best
    if isinstance(asked, _Predicate):
        return {"type": "predicate", "name": asked.name, "probability": shares[1]}
    confidence = shares[best] * read.opinion.label_mass
    if isinstance(asked, _Choice):
        return {
            "type": "choice",
            "name": asked.name,
            "choice": asked.choices[best].value,
            "probabilities": [{"value": c.value, "probability": p} for c, p in zip(asked.choices, shares, strict=True)],
            "confidence": confidence,
        }
    return {
        "type": "score",
        "name": asked.name,
        "score": sum(level * p for level, p in enumerate(shares)),
        "probabilities": [
            {"value": number, "label": level.label, "probability": p}
            for number, (level, p) in enumerate(zip(asked.levels, shares, strict=True))
        ],
        "confidence": confidence,
    }

"""What a chat or completion request generates: tokens, their text, tool calls, log-probabilities. Always the same for the same request."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from warmgate.standin.answers import Answers, Opinion, offered_labels
from warmgate.standin.bodies import MAX_LOGPROB_TOKEN_IDS, MAX_LOGPROBS, Sampled
from warmgate.standin.engine import Output
from warmgate.standin.replies import refusal, wrong_value
from warmgate.standin.sample import sample
from warmgate.standin.script import ScriptedReply
from warmgate.standin.served import Served
from warmgate.standin.shapes import as_object
from warmgate.standin.text import Text

SAMPLED = math.log(0.9)
FLOOR = -9999.0
MAX_SEQUENCES = 128


@dataclass(slots=True)
class Generated:
    """One generated sequence.

    Attributes:
        ids: Token ids, the end-of-turn token included where it was reached.
        text: What they say, control tokens left out.
        content: The part of the text that is no tool call and no reasoning.
        calls: Tool calls, as (name, arguments as JSON text).
        reason: Why it ends.
        stop: The stop string it ends at.
        steps: Log-probabilities of each position: the sampled token first, then the others asked for.
    """

    ids: list[int]
    text: str
    content: str
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    reasoning: str | None = None
    reason: Literal["stop", "length"] = "stop"
    stop: str | None = None
    steps: list[dict[int, float]] = field(default_factory=list[dict[int, float]])

    @property
    def output(self) -> Output:
        """The same for the engine."""
        return Output(self.ids, self.reason)


def generate(
    served: Served,
    body: Sampled,
    prompt: str,
    room: int,
    *,
    top: int | None,
    scripted: ScriptedReply | None,
    forced: Mapping[str, Any] | None,
) -> Generated:
    """Make up the reply to a prompt.

    Args:
        served: The claimed model.
        body: The request.
        prompt: The prompt's text.
        room: Tokens it may generate at most.
        top: Log-probabilities asked for per position; ``None`` for none.
        scripted: What the script says.
        forced: The function (of a tool) that has to be called.
    """
    text, answers = served.text, served.answers
    wanted = body.logprob_token_ids or None
    opinion: Opinion | None = None
    reply: ScriptedReply | None = None
    constrained = _constrained(body, answers, prompt)
    labels = [text.decode([token]) for token in wanted] if wanted else []
    if constrained is not None:
        reply = ScriptedReply(content=constrained)
    elif wanted:
        pass
    elif scripted is not None:
        reply = scripted
    elif forced is not None:
        arguments = sample(forced.get("parameters") or {}, lambda values, name: answers.pick(values, prompt, name))
        reply = ScriptedReply.model_validate({"tool_calls": [{"name": forced["name"], "arguments": arguments or {}}]})
    else:
        labels = offered_labels(prompt)
    if labels:
        opinion = answers.labels(labels, prompt)
        if reply is None:
            reply = ScriptedReply(content=labels[opinion.best] if opinion.argmax_is_label else "I would rather not say.")
    made = _spell(text, reply or ScriptedReply(content=_small_talk(prompt)))
    if wanted and opinion is not None and opinion.argmax_is_label and constrained is None:
        end = text.end_of_turn
        made.ids = [wanted[opinion.best]] + ([end] if end is not None else [])
    _cut(text, made, room, [body.stop] if isinstance(body.stop, str) else body.stop or [])
    if top is not None:
        made.steps = _steps(served, made.ids, top, wanted, opinion)
    return made


def _spell(text: Text, reply: ScriptedReply) -> Generated:
    """Write a reply as Qwen-style models do, so that the next turn's prompt begins with exactly these tokens."""
    calls = [(call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in reply.tool_calls]
    spelled = f"<think>\n{reply.reasoning}\n</think>\n\n" if reply.reasoning is not None else ""
    spelled += reply.content
    for number, (name, arguments) in enumerate(calls):
        before = "\n" if reply.content or number else ""
        spelled += f'{before}<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'
    end = text.end_of_turn
    ids = text.encode(spelled) + ([end] if end is not None else [])
    return Generated(ids, spelled, reply.content, calls, reply.reasoning)


def _cut(text: Text, made: Generated, room: int, stops: Sequence[str]) -> None:
    """End a reply at a stop string or where its tokens run out. What is cut is plain text, whatever it was going to be."""
    found = [(made.text.find(stop), stop) for stop in stops if stop and stop in made.text]
    if found:
        at, made.stop = min(found)
        made.ids = text.encode(made.text[:at])
        made.text = made.content = made.text[:at]
        made.calls, made.reasoning = [], None
    if len(made.ids) > room:
        made.ids = made.ids[:room]
        made.text = made.content = text.decode(made.ids, skip_special=True)
        made.calls, made.reasoning, made.reason, made.stop = [], None, "length", None


def _steps(served: Served, ids: Sequence[int], top: int, wanted: Sequence[int] | None, opinion: Opinion | None) -> list[dict[int, float]]:
    size = served.text.vocabulary_size
    steps: list[dict[int, float]] = []
    for at, token in enumerate(ids):
        step: dict[int, float] = {token: SAMPLED}
        if wanted:
            for number, label in enumerate(wanted):
                step[label] = opinion.logprob(number) if opinion is not None and not at else FLOOR
            if at or token not in wanted:
                step[token] = SAMPLED if opinion is None or at else math.log(max(1 - opinion.label_mass, 1e-6))
        else:
            for other in range(max(0, top)):
                step.setdefault((token + 1 + other) % size, math.log(0.1) - (other + 1) * math.log(2))
        steps.append(step)
    return steps


def _constrained(body: Sampled, answers: Answers, prompt: str) -> str | None:
    """The text of a reply that a schema or a list of choices binds."""
    limits = dict(body.structured_outputs or {})
    shape = body.response_format or {}
    if shape.get("type") == "json_schema":
        inner = as_object(shape.get("json_schema"))
        if not inner:
            raise wrong_value("When response_format type is 'json_schema', the 'json_schema' field must be provided.", "response_format")
        limits["json"] = inner.get("schema") or {}
    elif shape.get("type") == "json_object":
        limits["json"] = {"type": "object"}
    choices: Any = limits.get("choice")
    if choices:
        return str(choices[answers.pick([str(choice) for choice in choices], prompt)])
    if limits.get("json") is not None:
        schema: Any = limits["json"]
        schema = json.loads(schema) if isinstance(schema, str) else schema
        return json.dumps(sample(schema, lambda values, name: answers.pick(values, prompt, name)), ensure_ascii=False)
    if limits.get("regex") or limits.get("grammar"):
        raise refusal("the stand-in does not write text for a regex or a grammar")
    return None


def _small_talk(prompt: str) -> str:
    words = prompt.split()
    return f"This is a stand-in worker; it read a prompt of {len(words)} words and has nothing to say."


def sequences(body: Sampled) -> int:
    """How many replies a request wants.

    Raises:
        Refused: None, or more than anyone needs.
    """
    count = 1 if body.n is None else body.n
    if not 1 <= count <= MAX_SEQUENCES:
        bound = "at least 1" if count < 1 else f"at most {MAX_SEQUENCES}"
        raise refusal(f"n must be {bound}, got {count}.")
    return count


def check_logprobs(served: Served, wanted: Sequence[int] | None, top: int | None) -> None:
    """Refuse what vLLM's sampler refuses.

    Raises:
        Refused: More log-probabilities than allowed, or ids outside the vocabulary.
    """
    if not wanted:
        if top is not None and top > MAX_LOGPROBS:
            message = f"Requested sample logprobs of {top}, which is greater than max allowed: {MAX_LOGPROBS}"
            raise wrong_value(message, "logprobs", top)
        return
    if len(wanted) > MAX_LOGPROB_TOKEN_IDS:
        message = f"Requested logprob_token_ids of length {len(wanted)}, which is greater than max allowed: {MAX_LOGPROB_TOKEN_IDS}"
        raise wrong_value(message, "logprob_token_ids", len(wanted))
    size = served.text.vocabulary_size
    beyond = [token for token in wanted if not 0 <= token < size]
    if beyond:
        message = f"token_id(s) {beyond} in logprob_token_ids contain out-of-vocab token ids. Vocabulary size: {size}"
        raise wrong_value(message, "logprob_token_ids", beyond)

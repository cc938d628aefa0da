"""``POST /v1/completions`` (``vllm/entrypoints/openai/completion``): above all, reads of one token with the labels' log-probabilities."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmgate.standin.bodies import CompletionBody, check, read_json
from warmgate.standin.chat import check_logprob_fields, room_for, usage
from warmgate.standin.engine import Output, Prompt, Run
from warmgate.standin.generation import Generated, check_logprobs, generate, sequences
from warmgate.standin.options import NAME
from warmgate.standin.replies import Reply, refusal, wrong_value
from warmgate.standin.served import Request, Served
from warmgate.standin.shapes import as_object, is_object
from warmgate.standin.streaming import SSE_TYPE, deltas, event, finished
from warmgate.standin.styles import DIFFUSION_REFUSES
from warmgate.standin.tokens import check_ids

MAX_PROMPTS = 1024


@dataclass(frozen=True, slots=True)
class _Item:
    """One prompt with what follows it."""

    prompt: Prompt
    text: str
    made: Generated


async def completions(served: Served, request: Request) -> Reply:
    """Continue one or more prompts."""
    value = read_json(request.body, request.headers.get("content-type", ""))
    if is_object(value):
        _prepare(as_object(value))
    body = check(CompletionBody, value)
    adapter = served.adapter(body.model)
    if not served.style.samples and any(getattr(body, name, None) is not None for name in DIFFUSION_REFUSES):
        raise refusal("sampling parameters are not yet supported with diffusion models.")
    check_logprobs(served, body.logprob_token_ids, body.logprobs)
    session = body.session_id or request.headers.get("x-session-id")
    items: list[_Item] = []
    for ids, text in _prompts(served, body):
        asked = 16 if body.max_tokens is None else body.max_tokens
        only_echo = bool(body.echo and asked == 0)
        room = room_for(served, len(ids), 1 if only_echo else asked)
        made = generate(served, body, text, room, top=body.logprobs, scripted=None, forced=None)
        if only_echo:  # one token is computed and counted, and not shown
            made.text = ""
            made.steps = []
        items.append(_Item(Prompt(ids, body.cache_salt, adapter, session=session), text, made))
    items = [item for item in items for _ in range(sequences(body))]
    request_id = f"cmpl-{request.id(body.request_id)}"
    if body.stream:
        return Reply(content_type=SSE_TYPE, stream=_stream(served, request, body, items, request_id))
    async with served.running(request, [item.prompt for item in items], _outputs(items)) as runs:
        return Reply(payload=_whole(served, body, items, runs, request_id))


def _prepare(value: dict[str, Any]) -> None:
    """Checks vLLM makes before it looks at types."""
    prompt = value.get("prompt")
    if prompt is None or prompt == "":
        raise wrong_value("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if value.get("stream_options") and not value.get("stream"):
        raise wrong_value("Stream options can only be defined when `stream=True`.", "stream_options")
    check_logprob_fields(value, "logprobs", value.get("logprobs"))
    if value.get("logprob_token_ids") and value.get("echo") and value.get("max_tokens") == 0:
        message = "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no output tokens are generated."
        raise wrong_value(message, "logprob_token_ids")


def _prompts(served: Served, body: CompletionBody) -> list[tuple[list[int], str]]:
    """Each prompt's ids and text."""
    given: Any = body.prompt
    several: list[Any] = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
    if not several:
        raise refusal("You must pass at least one prompt")
    if len(several) > MAX_PROMPTS:
        raise wrong_value(f"prompt list length {len(several)} exceeds the maximum allowed count of {MAX_PROMPTS}.", "prompt")
    found: list[tuple[list[int], str]] = []
    for one in several:
        if isinstance(one, str):
            ids = served.prompts.encode(one)
            served.prompts.fits(ids)
            found.append((ids, one))
        else:
            served.prompts.fits(one, tokenized=False)
            check_ids(served, one)
            found.append((one, served.text.decode(one)))
        if not found[-1][0]:
            raise refusal("The decoder prompt cannot be empty")
    return found


def _outputs(items: Sequence[_Item]) -> list[Output]:
    return [item.made.output for item in items]


def _choice(served: Served, body: CompletionBody, item: _Item, index: int) -> dict[str, Any]:
    made = item.made
    echo = item.text if body.echo else ""
    return {
        "index": index,
        "text": echo + made.text,
        "logprobs": _logprobs(served, body, item, 0, len(made.ids), echo=bool(body.echo)) if body.logprobs is not None else None,
        "finish_reason": made.reason,
        "stop_reason": made.stop,
        "token_ids": made.ids if body.return_token_ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": list(item.prompt.ids) if body.return_token_ids else None,
        "routed_experts": None,
    }


def _logprobs(
    served: Served, body: CompletionBody, item: _Item, begin: int, end: int, *, echo: bool = False, at: int = 0
) -> dict[str, Any]:
    def spelled(token: int) -> str:
        return f"token_id:{token}" if body.return_tokens_as_token_ids else served.text.decode([token])

    tokens: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    if echo:
        tokens += [spelled(token) for token in item.prompt.ids]
        values += [None] * len(tokens)
        tops += [None] * len(tokens)
    most = body.logprobs or 0
    for token, step in zip(item.made.ids[begin:end], item.made.steps[begin:end], strict=False):
        ranked = list(step.items()) if body.logprob_token_ids else list(step.items())[: most + 1]
        tokens.append(spelled(token))
        values.append(step[token])
        tops.append({spelled(other): value for other, value in ranked})
    offsets: list[int] = []
    for token_text in tokens:
        offsets.append(at)
        at += len(token_text)
    return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}


def _usage(body: CompletionBody, items: Sequence[_Item], runs: Sequence[Run]) -> dict[str, Any]:
    each = sequences(body)
    counts = usage(runs, chat=False)
    counts["prompt_tokens"] = sum(len(item.prompt.ids) for item in items[::each])
    counts["total_tokens"] = counts["prompt_tokens"] + counts["completion_tokens"]
    return counts


def _whole(served: Served, body: CompletionBody, items: Sequence[_Item], runs: Sequence[Run], request_id: str) -> dict[str, Any]:
    return {
        "id": request_id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": NAME,
        "choices": [_choice(served, body, item, index) for index, item in enumerate(items)],
        "service_tier": None,
        "system_fingerprint": "standin",
        "usage": _usage(body, items, runs),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


async def _stream(
    served: Served, request: Request, body: CompletionBody, items: Sequence[_Item], request_id: str
) -> AsyncGenerator[bytes, None]:
    head = {"id": request_id, "object": "text_completion", "created": int(time.time()), "model": NAME}
    include_usage = bool(body.stream_options and body.stream_options.include_usage)

    def chunk(index: int, text: str, told: Mapping[str, Any] | None, reason: str | None, stop: str | None) -> bytes:
        choice = {"index": index, "text": text, "logprobs": told, "finish_reason": reason, "stop_reason": stop}
        mark = {"system_fingerprint": "standin"} if reason is not None and not include_usage else {}
        return event({**head, "choices": [{**choice, "prompt_token_ids": None, "token_ids": None}], **mark})

    async with served.running(request, [item.prompt for item in items], _outputs(items)) as runs:
        for index, item in enumerate(items):
            made = item.made
            if body.echo:
                yield chunk(index, item.text, None, None, None)
            pieces = list(deltas(served.text, made)) if made.text or not body.echo else [(0, len(made.ids), "")]
            for number, (begin, end, text) in enumerate(pieces, 1):
                told = _logprobs(served, body, item, begin, end) if body.logprobs is not None else None
                last = number == len(pieces)
                yield chunk(index, text, told, made.reason if last else None, made.stop if last else None)
        if include_usage:
            counts = finished(_usage(body, items, runs))
            yield event({**head, "choices": [], "usage": counts, "system_fingerprint": "standin"})
    yield b"data: [DONE]\n\n"

"""``POST /v1/chat/completions`` (``vllm/entrypoints/openai/chat_completion``): scripted replies and tool calls, whole or streamed."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from warmgate.standin.bodies import ChatBody, check, read_json
from warmgate.standin.engine import Prompt, Run
from warmgate.standin.generation import Generated, check_logprobs, generate, sequences
from warmgate.standin.options import NAME
from warmgate.standin.prompts import untrusted_template
from warmgate.standin.replies import Reply, refusal, wrong_value
from warmgate.standin.served import Request, Served
from warmgate.standin.shapes import as_list, as_object, is_object
from warmgate.standin.streaming import SSE_TYPE, deltas, event, finished
from warmgate.standin.styles import DIFFUSION_REFUSES


async def chat(served: Served, request: Request) -> Reply:
    """Answer one chat request."""
    value = read_json(request.body, request.headers.get("content-type", ""))
    if is_object(value):
        value = _prepared(as_object(value))
    body = check(ChatBody, value)
    adapter = served.adapter(body.model)
    if body.chat_template is not None:
        raise untrusted_template()
    if not served.style.samples and any(getattr(body, name, None) is not None for name in DIFFUSION_REFUSES):
        raise refusal(
            "The temperature, min_p, seed, min_tokens, logit_bias, bad_words, and allowed_token_ids sampling parameters are not yet "
            "supported with diffusion models."
        )
    text = served.prompts.chat(
        body.messages,
        body.tools,
        body.chat_template_kwargs,
        add_generation_prompt=body.add_generation_prompt,
        continue_final=body.continue_final_message,
    )
    ids = served.prompts.encode(text)
    served.prompts.fits(ids)
    top = (body.top_logprobs or 0) if body.logprobs else None
    check_logprobs(served, body.logprob_token_ids, top)
    session = body.session_id or request.headers.get("x-session-id")
    turn = sum(message.get("role") == "assistant" for message in body.messages)
    made = generate(
        served,
        body,
        text,
        room_for(served, len(ids), body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens),
        top=top,
        scripted=served.answers.script.reply(session, turn),
        forced=_forced(body),
    )
    count = sequences(body)
    prompt = Prompt(ids, body.cache_salt, adapter, session=session)
    request_id = f"chatcmpl-{request.id(body.request_id)}"
    if body.stream:
        return Reply(content_type=SSE_TYPE, stream=_stream(served, request, body, prompt, made, request_id, count))
    async with served.running(request, [prompt] * count, [made.output] * count) as runs:
        return Reply(payload=_whole(served, body, made, runs, request_id))


def room_for(served: Served, length: int, asked: int | None) -> int:
    """Tokens a reply may have.

    Raises:
        Refused: Fewer than one was asked for, or more than the context holds.
    """
    limit = served.prompts.max_model_len
    if asked is not None and asked < 1:
        raise wrong_value(f"max_tokens must be at least 1, got {asked}.", "max_tokens", asked)
    if asked is not None and asked > limit:
        raise wrong_value(
            f"max_tokens={asked} cannot be greater than max_model_len={limit}. Please request fewer output tokens.", "max_tokens", asked
        )
    return min(limit - length, limit if asked is None else asked)


def _prepared(value: dict[str, Any]) -> dict[str, Any]:
    """Checks vLLM makes before it looks at types, in its order."""
    if value.get("continue_final_message") and value.get("add_generation_prompt"):
        raise refusal("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    tools, choice = value.get("tools"), value.get("tool_choice", "none")
    if tools == []:
        message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
        raise wrong_value(message, "tools")
    if "tool_choice" not in value and tools:
        value = {**value, "tool_choice": "auto"}
    elif choice not in ("none", None):
        _check_choice(choice, tools)
    if messages := as_list(value.get("messages")):
        value = {**value, "messages": [_renamed(message) for message in messages]}
    check_logprob_fields(value, "top_logprobs", value.get("logprobs"))
    if value.get("stream_options") and not value.get("stream"):
        raise wrong_value("Stream options can only be defined when `stream=True`.", "stream_options")
    return value


def _renamed(message: Any) -> Any:
    """A message whose reasoning goes by its old name, with the new one."""
    old = as_object(message).get("reasoning_content")
    if old is None:
        return message
    return {**{key: value for key, value in message.items() if key != "reasoning_content"}, "reasoning": message.get("reasoning") or old}


def _check_choice(choice: Any, tools: Any) -> None:
    if tools is None:
        raise wrong_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice not in ("auto", "required") and not is_object(choice):
        message = f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.'
        raise wrong_value(message, "tool_choice")
    if is_object(choice):
        function = as_object(choice).get("function")
        named = as_object(function).get("name")
        usage = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'
        if not isinstance(named, str) or not named:
            raise wrong_value(f"Invalid value for `function`: `{function}` in `tool_choice`! {usage}", "tool_choice.function")
        known = [as_object(as_object(tool).get("function")).get("name") for tool in as_list(tools)]
        if named not in known:
            raise wrong_value("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice")


def check_logprob_fields(value: Mapping[str, Any], field: str, on: Any) -> None:
    """Refuse log-probability fields that contradict each other. ``on`` is what switches them on."""
    needs = "`logprobs` must be set to true." if field == "top_logprobs" else "`logprobs` must be set."
    off = not on if field == "top_logprobs" else on is None
    if value.get("logprob_token_ids") and off:
        raise wrong_value(f"when using `logprob_token_ids`, {needs}", "logprob_token_ids")
    number = value.get(field)
    if number is None:
        return
    if not isinstance(number, (int, float)):
        raise wrong_value(f"`{field}` must be an integer.", field, number)
    if number < 0 and number != -1:
        raise wrong_value(f"`{field}` must be a positive value or -1.", field, number)
    if number and field == "top_logprobs" and off:
        raise wrong_value(f"when using `top_logprobs`, {needs}", field)


def _forced(body: ChatBody) -> Mapping[str, Any] | None:
    """The function that has to be called, as a mapping with ``name`` and ``parameters``."""
    if body.tools is None or body.tool_choice in ("none", "auto", None):
        return None
    tools = {tool.function.name: tool.function for tool in body.tools}
    name = body.tool_choice["function"]["name"] if is_object(body.tool_choice) else body.tools[0].function.name
    return {"name": name, "parameters": tools[name].parameters}


def _message(body: ChatBody, made: Generated) -> dict[str, Any]:
    calls = made.calls if body.tools is not None and body.tool_choice != "none" else []
    message: dict[str, Any] = {
        "role": "assistant",
        "content": (made.content or (None if body.tool_choice == "auto" else "")) if calls else made.text if made.calls else made.content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if calls:
        message["tool_calls"] = [
            {"id": call_id(), "type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls
        ]
    message["reasoning"] = made.reasoning if body.include_reasoning else None
    return message


def call_id() -> str:
    """A new tool call's id."""
    return f"chatcmpl-tool-{secrets.token_hex(8)}"


def _reason(body: ChatBody, made: Generated, *, called: bool) -> str:
    named = is_object(body.tool_choice)
    return "tool_calls" if called and not named and made.reason == "stop" else made.reason


def usage(runs: Sequence[Run], *, chat: bool) -> dict[str, Any]:
    """Token counts. Cached tokens are those of the last engine request, as vLLM reports them."""
    prompt, completion = len(runs[0].prompt.ids), sum(len(run.output.ids) for run in runs)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {
            "cached_tokens": runs[-1].cached,
            "created_cache_tokens": runs[-1].created if chat else None,
            "multimodal_tokens": None,
        },
        "completion_tokens_details": None,
    }


def _whole(served: Served, body: ChatBody, made: Generated, runs: Sequence[Run], request_id: str) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    for index in range(len(runs)):
        message = _message(body, made)
        choices.append(
            {
                "index": index,
                "message": message,
                "logprobs": _logprobs(served, body, made) if body.logprobs else None,
                "finish_reason": _reason(body, made, called="tool_calls" in message),
                "stop_reason": made.stop,
                "token_ids": made.ids if body.return_token_ids else None,
                "routed_experts": None,
            }
        )
    return {
        "id": request_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": NAME,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": "standin",
        "usage": usage(runs, chat=True),
        "prompt_logprobs": None,
        "prompt_token_ids": list(runs[0].prompt.ids) if body.return_token_ids else None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _logprobs(served: Served, body: ChatBody, made: Generated, begin: int = 0, end: int | None = None) -> dict[str, Any]:
    def spelled(token: int) -> str:
        return f"token_id:{token}" if body.return_tokens_as_token_ids else served.text.decode([token])

    def entry(token: int, value: float) -> dict[str, Any]:
        shown = spelled(token)
        return {"token": shown, "logprob": value, "bytes": list(shown.encode("utf-8", "replace"))}

    content: list[dict[str, Any]] = []
    top = body.top_logprobs or 0
    for token, step in zip(made.ids[begin:end], made.steps[begin:end], strict=True):
        ranked = list(step.items()) if body.logprob_token_ids else list(step.items())[:top]
        content.append({**entry(token, step[token]), "top_logprobs": [entry(other, value) for other, value in ranked]})
    return {"content": content}


async def _stream(
    served: Served, request: Request, body: ChatBody, prompt: Prompt, made: Generated, request_id: str, count: int
) -> AsyncGenerator[bytes, None]:
    head = {"id": request_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": NAME}
    include_usage = bool(body.stream_options and body.stream_options.include_usage)

    def chunk(index: int, delta: Mapping[str, Any], **more: Any) -> bytes:
        return event(
            {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": None, **more}]}
        )

    async with served.running(request, [prompt] * count, [made.output] * count) as runs:
        for index in range(count):
            first = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            yield event({**head, "choices": [first], "prompt_token_ids": None, "prompt_text": None})
        calls = made.calls if body.tools is not None and body.tool_choice != "none" else []
        for index in range(count):
            if made.reasoning is not None and body.include_reasoning:
                yield chunk(index, {"reasoning": made.reasoning})
            if calls or made.reasoning is not None:
                if made.content:
                    yield chunk(index, {"content": made.content})
            else:
                for begin, end, text in deltas(served.text, made):
                    told = _logprobs(served, body, made, begin, end) if body.logprobs else None
                    yield chunk(index, {"content": text}, logprobs=told)
            for number, (name, arguments) in enumerate(calls):
                opened = {"index": number, "id": call_id(), "type": "function", "function": {"name": name, "arguments": ""}}
                yield chunk(index, {"tool_calls": [opened]})
                for at in range(0, len(arguments), 40):
                    piece = {"index": number, "function": {"arguments": arguments[at : at + 40]}}
                    yield chunk(index, {"tool_calls": [piece]})
            reason = _reason(body, made, called=bool(calls))
            last: dict[str, Any] = {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason, "stop_reason": made.stop}
            mark = {} if include_usage else {"system_fingerprint": "standin"}
            yield event({**head, "choices": [{**last, "token_ids": None}], **mark})
        if include_usage:
            yield event({**head, "choices": [], "usage": finished(usage(runs, chat=True)), "system_fingerprint": "standin"})
    yield b"data: [DONE]\n\n"

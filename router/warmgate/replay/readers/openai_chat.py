"""Logs of OpenAI-style requests: what SDK wrappers, proxies and batch files write, one request a line (or a list of them).

The request (``messages``, ``tools``, ``model``, …) stands on the line itself or under ``request`` or ``body``; beside it may stand a
``response`` (``choices``, ``usage``) or its parts. Read alike: chat completions, Responses (``input``, ``instructions``) and Anthropic's
Messages (``system``, ``input_schema``). Chat messages are handed on exactly as they were sent; the others are put into chat's shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from warmgate.replay.parsing import NotJson, parse
from warmgate.replay.readers import _messages
from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._fields import (
    Unusable,
    dig,
    first_text,
    items,
    key,
    mapping,
    mappings,
    mostly,
    records,
    samples,
    seconds,
    text,
)
from warmgate.replay.readers._history import Threads
from warmgate.replay.readers._sharing import Conversations
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.readers._usage import usage
from warmgate.replay.trace import Call, Message, TextPrompt

_WRAPPERS = (("request",), ("body",), ("request", "body"), ("kwargs",))

_SESSION = ("session", "session_id", "sessionId", "conversation_id", "thread_id")
_SESSION_HEADERS = ("x-session-id", "session-id", "session_id", "x-conversation-id", "x-thread-id")

_STARTED = ("t", "started", "start_time", "timestamp", "created", "created_at")
_ENDED = ("ended", "end_time", "completed_at")

_RESERVED = {"messages", "tools", "add_generation_prompt", "self"}
"""Names that a template gets from its renderer, whatever ``chat_template_kwargs`` say."""

_ANTHROPIC = {"tool_use", "tool_result", "thinking", "redacted_thinking"}


class _OpenAIChat:
    name = "openai_chat"
    title = "OpenAI chat requests (JSONL)"

    def recognises(self, head: Head) -> bool:
        return mostly(_request(row) is not None for row in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Calls in file order."""
        log = _Log(source)
        for line, record in records(source):
            try:
                yield log.call(mapping(record), line)
            except Unusable as fault:
                source.skipped(line, fault.why)
        source.notes += log.notes()


class _Log:
    """The requests of one file, and what later ones need of earlier ones."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._conversations = Conversations()
        self._threads = Threads()
        self._unseen = 0
        self._answered_inside = 0

    def call(self, row: dict[str, Any], line: int) -> Call:
        """One request.

        Raises:
            Unusable: It is none, or failed.
        """
        request = _request(row)
        if request is None:
            raise Unusable("it is no request: neither messages nor input")
        response = _response(row)
        used = usage(row.get("usage") or response.get("usage"))
        answer = _answer(row, response)
        if answer is None and used.prompt_tokens is None and (fault := _failure(row)) is not None:
            raise Unusable(fault)
        messages = _conversation(request)
        if answer is None and len(messages) > 1 and messages[-1].get("role") == "assistant" and not request.get("continue_final_message"):
            *messages, answer = messages
            self._answered_inside += 1
        whole = self._whole(request, messages)
        if whole is None and used.prompt_tokens is None:
            raise Unusable("the provider holds its earlier messages, and it records no usage")
        if (ident := text(response.get("id"))) is not None and whole is not None and "input" in request:
            self._threads.keep(ident, whole, answer)
        session = _session(row, request)
        prompt: TextPrompt | None = None
        if whole is None:
            self._unseen += 1
        else:
            session, whole = self._conversations.join(session, whole)
            prompt = TextPrompt(whole, self._conversations.tools(_tools(request)), _template_kwargs(request))
        started = _time(row, _STARTED)
        return Call(
            session=session or "unnamed",
            model=first_text(request.get("model"), response.get("model"), row.get("model")) or "",
            prompt=prompt,
            usage=used,
            namespace=_namespace(row, request),
            response=answer,
            started=_time(response, _STARTED) if started is None else started,
            ended=_time(row, _ENDED),
            worker=text(row.get("worker")),
            line=line,
        )

    def _whole(self, request: dict[str, Any], sent: list[Message]) -> list[Message] | None:
        """The conversation as the model saw it, or ``None`` where the provider holds a part of it."""
        previous = text(request.get("previous_response_id"))
        if previous is not None:
            return self._threads.whole(previous, sent)
        return None if request.get("conversation") and "input" in request else sent

    def notes(self) -> list[str]:
        """What the user should know about the calls read."""
        notes = self._conversations.note()
        if self._answered_inside:
            notes.append(f"records that end with an assistant message and have no response: {self._answered_inside:,}; it is the answer")
        if self._unseen:
            notes.append(f"calls that go on from messages the provider holds and the trace does not: {self._unseen:,}, by usage alone")
        return notes


def _request(row: dict[str, Any]) -> dict[str, Any] | None:
    """The request on a line, wherever its log puts it."""
    for path in ((), *_WRAPPERS):
        body = _inner(dig(row, *path)) if path else row
        if mappings(body.get("messages")):
            return body
        given = body.get("input")
        if any("role" in item or "type" in item for item in mappings(given)):
            return body
        if isinstance(given, str) and ("instructions" in body or _response(row).get("object") == "response"):
            return body
    return None


def _inner(value: Any) -> dict[str, Any]:
    """An object, or one that a log wrote as JSON in a string; empty where it is neither."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            value = parse(value.encode("utf-8", "replace"))
        except NotJson:
            return {}
    return mapping(value)


def _conversation(request: dict[str, Any]) -> list[Message]:
    """The messages sent, in OpenAI chat's shape.

    Raises:
        Unusable: One of them is no message, or there is none.
    """
    sent = items(request.get("messages"))
    if not sent or _is_anthropic(request):
        found = _messages.prompt(request)
        if found is None:
            raise Unusable("it holds no message")
        return list(found.messages)
    for number, one in enumerate(sent, 1):
        if text(mapping(one).get("role")) is None:
            raise Unusable(f"its message {number} has no role")
    return cast("list[Message]", sent)


def _is_anthropic(request: dict[str, Any]) -> bool:
    if "system" in request or any("input_schema" in tool for tool in mappings(request.get("tools"))):
        return True
    parts = (mapping(part) for one in mappings(request.get("messages")) for part in items(one.get("content")))
    return any(part.get("type") in _ANTHROPIC for part in parts)


def _tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Tool schemas. Those in chat's shape stay as they were sent."""
    return tool_schemas(request.get("tools") or request.get("functions"))


def _response(row: dict[str, Any]) -> dict[str, Any]:
    """The response on a line: under ``response``, in a batch file under its ``body``, or spread on the line itself."""
    found = _inner(row.get("response"))
    if "body" in found:
        return _inner(found["body"])
    return found or row


def _answer(row: dict[str, Any], response: dict[str, Any]) -> Message | None:
    """The assistant's message. One of chat completions stays as it is."""
    choices = mappings(response.get("choices"))
    message = mapping(choices[0].get("message")) if choices else {}
    if text(message.get("role")) is not None:
        return message
    if response is not row:
        return _messages.answer(response)
    given = row.get("output") or row.get("response") or row.get("completion")
    return _messages.answer(given) if given else None


def _failure(row: dict[str, Any]) -> str | None:
    status = dig(row, "response", "status_code") or row.get("status_code")
    if isinstance(status, int) and status >= 400:
        return f"the request failed with status {status}"
    return "the request failed" if row.get("error") or dig(row, "response", "error") else None


def _session(row: dict[str, Any], request: dict[str, Any]) -> str | None:
    places = [row, request, _inner(row.get("metadata")), _inner(request.get("metadata")), mapping(request.get("extra_body"))]
    for place in places:
        for name in _SESSION:
            if (found := key(place.get(name))) is not None:
                return found
    for place in (row, mapping(row.get("request")), request):
        headers = place.get("headers") or place.get("extra_headers")
        lowered = {name.lower(): value for name, value in mapping(headers).items()}
        for name in _SESSION_HEADERS:
            value = lowered.get(name)
            if (found := key(items(value)[0] if items(value) else value)) is not None:
                return found
    return key(mapping(request.get("conversation")).get("id") or request.get("conversation"))


def _namespace(row: dict[str, Any], request: dict[str, Any]) -> str:
    """What keeps caches apart beside the model: LoRA and salt."""
    lora = first_text(
        request.get("lora_name"), request.get("lora"), dig(request, "lora_request", "lora_name"), row.get("lora_name"), row.get("lora")
    )
    salt = first_text(request.get("cache_salt"), dig(request, "extra_body", "cache_salt"), row.get("cache_salt"))
    return " ".join([f"lora={lora}"] * (lora is not None) + [f"salt={salt}"] * (salt is not None))


def _template_kwargs(request: dict[str, Any]) -> dict[str, Any]:
    given = mapping(request.get("chat_template_kwargs") or dig(request, "extra_body", "chat_template_kwargs"))
    return {name: value for name, value in given.items() if name not in _RESERVED}


def _time(row: dict[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:  # a clock that begins with the trace
            return 0.0
        if (found := seconds(value)) is not None:
            return found
    return None


READER: Reader = _OpenAIChat()

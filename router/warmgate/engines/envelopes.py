"""From a reply that is not 200 to an error: the server's words out of whatever envelope it uses.

Envelopes met so far: ``{"error": {"message", "type", "param", "code"}}`` (OpenAI, vLLM, llama.cpp, OpenRouter, Fireworks),
``{"error": "text"}`` (vLLM's 401, Ollama), ``{"detail": "text"}`` (FastAPI's router), ``{"detail": [{"loc", "msg"}]}`` (FastAPI's
validation, TypeSafe), ``{"detail": {"error_type", "message"}}`` (TypeSafe), ``{"object": "error", "message", "type", "code"}``
(SGLang) and ``{"success": false, "errors": [{"code", "message"}]}`` (Workers AI). Anything else is quoted as text.

A web page is nobody's envelope: what answers is a proxy, or no decision server at all, and its 401, 404 or 501 means something else than
a worker's would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from warmgate.engines.faults import has_tls
from warmgate.engines.retry import retry_after_s
from warmgate.errors import (
    BadRequest,
    EngineError,
    NotSupported,
    Overloaded,
    RouteAbsent,
    ServerFault,
    Unauthorized,
    UnknownModel,
    Unreachable,
    one_line,
)

NOT_SUPPORTED_CAUSES = (
    "the model has no read strategy there: another architecture, --logprobs-mode raw_logits or processed_logits, or labels that are not"
    " one token after the template's generation prompt (the server's debug log says which); use prefix_read or round_trip"
)
"""Likely causes of a 501, after vLLM 0.32's ``select_read_strategy`` and ``type_label_ids``; the reply itself names none."""

_LONGEST = 4000
"""Characters of a message that are looked at; it is shown much shorter."""

Json = Mapping[str, Any]


def is_page(body: bytes) -> bool:
    """Whether a body is HTML or XML: no decision server speaks so."""
    return body[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def server_words(body: bytes) -> tuple[str | None, str]:
    """The server's message, and everything else the envelope says (type, param, code) as one lower-case string."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        text = re.sub(r"<[^>]*>", " ", body[:_LONGEST].decode("utf-8", "replace"))  # an HTML page of a proxy
        return one_line(text) or None, ""
    if not isinstance(data, dict):
        return (one_line(str(data)[:_LONGEST]) or None) if data is not None else None, ""
    found = list(_messages(cast("Json", data)))
    words = "; ".join(message[:_LONGEST] for message, _ in found)
    return one_line(_without_input(words)) or None, " ".join(kind for _, kind in found).lower()


def _messages(data: Json) -> Iterator[tuple[str, str]]:
    """Each message in the envelope with what stands beside it."""
    for value in (data.get("error"), data.get("detail"), data.get("errors"), data.get("message")):
        entries: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
        for entry in entries[:5]:
            if isinstance(entry, str):
                yield entry, _kind(data)
            elif isinstance(entry, dict):
                fields = cast("Json", entry)
                message = fields.get("message", fields.get("msg"))
                if isinstance(message, str):
                    yield _located(fields, message), _kind(fields)


def _kind(fields: Json) -> str:
    return " ".join(str(fields[key]) for key in ("type", "error_type", "param", "code") if fields.get(key) is not None)


def _located(fields: Json, message: str) -> str:
    """FastAPI's validation errors say where: ``questions.q.criteria: Field required``."""
    place = fields.get("loc")
    if not isinstance(place, list):
        return message
    path = ".".join(str(part) for part in cast("list[object]", place) if part != "body")
    return f"{path}: {message}" if path else message


def _without_input(words: str) -> str:
    """Validation errors of vLLM print the offending input, which is the caller's state: cut from there on."""
    return re.sub(r",? *'input': .*", " …", words, count=1, flags=re.DOTALL)


def error_of(status: int, headers: Mapping[str, str], body: bytes, *, where: str, request_id: str, path: str) -> EngineError:
    """The error a reply with this status means.

    Args:
        status: The HTTP status, not 200.
        headers: Its headers, looked up without regard to case.
        body: As much of its body as was read.
        where: The worker, for the message.
        request_id: The X-Request-Id that was sent.
        path: The route that was asked.
    """
    words, kind = server_words(body)
    wait = retry_after_s(headers)
    page = is_page(body)

    def error(cls: type[EngineError], what: str, mend: str | None = None, *, retryable: bool | None = None) -> EngineError:
        return cls(
            what,
            where=where,
            mend=mend,
            status=status,
            server_words=words,
            request_id=request_id,
            retry_after_s=wait,
            retryable=retryable,
        )

    if status == 400 and re.search(r"HTTPS (port|server)", words or ""):  # nginx, Go
        what, write = has_tls(where)
        return error(Unreachable, f"400: {what}", write, retryable=False)
    if page and status == 413:
        return error(
            BadRequest,
            "413: a proxy takes no body this long",
            "raise its limit (nginx: client_max_body_size), or give the worker's own address",
        )
    if page and status in (401, 403, 407):
        login = "check the URL and the port, and whether a proxy in front wants a login of its own"
        return error(Unauthorized, f"{status}: a web page, no decision server's answer", login)
    if (page and 400 <= status < 500 and status != 429) or (status == 501 and not _is_envelope(body)):
        return error(RouteAbsent, f"{status}: what answers there is no decision server", "check the URL and the port")
    if status in (400, 413, 415, 422):
        if "model_not_found" in kind:
            return error(UnknownModel, "the server does not serve this model", "see its /v1/models")
        mend = "shorten the prompt or raise --max-model-len" if "maximum context length" in (words or "") else None
        return error(BadRequest, f"{status}: the server refused the request", mend)
    if status in (401, 403):
        return error(
            Unauthorized, f"{status}: the API key is missing, wrong or not allowed", "name the variable: api_key_env, --api-key-env"
        )
    if status in (404, 405):
        if status == 404 and "model" in f"{words or ''} {kind}".lower():
            return error(UnknownModel, "404: the server does not serve this model", "see its /v1/models")
        mend = "vLLM has it since 0.32; check the base URL" if path == "/v1/systemone" else "check the base URL and the server's version"
        return error(RouteAbsent, f"{status}: the server has no POST {path}", mend)
    if status == 501:
        causes = NOT_SUPPORTED_CAUSES if path == "/v1/systemone" else f"its model has no {path}; use another engine"
        return error(NotSupported, "501: the server cannot answer this for its model", causes)
    if status in (429, 503, 529):
        return error(Overloaded, f"{status}: the server has no room now", "try later, or add workers")
    if 300 <= status < 400:
        return error(ServerFault, f"{status}: redirects are not followed", f"give the URL it redirects to{_target(headers)}")
    return error(ServerFault, f"{status}: the server failed", "see the server's log", retryable=status in (502, 504))


def _is_envelope(body: bytes) -> bool:
    """Whether an error is in vLLM's envelope, or SGLang's: a 501 of anything else says nothing about a model."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    if not isinstance(data, dict):
        return False
    fields = cast("Json", data)
    inner = fields.get("error")
    return (isinstance(inner, dict) and "message" in inner) or (fields.get("object") == "error" and "message" in fields)


def _target(headers: Mapping[str, str]) -> str:
    """Where a redirect leads, without its query, which may carry a login's state."""
    target = one_line(headers.get("location", "").partition("?")[0], 120)
    return f": {target}" if target else ""

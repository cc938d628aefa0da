"""What goes back to a client: replies, and the envelopes in which vLLM 0.32 refuses (``vllm/entrypoints/serve/exception_handling``)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmgate.standin.shapes import as_object

MAX_REPORTED_ERRORS = 10
MAX_INPUT_CHARACTERS = 200
MAX_ERROR_CHARACTERS = 1000


@dataclass(slots=True)
class Reply:
    """One response.

    Attributes:
        status: HTTP status.
        payload: A JSON value to send, or ``None`` when ``body`` or ``stream`` carries the response.
        body: Bytes to send as they are.
        content_type: Media type; ``None`` sends no such header.
        headers: Further headers.
        stream: Server-sent events; the response is chunked.
    """

    status: int = 200
    payload: Any = None
    body: bytes = b""
    content_type: str | None = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    stream: AsyncGenerator[bytes, None] | None = None

    def content(self) -> bytes:
        """The body of a response that is not a stream. Numbers JSON has no word for are written as Python does (``NaN``)."""
        if self.payload is None:
            return self.body
        return json.dumps(self.payload, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Refused(Exception):
    """The request cannot be served.

    Args:
        reply: What the client is told.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply.payload))
        self.reply = reply


def refusal(message: str, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> Refused:
    """VLLM's usual envelope."""
    return Refused(Reply(status, {"error": {"message": message, "type": kind, "param": param, "code": status}}))


def wrong_value(message: str, param: str, value: object = None) -> Refused:
    """A field's value is not acceptable. The message repeats the field, and the value where it tells something."""
    extras = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return refusal(f"{message} ({extras})", param=param)


def unreadable(detail: str) -> Refused:
    """The body cannot be read at all. It is FastAPI that answers, so the envelope is its own."""
    return Refused(Reply(400, {"detail": detail}))


def not_found() -> Refused:
    """No such route. It is Starlette that answers, so the envelope is its own."""
    return Refused(Reply(404, {"detail": "Not Found"}))


def not_allowed(methods: Iterable[str]) -> Refused:
    """The route exists, for other methods."""
    return Refused(Reply(405, {"detail": "Method Not Allowed"}, headers=[("allow", ", ".join(methods))]))


def unauthorized() -> Refused:
    """The key is missing or wrong. ``error`` is a string here, not an object."""
    return Refused(Reply(401, {"error": "Unauthorized"}))


def unsupported(what: str = "The model does not support the structured decision API") -> Refused:
    """The route exists but this model cannot serve it: final, never to be retried."""
    return refusal(what, 501, "NotImplementedError")


class Invalid(Refused):
    """The body does not have the route's shape.

    Args:
        errors: pydantic's, with locations from ``body`` down, or plain strings.
    """

    def __init__(self, errors: Sequence[Any]) -> None:
        self.errors = list(errors)
        label = "error" if len(errors) == 1 else "errors"
        lines = [f"{len(errors)} validation {label}:", *(f"  {_shown(error)}" for error in errors[:MAX_REPORTED_ERRORS])]
        if len(errors) > MAX_REPORTED_ERRORS:
            lines.append(f"  ...and {len(errors) - MAX_REPORTED_ERRORS} more {label}")
        location = as_object(errors[0]).get("loc") if errors else None
        super().__init__(refusal("\n".join(lines).rstrip(), 400, "Bad Request", _place(location) if location else None).reply)


def _shown(error: Any) -> str:
    told = dict(as_object(error))
    if "input" in told:
        told["input"] = _summary(told["input"])
    if isinstance(told.get("loc"), tuple):
        told["loc"] = _place(told["loc"])
    text = str(told or error)
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[:MAX_ERROR_CHARACTERS] + "...[truncated]"


def _summary(value: object) -> object:
    if isinstance(value, (list, tuple, dict)):
        return f"<{type(value).__name__} of {len(value)} items>"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, bytes):
        return f"<bytes of {len(value)} bytes>"
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_INPUT_CHARACTERS else text[:MAX_INPUT_CHARACTERS] + "...[truncated]"


def _place(location: Iterable[Any]) -> str:
    """A field's path. Names of pydantic's own wrappers (``function-wrap[…]``, union branches) are left out, as vLLM does."""
    inner = {"str", "int", "float", "bool", "list", "dict", "tuple", "none", "nullable", "union", "default"}
    parts = [str(part) for part in location]
    kept = [part for part in parts if not set(part) & set("[](){}") and part.lower() not in inner]
    return ".".join(kept or parts)

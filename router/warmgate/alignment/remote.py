"""One worker's own tokenizer and template over HTTP: ``/tokenize``, ``/detokenize`` and ``/tokenizer_info``."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

import msgspec

from warmgate.engines.deadline import Deadline
from warmgate.engines.http import Http, decode, request_headers
from warmgate.errors import BadRequest, EngineError
from warmgate.foreign import mapping, mappings, sendable

MAX_BODY = 32 << 20
"""Longest reply read, in bytes: the ids of a million tokens take about 7 MB."""

FRESH_S = 60.0
"""How long ids stand, seconds."""

PIECE = 32_768
"""Characters of the longest text whose ids are kept."""

PIECES = 2_000_000
"""Characters of all texts whose ids are kept."""

Ids = tuple[int, ...]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Text(msgspec.Struct):
    prompt: str


class Pieces:
    """Ids of texts that a worker tokenized lately: a turn's decision, prediction and check all count the same new piece.

    Safe across threads. What was tokenized by a worker that was replaced since is forgotten with time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, str], tuple[Ids, float]] = OrderedDict()
        self._size = 0

    def get(self, worker: str, model: str, text: str) -> Ids | None:
        """The ids, where they are known and fresh."""
        found = self._kept.get((worker, model, text))
        return found[0] if found is not None and time.monotonic() - found[1] < FRESH_S else None

    def keep(self, worker: str, model: str, text: str, ids: Ids) -> None:
        """Keep them, if they are not of a whole long prompt."""
        if len(text) > PIECE:
            return
        with self._lock:
            if self._kept.pop((worker, model, text), None) is not None:
                self._size -= len(text)
            self._kept[worker, model, text] = (ids, time.monotonic())
            self._size += len(text)
            while self._size > PIECES:
                (_, _, old), _ = self._kept.popitem(last=False)
                self._size -= len(old)


class Remote:
    """What a worker makes of texts and conversations.

    Args:
        http: Connections to it.
        model: The model asked about.
        deadline: When to give up.
        headers: Sent along (what a gateway hashes).
        pieces: Known ids of short texts.
    """

    def __init__(
        self, http: Http, model: str, deadline: Deadline, headers: Mapping[str, str] | None = None, pieces: Pieces | None = None
    ) -> None:
        self._http = http
        self._deadline = deadline
        self._headers = dict(headers or {})
        self._pieces = pieces
        self.model = model
        self.worker = http.worker

    async def ids(self, text: str) -> Ids:
        """The ids of a text; control tokens written in it become control tokens, none are added.

        Raises:
            EngineError: No answer; :class:`~warmgate.errors.RouteAbsent` where there is no ``/tokenize``.
        """
        if not text:
            return ()
        known = self._pieces.get(self.worker, self.model, text) if self._pieces is not None else None
        if known is None:
            known = await self._tokenize({"prompt": text, "add_special_tokens": False})
            if self._pieces is not None:
                self._pieces.keep(self.worker, self.model, text, known)
        return known

    async def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> Ids:
        """The ids of a chat request as this worker renders it.

        Raises:
            EngineError: As :meth:`ids`; :class:`~warmgate.errors.BadRequest` where the template refuses the conversation.
        """
        try:
            sent = list(map(wire_message, messages))
        except (TypeError, ValueError, RecursionError) as fault:
            raise BadRequest(f"cannot be sent as JSON ({fault})", where=self.worker) from None
        body: dict[str, Any] = {"messages": sent, "add_generation_prompt": add_generation_prompt}
        if tools:
            body["tools"] = tools
        if kwargs:
            body["chat_template_kwargs"] = kwargs
        return await self._tokenize(body)

    async def text(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens spelled out.

        Raises:
            EngineError: As :meth:`ids`.
        """
        if not ids:
            return ""
        found: _Text = decode(await self.post("/detokenize", {"tokens": ids}), _Text, worker=self.worker, request_id="")
        return found.prompt

    async def template(self) -> tuple[str, dict[str, str]] | None:
        """Chat template and named special tokens, where ``/tokenizer_info`` is enabled (``--enable-tokenizer-info-endpoint``)."""
        request_id = f"warmgate-template-{token_hex(6)}"
        token = request_headers.set(self._headers)
        try:
            reply = await self._http.exchange("GET", "/tokenizer_info", None, deadline=self._deadline, request_id=request_id)
        except EngineError:
            return None
        finally:
            request_headers.reset(token)
        if reply.status != 200:
            return None
        try:
            info = mapping(msgspec.json.decode(reply.body))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        source = info.get("chat_template")
        special = {key: value for key, value in info.items() if key.endswith("_token") and isinstance(value, str)}
        return (source, special) if isinstance(source, str) and source.strip() else None

    async def _tokenize(self, body: dict[str, Any]) -> Ids:
        found: _Tokens = decode(await self.post("/tokenize", body), _Tokens, worker=self.worker, request_id="")
        return tuple(found.tokens)

    async def post(self, path: str, body: dict[str, Any], *, request_id: str | None = None) -> bytes:
        """The body of a 200. ``body`` holds the model unless it names one itself.

        Raises:
            EngineError: Any other outcome.
        """
        token = request_headers.set(self._headers)
        try:
            try:
                data = msgspec.json.encode({"model": self.model, **body})
            except UnicodeEncodeError:
                data = msgspec.json.encode(sendable({"model": self.model, **body}))
        except (TypeError, ValueError, RecursionError) as fault:
            raise BadRequest(f"cannot be sent as JSON ({fault})", where=self.worker) from None
        else:
            id_ = request_id or f"warmgate-tokens-{token_hex(6)}"
            return await self._http.post(path, data, deadline=self._deadline, request_id=id_)
        finally:
            request_headers.reset(token)


def wire_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as servers take it: vLLM wants a call's arguments as text, whatever form they are kept in."""
    calls = mappings(message.get("tool_calls"))
    if all(isinstance(mapping(call.get("function")).get("arguments"), str) for call in calls):
        return message
    return {**message, "tool_calls": [{**call, "function": _textual(mapping(call.get("function")))} for call in calls]}


def _textual(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False, default=str)
    return {**function, "arguments": text}

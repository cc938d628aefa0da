"""Where the chat template comes from when nobody gave one: from the server, as source or as renderings.

A server started with ``--enable-tokenizer-info-endpoint`` hands out the source, and all rendering happens here. A stock one does not; then
*it* renders: ``/tokenize`` of a conversation gives the ids, ``/detokenize`` of these the text. Rendering is asked for from deep inside the
planner, which is not asynchronous; :class:`ServerTemplate` therefore raises :class:`Wanted` for a rendering it does not have, and
:func:`drive` fetches it and runs the planner again. Since the planner renders new messages behind a short stretch of context alone, a turn
costs two short renderings, however long the conversation is; the first turn of a session costs two long ones.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from warmgate.alignment.remote import Remote
from warmgate.alignment.template import ChatTemplate
from warmgate.errors import BadRequest, TemplateError

T = TypeVar("T")

FRESH_S = 60.0
"""How long a rendering stands, seconds: a server that was replaced may render otherwise."""

KEPT_CHARACTERS = 4_000_000
"""Characters of renderings kept."""

MOST = 24
"""Renderings fetched for one piece of work at most. Taking a template apart takes four, a turn two to four."""


class Wanted(Exception):
    """Control flow, no failure: a rendering is needed that has to be fetched."""

    def __init__(
        self,
        key: bytes,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        open_: bool,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__("a rendering has to be fetched")
        self.key = key
        self.messages = messages
        self.tools = tools
        self.add_generation_prompt = open_
        self.kwargs = kwargs


class ServerTemplate(ChatTemplate):
    """A chat template that only its server can render."""

    def __init__(self, name: str) -> None:
        super().__init__("", name)
        self.appendable = False
        self.memo: dict[bytes, str | TemplateError] = {}
        """Renderings of the work under way."""
        self._kept: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._size = 0

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        /,
        *,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """See :meth:`ChatTemplate.render`.

        Raises:
            TemplateError: The server refused the conversation.
            Wanted: The rendering has to be fetched first.
        """
        try:
            said = msgspec.json.encode([messages, tools, add_generation_prompt, kwargs])
        except (TypeError, ValueError, RecursionError) as fault:
            raise TemplateError(f"cannot be sent to the server ({fault})", where=self.name) from None
        key = blake2b(said, digest_size=16).digest()
        found = self.memo.get(key) or self._fresh(key)
        if found is None:
            raise Wanted(key, messages, tools, add_generation_prompt, kwargs)
        if isinstance(found, TemplateError):
            raise TemplateError(found.what, where=self.name)
        return found

    def keep(self, key: bytes, text: str) -> None:
        """Keep a rendering for the other questions of its turn: the decision, the call's prediction and its check ask for the same one."""
        if len(text) > KEPT_CHARACTERS // 8:
            return
        self._drop(key)
        self._kept[key] = (text, time.monotonic())
        self._size += len(text)
        while self._size > KEPT_CHARACTERS:
            self._drop(next(iter(self._kept)))

    def _fresh(self, key: bytes) -> str | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if time.monotonic() - found[1] > FRESH_S:
            self._drop(key)
            return None
        return found[0]

    def _drop(self, key: bytes) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= len(found[0])


async def drive(template: ChatTemplate, lock: threading.Lock, work: Callable[[], T], remote: Remote | None) -> T:
    """Run ``work``, which renders ``template``, fetching what it wants.

    Args:
        template: Any template; one that renders by itself wants nothing.
        lock: Held while ``work`` runs: it changes transcripts.
        work: Not asynchronous, and safe to run again after it was stopped by :class:`Wanted`.
        remote: The server to ask.

    Raises:
        EngineError: The server did not answer.
        TemplateError: From ``work``, or no end to what it wants.
    """
    memo: dict[bytes, str | TemplateError] = {}
    for _ in range(MOST):
        with lock:
            if isinstance(template, ServerTemplate):
                template.memo = memo
            try:
                return work()
            except Wanted as wanted:
                want = wanted
        assert remote is not None
        memo[want.key] = made = await rendered(want, remote)
        if isinstance(template, ServerTemplate) and isinstance(made, str):
            with lock:
                template.keep(want.key, made)
    raise TemplateError(f"wants more than {MOST} renderings", where=template.name)


async def rendered(want: Wanted, remote: Remote) -> str | TemplateError:
    """The server's rendering, or its refusal.

    Raises:
        EngineError: It did not answer, or has no such routes.
    """
    try:
        ids = await remote.chat_ids(want.messages, want.tools, want.kwargs, add_generation_prompt=want.add_generation_prompt)
    except BadRequest as refused:
        return TemplateError(refused.server_words or refused.what, where=remote.worker)
    return await remote.text(ids)


async def fetch(remote: Remote) -> ChatTemplate:
    """The model's template from its server: one that renders here where the server gives its source, else one that the server renders."""
    name = f"the template of {remote.model} at {remote.worker}"
    given = await remote.template()
    if given is not None:
        try:
            return ChatTemplate(given[0], name, given[1])
        except TemplateError:
            pass  # its source is not for us; the server can still render
    return ServerTemplate(name)

"""Calls that record their whole conversation anew: whose session they are, and which messages they share with the call before.

Messages are compared as they print (key order included, since prompts are printed), by digest: a later stage can then tell by identity
what is new in a prompt, and renders and tokenises only that.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from warmgate.replay.trace import Message

HELD_BYTES = 64 << 20
"""Memory of latest conversations held for sharing. Sessions that were silent longest are let go first."""

_DICT, _TEXT, _ENTRY = 232, 56, 128
"""Bytes of a small dictionary, of a short text beside its characters, of a message's digest and its places in lists (CPython)."""

HELD_TOOLS = 64
"""Distinct tool lists held for sharing."""

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Latest:
    """A session's latest messages with their digests and their size in memory."""

    digests: list[bytes]
    messages: list[Message]
    size: int


class _Printed(NamedTuple):
    digests: list[bytes]
    size: int


@dataclass(slots=True)
class Conversations:
    """The sessions of one trace. Costs one pass over each call's text, and 100 bytes a call.

    Attributes:
        inferred: Sessions that the trace does not name.
    """

    inferred: int = 0
    _latest: OrderedDict[str, _Latest] = field(default_factory=OrderedDict[str, _Latest])
    _held: int = 0
    _ends: dict[bytes, str] = field(default_factory=dict[bytes, str])
    _tools: OrderedDict[bytes, Sequence[dict[str, Any]]] = field(default_factory=OrderedDict[bytes, Sequence[dict[str, Any]]])

    def join(self, session: str | None, messages: list[Message]) -> tuple[str, list[Message]]:
        """Put a call into its session.

        Args:
            session: As recorded, or ``None`` to infer it: the session of the longest earlier call whose messages this one's begin with;
                failing that, of one that differs in its system prompt alone (a clock in it) and whose answer follows here; failing that,
                a new one.
            messages: The call's whole conversation.

        Returns:
            The session, and the messages, those that equal the session's previous call's at the same place being the same objects.
        """
        printed = _print(messages)
        if session is None:
            session = self._infer(messages, printed.digests)
        latest = self._latest.pop(session, None)
        if latest is not None:
            self._held -= latest.size
            shared = zip(latest.digests, printed.digests, latest.messages, messages, strict=False)
            same = [old if before == now else new for before, now, old, new in shared]
            messages = same + messages[len(same) :]
        self._latest[session] = _Latest(printed.digests, messages, printed.size)
        self._held += printed.size
        while self._held > HELD_BYTES and len(self._latest) > 1:
            self._held -= self._latest.popitem(last=False)[1].size
        return session, messages

    def tools(self, tools: list[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """``tools``, as the same object for every call that sent the same list."""
        if not tools:
            return ()
        digest = _digest(_bytes(tools))
        found = self._tools.pop(digest, tools)
        self._tools[digest] = found
        if len(self._tools) > HELD_TOOLS:
            self._tools.popitem(last=False)
        return found

    def _infer(self, messages: list[Message], digests: list[bytes]) -> str:
        exact = _chain(b"", digests)
        start = 1 if messages and messages[0].get("role") in ("system", "developer") else 0
        loose = _chain(b"behind any system prompt", digests[start:])
        session = next((self._ends[link] for link in reversed(exact) if link in self._ends), None)
        if session is None:
            # the answer follows: not another agent's first call on the same task
            grown = (link for i, link in enumerate(loose[:-1]) if messages[start + i + 1].get("role") == "assistant")
            session = next((self._ends[link] for link in reversed(list(grown)) if link in self._ends), None)
        if session is None:
            self.inferred += 1
            session = f"conversation-{self.inferred}"
        for chain in (exact, loose):
            if chain:
                self._ends[chain[-1]] = session
        return session

    def note(self) -> list[str]:
        """What a reader must say about its sessions."""
        if not self.inferred:
            return []
        return [
            f"sessions inferred, since the trace does not name them: {self.inferred:,}; a call that goes on from an earlier call's "
            "messages counts as the same one"
        ]


def _print(messages: Sequence[Message]) -> _Printed:
    digests: list[bytes] = []
    size = 0
    for message in messages:
        data = _bytes(message)
        # inside a JSON text every quotation mark has a backslash before it, so these count objects and texts, not what texts hold
        size += len(data) + _DICT * data.count(b'{"') + _TEXT * data.count(b':"') + _ENTRY
        digests.append(_digest(data))
    return _Printed(digests, size)


def _chain(seed: bytes, digests: Sequence[bytes]) -> list[bytes]:
    """One digest for each prefix."""
    chain: list[bytes] = []
    for digest in digests:
        seed = _digest(seed + digest)
        chain.append(seed)
    return chain


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _bytes(value: Any) -> bytes:
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError):  # integers of more than 64 bits, lone surrogates
        return json.dumps(value).encode()

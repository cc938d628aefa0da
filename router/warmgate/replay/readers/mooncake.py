"""Mooncake's request traces: block hashes and lengths, no text, no session.

A line is ``{timestamp, input_length, output_length, hash_ids}``: milliseconds since the first request, tokens, and one id a block of 512
tokens, the last of which may be partial. An id names a block and all before it, and is comparable throughout the trace (the trace
description of "Mooncake: Trading More Storage for Less Computation", FAST 2025). Qwen's Bailian traces have the same lines with
``chat_id`` and ``parent_chat_id``; their blocks are 16 tokens and their clock counts seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._blocks import block_prompt, needed
from warmgate.replay.readers._fields import Unusable, count, key, mapping, mostly, records, samples, text
from warmgate.replay.trace import BlockPrompt, Call, Usage

BLOCK_SIZE = 512
BAILIAN_BLOCK_SIZE = 16

MIN_SHARED = 2
"""Full blocks two calls must share to count as one conversation: the first is a system prompt that all conversations share."""


class _Mooncake:
    name = "mooncake"
    title = "Mooncake request trace (JSONL)"

    def recognises(self, head: Head) -> bool:
        return mostly("hash_ids" in row and "input_length" in row for row in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Calls in file order, which is the order of time."""
        sessions = _Sessions()
        for line, record in records(source):
            row = mapping(record)
            try:
                tokens = needed(row.get("input_length"), "input_length")
                block_size = BAILIAN_BLOCK_SIZE if "chat_id" in row else BLOCK_SIZE
                prompt = block_prompt(row.get("hash_ids"), tokens, block_size)
                output = count(row.get("output_length"), "output_length")
            except Unusable as fault:
                source.skipped(line, fault.why)
                continue
            yield Call(
                session=sessions.of(row, prompt),
                model=text(row.get("model")) or "",
                prompt=prompt,
                usage=Usage(tokens, None, output),
                started=_started(row),
                line=line,
            )
        if sessions.inferred:
            source.notes.append(
                f"sessions inferred, since the trace does not name them: {sessions.inferred:,}; a call that goes on from an earlier "
                f"call's whole prompt (at least {MIN_SHARED} blocks) counts as the same one"
            )


class _Sessions:
    """Which conversation a call belongs to: as recorded, else inferred in one look-up a block."""

    def __init__(self) -> None:
        self.inferred = 0
        self._ends: dict[int, tuple[int, str]] = {}  # id of an earlier call's last full block -> how many blocks, whose
        self._chats: dict[str, str] = {}

    def of(self, row: dict[str, Any], prompt: BlockPrompt) -> str:
        named = key(row.get("session_id"))
        if named is not None:
            return named
        chat = key(row.get("chat_id"))
        if chat is not None:
            session = self._chats.get(key(row.get("parent_chat_id")) or "", chat)
            self._chats[chat] = session
            return session
        return self._infer(prompt)

    def _infer(self, prompt: BlockPrompt) -> str:
        ids, ends = prompt.hashes, self._ends
        full = min(len(ids), prompt.tokens // prompt.block_size)
        session = None
        for blocks in range(full, MIN_SHARED - 1, -1):
            found = ends.get(ids[blocks - 1])
            if found is not None and found[0] == blocks:
                session = found[1]
                break
        if session is None:
            self.inferred += 1
            session = f"conversation-{self.inferred}"
        if full >= MIN_SHARED:
            ends[ids[full - 1]] = (full, session)
        return session


def _started(row: dict[str, Any]) -> float | None:
    value = row.get("timestamp")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not 0 <= value < 1e15:
        return None
    return float(value) if "chat_id" in row else value / 1000


READER: Reader = _Mooncake()

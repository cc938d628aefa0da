"""Codex's rollout files (``~/.codex/sessions/…/rollout-*.jsonl``).

A line is ``{timestamp, type, payload}``. An ``event_msg`` of type ``token_count`` follows each LLM call: ``info.last_token_usage`` is
that call's usage (``input_tokens`` hold the cached ones), ``info.total_token_usage`` the running sum. Codex repeats the event when
only rate limits changed; then the sum stays, and it is no call. ``session_meta`` names the session, ``turn_context`` the model. Tool
schemas are not in the file, so no prompt can be rebuilt from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._fields import Unusable, first_text, mapping, mostly, records, samples, seconds
from warmgate.replay.readers._usage import usage
from warmgate.replay.trace import Call, Usage

NOTE = "Codex records no tool schemas: its calls are known by their usage alone"

_TYPES = ("session_meta", "turn_context", "event_msg", "response_item", "compacted")


class _Codex:
    name = "codex"
    title = "Codex rollout (JSONL)"

    def recognises(self, head: Head) -> bool:
        return mostly(row.get("type") in _TYPES and isinstance(row.get("payload"), dict) for row in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """One call a change of the running sum, in file order."""
        session, model = "session", ""
        total: Any = None
        found = False
        for line, record in records(source):
            row = mapping(record)
            payload = mapping(row.get("payload"))
            kind = row.get("type")
            if kind == "session_meta":
                named = first_text(payload.get("id"), payload.get("session_id"))
                if named is not None and named != session:
                    session, total = named, None
            elif kind == "turn_context":
                model = first_text(payload.get("model")) or model
            elif kind == "event_msg" and payload.get("type") == "token_count":
                info = mapping(payload.get("info"))
                running = info.get("total_token_usage")
                if not info or (running is not None and running == total):
                    continue  # rate limits alone
                total = running
                try:
                    used = _usage(info)
                except Unusable as fault:
                    source.skipped(line, fault.why)
                    continue
                if used.prompt_tokens is not None:  # after a compaction Codex estimates the context anew, without a call
                    found = True
                    yield Call(session, model, None, used, ended=seconds(row.get("timestamp")), line=line)
        if found:
            source.notes.append(NOTE)


def _usage(info: dict[str, Any]) -> Usage:
    last = mapping(info.get("last_token_usage"))
    if "input_tokens" not in last:
        raise Unusable("its token count has no last_token_usage.input_tokens")
    return usage(last)


READER: Reader = _Codex()

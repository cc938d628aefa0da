"""Claude Code's session files (``~/.claude/projects/…/*.jsonl``), and its ``--output-format stream-json``.

A line is one event. Those of type ``assistant`` carry an Anthropic ``message``, one line per content block of it, each with the usage
of the whole message as far as it was known then: calls are told apart by ``message.id``, and the most complete usage counts.
Anthropic's ``input_tokens`` leave out what was read from or written to the cache. Sub-agents have ``isSidechain``, and in newer
files an ``agentId``. System prompt and tool schemas are not in the file, so no prompt can be rebuilt from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._fields import Unusable, first_text, mapping, records, samples, seconds, text
from warmgate.replay.readers._usage import usage
from warmgate.replay.trace import Call, Usage

NOTE = "Claude Code records neither system prompt nor tool schemas: its calls are known by their usage alone"


class _ClaudeCode:
    name = "claude_code"
    title = "Claude Code session (JSONL)"

    def recognises(self, head: Head) -> bool:
        return any(map(_telling, samples(head)))

    def read(self, source: Source) -> Iterator[Call]:
        """One call a message, in the order in which the messages began. Held until the file ends: usage grows line by line."""
        calls: dict[str, Call] = {}
        agents = _Agents()
        for line, record in records(source):
            row = mapping(record)
            session = agents.session(row)
            message = mapping(row.get("message"))
            if row.get("type") != "assistant" or message.get("model") == "<synthetic>" or row.get("isApiErrorMessage"):
                continue
            try:
                used = usage(message.get("usage"))
                if used.prompt_tokens is None:
                    raise Unusable("it is an answer without usage")
            except Unusable as fault:
                source.skipped(line, fault.why)
                continue
            ident = first_text(message.get("id"), row.get("requestId"), row.get("uuid")) or f"line {line}"
            call = calls.get(ident)
            if call is None:
                call = calls[ident] = Call(session, text(message.get("model")) or "", None, used, line=line)
            elif _size(used) >= _size(call.usage):
                call.usage = used
            call.ended = seconds(row.get("timestamp")) or call.ended
        if calls:
            source.notes.append(NOTE)
        yield from calls.values()


def _telling(row: dict[str, Any]) -> bool:
    """Whether a line is one that only Claude Code writes."""
    kind = row.get("type")
    if kind in ("user", "assistant"):
        return isinstance(row.get("message"), dict) and ("sessionId" in row or ("session_id" in row and "parent_tool_use_id" in row))
    return (kind == "summary" and "leafUuid" in row) or (kind == "file-history-snapshot" and "snapshot" in row)


def _size(used: Usage) -> int:
    return (used.prompt_tokens or 0) + (used.output_tokens or 0)


class _Agents:
    """Which session a line belongs to: the user's, or that of a sub-agent."""

    def __init__(self) -> None:
        self._chains: dict[str, str] = {}  # uuid of a sub-agent's event -> its session, for files without agentId
        self._unnamed = 0

    def session(self, row: dict[str, Any]) -> str:
        session = first_text(row.get("sessionId"), row.get("session_id")) or "session"
        agent = first_text(row.get("agentId"), row.get("parent_tool_use_id"))
        if agent is not None:
            return f"{session}/{agent}"
        if row.get("isSidechain") is not True:
            return session
        # a parent stands before its children, so one look-up suffices, and a cycle cannot be walked into
        chain = self._chains.get(text(row.get("parentUuid")) or "")
        if chain is None:
            self._unnamed += 1
            chain = f"{session}/sidechain-{self._unnamed}"
        if (uuid := text(row.get("uuid"))) is not None:
            self._chains[uuid] = chain
        return chain


READER: Reader = _ClaudeCode()

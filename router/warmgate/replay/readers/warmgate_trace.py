"""Our own traces, ``warmgate.trace/1`` (docs/trace-format.md): block hashes by default, text where the writer was asked for it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from warmgate.errors import TraceError
from warmgate.prefix.survival import CAUSES
from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._blocks import MAX_BLOCK_SIZE, MAX_BLOCKS, Front
from warmgate.replay.readers._fields import Unusable, count, mapping, records, samples, text
from warmgate.replay.readers._sharing import Conversations
from warmgate.replay.readers._usage import made
from warmgate.replay.record import SCHEMA, Header, Record, unpack
from warmgate.replay.trace import MAX_QUESTION_TOKENS, MAX_QUESTIONS, BlockPrompt, Call, Stored, TextPrompt

_FAMILY = "warmgate.trace/"
_NONE = Front(array("Q"), 0)


class _WarmgateTrace:
    name = "warmgate_trace"
    title = "warmgate trace (JSONL)"

    def recognises(self, head: Head) -> bool:
        return any((text(row.get("schema")) or "").startswith(_FAMILY) for row in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Calls in file order. What a gate read before a call is summed into that call's questions, and is stored before it.

        Raises:
            TraceError: A header is broken, or of a version this one does not know.
        """
        file = _File()
        for line, record in records(source):
            row = mapping(record)
            if "schema" in row:
                file.begin(_header(row, f"{source.skipped.path}:{line}"))
                continue
            try:
                call = file.take(row, line)
            except Unusable as fault:
                source.skipped(line, fault.why)
                continue
            if call is not None:
                yield call
        if file.pending:
            source.notes.append(f"sessions that end with gate reads no call followed: {len(file.pending):,}; their questions are left out")


class _File:
    """What later records need of earlier ones: the header, each session's latest blocks, and the reads no call has followed yet."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.pending: dict[str, tuple[int, int]] = {}  # session -> questions, their tokens
        self._blocks: dict[str, tuple[int, Front]] = {}
        self._stored: list[Stored] = []
        self._conversations = Conversations()

    def begin(self, header: Header) -> None:
        """Another writer went on here; its blocks may have another size."""
        self.header = header
        self._blocks.clear()

    def take(self, row: dict[str, Any], line: int) -> Call | None:
        """A call, or ``None`` for a read.

        Raises:
            Unusable: The record is broken, or counts on one that is.
        """
        if self.header is None:
            raise Unusable("it stands before any header")
        try:
            record = msgspec.convert(row, Record)
        except msgspec.ValidationError as fault:
            raise Unusable(f"it is no record ({fault})") from None
        hashes = self._hashes(record)
        used = made(
            count(record.prompt_tokens, "prompt_tokens"),
            count(record.cached_tokens, "cached_tokens"),
            count(record.output_tokens, "output_tokens"),
        )
        questions, question_tokens = count(record.questions, "questions"), count(record.question_tokens, "question_tokens")
        if record.kind == "read":
            asked, tokens = self.pending.get(record.session, (0, 0))
            asked, tokens = asked + (questions or 0), tokens + (question_tokens or 0)
            if asked > MAX_QUESTIONS or tokens > MAX_QUESTION_TOKENS:
                raise Unusable(f"with it, more than {MAX_QUESTIONS:,} questions or {MAX_QUESTION_TOKENS:,} tokens of them precede one call")
            self.pending[record.session] = (asked, tokens)
            prompt = self._prompt(record, hashes, self.header.block_size)
            if isinstance(prompt, BlockPrompt):
                self._stored.append(Stored(record.model, record.namespace, prompt, record.worker))
            return None
        shared, survived = count(record.shared, "shared"), count(record.survived, "survived")
        for name, value in (("shared", shared), ("survived", survived)):
            if value is not None and value > (used.prompt_tokens or 0):
                raise Unusable(f"{value:,} {name} tokens of a prompt of {used.prompt_tokens or 0:,}")
        asked, tokens = self.pending.pop(record.session, (0, 0))
        stored, self._stored = self._stored, []
        return Call(
            session=record.session,
            model=record.model,
            prompt=self._prompt(record, hashes, self.header.block_size),
            usage=used,
            namespace=record.namespace,
            response=record.response,
            started=record.started,
            ended=record.ended,
            worker=record.worker,
            line=line,
            questions=asked or questions,
            question_tokens=tokens or question_tokens,
            stored=stored,
            shared=shared,
            survived=survived,
            cause=record.cause if record.cause in CAUSES else None,
        )

    def _hashes(self, record: Record) -> Front:
        """All hashes of a record, the kept ones before its own."""
        index, before = self._blocks.pop(record.session, (-1, _NONE))
        if record.keep < 0 or record.index < 0:
            raise Unusable("its keep or its index is negative")
        if record.keep and (record.index != index + 1 or not 0 < record.keep <= len(before)):
            raise Unusable("the record of its session that it goes on from is missing")
        if len(record.blocks) // 16 + record.keep > MAX_BLOCKS:
            raise Unusable(f"it has more than {MAX_BLOCKS:,} blocks")
        try:
            own = unpack(record.blocks)
        except ValueError:
            raise Unusable("its blocks are not hashes of 16 hex digits") from None
        hashes = before.kept(record.keep).then(own) if record.keep else Front(own, len(own))
        self._blocks[record.session] = (record.index, hashes)
        return hashes

    def _prompt(self, record: Record, hashes: Front, block_size: int) -> BlockPrompt | TextPrompt | None:
        if record.messages:
            _, messages = self._conversations.join(record.session, list(record.messages))
            tools = self._conversations.tools([dict(tool) for tool in record.tools or ()])
            return TextPrompt(messages, tools, dict(record.template_kwargs or {}))
        if record.prompt_tokens is None:
            if hashes:
                raise Unusable("it has blocks but no prompt_tokens")
            return None
        if len(hashes) > record.prompt_tokens // block_size:
            raise Unusable("it has more blocks than its tokens fill")
        if hashes and len(hashes) < record.prompt_tokens // block_size:
            raise Unusable(f"it has {len(hashes):,} blocks, but its tokens fill {record.prompt_tokens // block_size:,}")
        return BlockPrompt(block_size, hashes, record.prompt_tokens) if hashes or record.prompt_tokens < block_size else None


def _header(row: dict[str, Any], where: str) -> Header:
    if row["schema"] != SCHEMA:
        raise TraceError(f"schema {str(row['schema'])[:40]!r} is unknown", where=where, mend=f"this version reads {SCHEMA}")
    try:
        header = msgspec.convert(row, Header)
    except msgspec.ValidationError as fault:
        raise TraceError(f"its header is broken ({fault})", where=where) from None
    if not 0 < header.block_size <= MAX_BLOCK_SIZE:
        raise TraceError(f"block_size {header.block_size} is out of range", where=where)
    return header


READER: Reader = _WarmgateTrace()

"""Writing ``warmgate.trace/1``: our own trace of calls and gate reads, block hashes instead of text (docs/trace-format.md).

Sessions and namespaces are hashed with a salt, prompts are block hashes; text is written only by a writer that was asked for it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from warmgate.errors import OutputError
from warmgate.prefix.blocks import common_prefix

SCHEMA = "warmgate.trace/1"

BUFFER = 64 << 10
"""Bytes held back before they are written; :meth:`TraceWriter.flush` writes them at once."""

WHOLE_EVERY = 64
"""Every so many records of a session name all their blocks, so that a broken line costs a few records and not the rest of the session."""

HELD_SESSIONS = 4096
"""Sessions whose latest hashes are remembered, so that a record names only its new blocks. Others write all of theirs."""


class Header(msgspec.Struct, omit_defaults=True):
    """First line of a file.

    Attributes:
        schema: :data:`SCHEMA`.
        block_size: Tokens per block.
        hash: What made the block hashes, for people (``sha256_cbor`` …); files with different ones cannot be compared.
        content: ``hashes``, or ``text`` where prompts are written too.
    """

    schema: str
    block_size: int
    hash: str = ""
    content: Literal["hashes", "text"] = "hashes"


class Record(msgspec.Struct, omit_defaults=True):
    """One LLM call, or one read of a gate. Counts are tokens, times seconds since 1970; what is unknown is left out.

    Attributes:
        session: Salted hash of the session key.
        index: Number of the record within its session and file, from 0.
        kind: ``call`` (the agent's own), or ``read`` (one engine request of a gate).
        model: Model name.
        namespace: Salted hash of what else separates caches (LoRA, cache salt), or empty.
        keep: Leading blocks that are the same as in record ``index - 1`` of the session.
        blocks: The hashes of the other full blocks, 16 hex digits each, without anything between.
        prompt_tokens: All tokens of the prompt.
        cached_tokens: Those that came from the prefix cache.
        output_tokens: Generated tokens.
        worker: Who served it.
        started: When it was sent.
        ended: When the answer was complete.
        decision: Id of the gate decision a read belongs to, or that a call followed.
        questions: Questions of a read.
        question_tokens: Tokens of these questions alone.
        shared: Tokens shared with sequences stored before it was sent, as the gate knew: it hears of generated tokens and of other clients'
            prompts, which no record names.
        survived: Predicted cached tokens, where none were reported.
        cause: Why reusable tokens were not cached, as the gate knew.
        messages: With ``content: text``: the prompt's messages, as sent.
        tools: With ``content: text``: tool schemas, as sent.
        template_kwargs: With ``content: text``: arguments of the chat template.
        response: With ``content: text``: the assistant's message.
    """

    session: str
    index: int
    kind: Literal["call", "read"] = "call"
    model: str = ""
    namespace: str = ""
    keep: int = 0
    blocks: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    worker: str | None = None
    started: float | None = None
    ended: float | None = None
    decision: str | None = None
    questions: int | None = None
    question_tokens: int | None = None
    shared: int | None = None
    survived: int | None = None
    cause: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] | None = None
    response: Mapping[str, Any] | None = None


def pack(hashes: array[int]) -> str:
    """Hashes (``array("Q")``) as :attr:`Record.blocks` has them."""
    words = hashes[:]
    if sys.byteorder == "little":  # so that the text reads as the number is written
        words.byteswap()
    return words.tobytes().hex()


def unpack(blocks: str) -> array[int]:
    """The other way round.

    Raises:
        ValueError: No multiple of 16 hex digits.
    """
    words = array("Q")
    words.frombytes(bytes.fromhex(blocks))
    if sys.byteorder == "little":
        words.byteswap()
    return words


class TraceWriter:
    """Appends records to a file. Safe to use from several threads; one process writes a path at a time.

    A line is written whole. After a crash at most the last one is torn; readers skip it, and the next writer begins on a line of its
    own. The file and its rotated predecessors are readable and writable by their owner alone.

    Args:
        path: ``trace.jsonl``; rotated files become ``trace.1.jsonl`` (the youngest), ``trace.2.jsonl``, …
        block_size: Tokens per block of the hashes to come.
        text: Write prompts and answers too. Without it they are dropped, whatever :meth:`append` is given.
        hash_name: See :attr:`Header.hash`.
        salt: Secret that session keys and namespaces are hashed with; drawn anew without it, so that ids of two runs cannot be linked.
        max_bytes: Size at which the file is rotated; 0 is never.
        keep: Rotated files to keep.

    Raises:
        OutputError: The file cannot be opened, or another process writes it.
    """

    def __init__(
        self,
        path: str | Path,
        block_size: int,
        *,
        text: bool = False,
        hash_name: str = "",
        salt: bytes | None = None,
        max_bytes: int = 256 << 20,
        keep: int = 3,
    ) -> None:
        self._path = Path(path)
        self._header = Header(SCHEMA, block_size, hash_name, "text" if text else "hashes")
        self._text = text
        self._salt = (secrets.token_bytes(16) if salt is None else salt)[:64]
        self._max_bytes = max_bytes
        self._keep = keep
        self._lock = Lock()
        self._encoder = msgspec.json.Encoder(enc_hook=str)
        self._latest: OrderedDict[str, tuple[int, array[int]]] = OrderedDict()
        self._buffer = bytearray()
        self._size = 0
        self._fd = -1
        self._closed = False
        self._open()

    def append(
        self,
        session: str,
        hashes: Sequence[int] = (),
        *,
        kind: Literal["call", "read"] = "call",
        model: str = "",
        namespace: str = "",
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        worker: str | None = None,
        started: float | None = None,
        ended: float | None = None,
        decision: str | None = None,
        questions: int | None = None,
        question_tokens: int | None = None,
        shared: int | None = None,
        survived: int | None = None,
        cause: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one record; ``session`` and ``namespace`` in the clear, ``hashes`` of the prompt's full blocks from its front.

        Only the low 64 bits of a hash are written, as vLLM announces them. The other arguments are :class:`Record`'s.

        Raises:
            OutputError: It cannot be written. What was not yet written is lost, the file stays good.
        """
        with self._lock:
            self._ready()
            ident = self._hashed(session)
            words = array("Q", [value & 0xFFFFFFFFFFFFFFFF for value in hashes])
            index, before = self._latest.pop(ident, (-1, array("Q")))
            kept = common_prefix(before, words) if (index + 1) % WHOLE_EVERY else 0
            record = Record(
                session=ident,
                index=index + 1,
                kind=kind,
                model=model,
                namespace=self._hashed(namespace) if namespace else "",
                keep=kept,
                blocks=pack(words[kept:]),
                prompt_tokens=prompt_tokens,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
                worker=worker,
                started=started,
                ended=ended,
                decision=decision,
                questions=questions,
                question_tokens=question_tokens,
                shared=shared,
                survived=survived,
                cause=cause,
                messages=messages if self._text else None,
                tools=tools if self._text else None,
                template_kwargs=template_kwargs if self._text else None,
                response=response if self._text else None,
            )
            if self._size and self._max_bytes and self._size + len(self._buffer) >= self._max_bytes:
                self._rotate()
                record.index, record.keep, record.blocks = 0, 0, pack(words)
            try:
                line = self._encoder.encode(record)
            except (TypeError, ValueError, OverflowError, RecursionError) as fault:
                raise OutputError(f"a record cannot be written as JSON ({fault})", where=str(self._path)) from fault
            self._latest[ident] = (record.index, words)
            if len(self._latest) > HELD_SESSIONS:
                self._latest.popitem(last=False)
            self._buffer += line + b"\n"
            if len(self._buffer) >= BUFFER:
                self._write()

    def flush(self) -> None:
        """Hand everything to the operating system.

        Raises:
            OutputError: It cannot be written.
        """
        with self._lock:
            self._ready()
            self._write()

    def close(self) -> None:
        """Flush and close; closing twice does nothing.

        Raises:
            OutputError: The last records cannot be written.
        """
        with self._lock:
            self._closed = True
            if self._fd >= 0:
                try:
                    self._write()
                finally:
                    self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _hashed(self, key: str) -> str:
        return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=self._salt).hexdigest()

    def _ready(self) -> None:
        if self._closed:
            raise OutputError("the trace is closed", where=str(self._path))
        if self._fd < 0:  # a rotation failed; perhaps there is room again
            self._open()

    def _release(self) -> None:
        os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        fd, torn = open_record(self._path)
        self._fd, self._size = fd, os.fstat(fd).st_size
        # every writer leaves its own header: block size and content may have changed since
        self._buffer += (b"\n" if torn else b"") + self._encoder.encode(self._header) + b"\n"
        try:
            self._write()
        except OutputError:
            self._buffer.clear()
            self._release()
            raise

    def _write(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        except OSError as fault:
            self._size += done
            self._latest.clear()  # the next record of each session must not count on a lost one
            self._buffer += b"\n" if done else b""
            raise OutputError(f"cannot be written ({fault.strerror})", where=str(self._path)) from fault
        self._size += done

    def _rotate(self) -> None:
        self._write()
        self._release()
        self._latest.clear()
        try:
            for number in range(self._keep, 0, -1):
                older = self._path if number == 1 else self._numbered(number - 1)
                if older.exists():
                    older.replace(self._numbered(number))
            if not self._keep:
                self._path.unlink(missing_ok=True)
        except OSError as fault:
            raise OutputError(f"cannot be rotated ({fault.strerror})", where=str(self._path)) from fault
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}.{number}{self._path.suffix}")


def open_record(path: Path) -> tuple[int, bool]:
    """A file of records to append to, this process's alone, and whether its last line was torn off by a crash.

    Raises:
        OutputError: It cannot be written, is no regular file, or another process writes it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = -1
    try:
        fd = os.open(path, flags, 0o600)
        if not S_ISREG(os.fstat(fd).st_mode):  # changing the mode of a device would hurt others
            raise OutputError("is no regular file", where=str(path))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(fd, 0o600)
        size = os.fstat(fd).st_size
        return fd, size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    except (OSError, OutputError) as fault:
        if fd >= 0:
            os.close(fd)
        if isinstance(fault, OutputError):
            raise
        if isinstance(fault, BlockingIOError):
            raise OutputError("another process writes it", where=str(path), mend="give each process a path of its own") from fault
        raise OutputError(f"cannot be written ({fault.strerror})", where=str(path)) from fault

"""Opening a trace: what it is, told by content, and its records as a stream that never outgrows memory.

Files larger than memory are read line by line; only a trace that is one JSON document is held whole, up to :data:`MAX_DOCUMENT`.
Text of that length may hold values that take thirty times as much memory, so :mod:`warmgate.replay.parsing` weighs it first.

Only regular files are opened. Devices, sockets and pipes would block, never end, or set something off; standard input (``-``) reads them.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from stat import S_ISDIR, S_ISREG
from typing import Any, BinaryIO, cast

from warmgate.errors import TraceError
from warmgate.replay.figures import plural
from warmgate.replay.names import STDIN, expand, nothing, shown
from warmgate.replay.parsing import DOCUMENT_OBJECTS, NotJson, TooManyValues, parse
from warmgate.replay.readers import readers
from warmgate.replay.readers._base import Head, Reader, Skipped, Source
from warmgate.replay.readers._fields import items, mapping
from warmgate.replay.trace import Call

__all__ = ["MAX_DOCUMENT", "MAX_LINE", "MAX_STDIN", "expand", "iter_json_lines", "open_trace"]

MAX_LINE = 64 << 20
"""Longest line of JSON Lines, in bytes (a prompt of a million tokens has about 5 MiB). Longer ones are skipped without being loaded."""

MAX_DOCUMENT = MAX_LINE
"""Largest trace that is one JSON document, in bytes, uncompressed."""

MAX_STDIN = 16 << 30
"""Most bytes taken from standard input; they are kept in a temporary file, since formats are told apart before reading begins."""

_SPOOL = 16 << 20
"""Bytes of standard input kept in memory before they go to disk."""

_HEAD_LINES = 50
_HEAD_BYTES = 1 << 20
"""How much of a trace is looked at to tell its format: so many good lines, or so many bytes and three lines."""
_HEAD_WHOLE = 32 << 20
"""Bytes after which two good lines are enough: such lines are held in memory together."""

_BOM = b"\xef\xbb\xbf"
_BOMB_BYTES, _BOMB_LINES, _BOMB_RATIO = 512 << 20, 8 << 20, 200
"""From so many bytes or lines on, a gzip that grew by more than this is mere repetition. Recorded agent traces grow by 3 to 40 times."""

_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)


@contextmanager
def open_trace(name: str, say: Callable[[str], None]) -> Generator[tuple[Reader, Source]]:
    """Open a trace and find who can read it.

    Args:
        name: A file, plain or gzip (told by its first bytes), or ``-`` for standard input.
        say: Receives a line about each of the first few skipped records, and at the end one about the rest.

    Yields:
        The reader, which raises TraceError when it finds no call at all, and what to hand to its ``read``.

    Raises:
        TraceError: It cannot be opened, is empty, or is no format known here; or its records are too much for the machine.
    """
    where = "<stdin>" if name == STDIN else shown(name)
    try:
        with _opened(name, where, say) as opened:
            yield opened
    except MemoryError as fault:
        traceback.clear_frames(fault.__traceback__)  # they hold what there was no room for, and with it none for the line below
        why, mend = "needs more memory than there is", "split it"
    except RecursionError:
        why, mend = "is nested too deeply", None
    else:
        return
    raise TraceError(why, where=where, mend=mend)


@contextmanager
def _opened(name: str, where: str, say: Callable[[str], None]) -> Generator[tuple[Reader, Source]]:
    with ExitStack() as stack:
        try:
            stream = _decompressed(stack.enter_context(_open_stdin() if name == STDIN else _open_file(name)), stack)
            head = _head(stream, where)
            stream.seek(0)
        except (OSError, EOFError, zlib.error) as fault:
            raise _unreadable(where, fault) from fault
        source = Source(name, head, stream, Skipped(where, say))
        reader = next((one for one in readers() if one.recognises(head)), None)
        holds = _described(head)
        if reader is None:
            raise TraceError(f"is no trace format known here ({holds})", where=where, mend=_formats())
        if head.document is None:  # they will be read again: long ones would be in memory twice
            head.lines.clear()
        yield _AtLeastOneCall(reader, holds), source
        if (more := source.skipped.count - source.skipped.shown) > 0:
            say(f"{where}: {more:,} more skipped")


def iter_json_lines(source: Source) -> Iterator[tuple[int, Any]]:
    """Values of a JSON Lines trace with their line numbers (from 1), one line in memory at a time.

    A line that is no JSON, or too long, is reported to ``source.skipped``; blank lines are passed over.

    Raises:
        TraceError: Reading fails midway: a broken gzip, a failing disk.
    """
    number = 0
    try:
        for number, line in _lines(source.stream):
            if line is None:
                source.skipped(number, f"it is longer than {MAX_LINE >> 20} MiB")
                continue
            try:
                value = parse(line)
            except NotJson as fault:
                source.skipped(number, fault.why)
                continue
            yield number, value
    except (OSError, EOFError, zlib.error) as fault:
        raise _unreadable(f"{source.skipped.path}:{number + 1}", fault) from fault


def _open_file(name: str) -> BinaryIO:
    """Open a regular file. Nothing else is even opened."""
    where = shown(name)
    try:
        mode = os.stat(name).st_mode  # noqa: PTH116 -- a Path takes "" for "."
    except (ValueError, FileNotFoundError, NotADirectoryError):  # a NUL in the name
        raise TraceError(nothing(name), where=where) from None
    if S_ISDIR(mode):
        with os.scandir(name):  # says why, where it could not be listed
            raise TraceError(nothing(name), where=where)
    # what looks like a file may still block its reader (/proc/kmsg), or have become a pipe since
    if S_ISREG(mode):
        file = open(name, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))  # noqa: SIM115 -- the caller closes it
        with ExitStack() as stack:
            stack.push(file)
            if S_ISREG(os.fstat(file.fileno()).st_mode):
                os.pread(file.fileno(), 1, 0)  # nothing there yet is a fault, not an end
                stack.pop_all()
                return file
    raise TraceError("is no regular file", where=where, mend="pipe it in and name it `-`")


def _open_stdin() -> BinaryIO:
    """A rewindable copy of standard input.

    Raises:
        TraceError: It is closed, or longer than :data:`MAX_STDIN`; or there is no room for the copy.
    """
    given = cast("Any", sys.stdin)  # None where the process was started without one
    if given is None or given.closed:
        raise TraceError("standard input is closed", where="<stdin>")
    spool = tempfile.SpooledTemporaryFile(_SPOOL)  # noqa: SIM115 -- the caller closes it
    try:
        size = 0
        while chunk := given.buffer.read(1 << 20):
            size += len(chunk)
            if size > MAX_STDIN:
                raise TraceError(f"standard input goes on after {MAX_STDIN >> 20:,} MiB", where="<stdin>", mend="write it to a file first")
            _keep(spool, chunk)
        spool.seek(0)
    except BaseException:
        with suppress(OSError):  # what could not be written fails to be flushed once more
            spool.close()
        raise
    return cast("BinaryIO", spool)


def _compressed(stream: object) -> int | None:
    """Bytes that a gzip has taken from the file behind it so far; ``None`` for what is no gzip."""
    return int(cast("Any", stream).fileobj.tell()) if isinstance(stream, gzip.GzipFile) else None


def _keep(spool: tempfile.SpooledTemporaryFile[bytes], chunk: bytes) -> None:
    try:
        spool.write(chunk)
        spool.flush()
    except OSError as fault:
        try:
            folder = tempfile.gettempdir()
        except OSError:  # there is none
            folder = "a temporary directory"
        raise TraceError(
            f"standard input cannot be kept in {folder} ({fault.strerror or fault})",
            where="<stdin>",
            mend="set TMPDIR to a directory with room, or name the file instead of `-`",
        ) from fault


def _decompressed(raw: BinaryIO, stack: ExitStack) -> BinaryIO:
    magic = raw.read(2)
    raw.seek(0)
    return cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb"))) if magic == b"\x1f\x8b" else raw


def _unreadable(where: str, fault: Exception) -> TraceError:
    if isinstance(fault, _BROKEN_GZIP):
        return TraceError(f"its gzip data is broken ({fault})", where=where, mend="copy or download it again")
    reason = fault.strerror if isinstance(fault, OSError) else None
    return TraceError(f"cannot be read ({reason or fault})", where=where)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Lines that are not blank with their numbers; ``None`` for one that is longer than :data:`MAX_LINE`.

    Raises:
        BadGzipFile: It goes on and on for what it takes on disk.
    """
    number = 0
    size, looked = 0, _BOMB_BYTES
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        size += len(line)
        if size > looked or number & (_BOMB_LINES - 1) == 0:
            looked = max(looked, size + (_BOMB_BYTES >> 2))
            if (taken := _compressed(stream)) is not None and size > _BOMB_RATIO * taken:
                raise gzip.BadGzipFile(f"it grows to more than {_BOMB_RATIO} times its size")
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            line = b""
            while chunk := stream.readline(1 << 20):
                if chunk.endswith(b"\n"):
                    break
            yield number, None
        elif (line := line.removeprefix(_BOM)) and not line.isspace():
            yield number, line


def _head(stream: BinaryIO, where: str) -> Head:
    """Look at the start of a trace. Two neighbouring lines that are each a JSON value make it JSON Lines, whatever else is broken.

    Nothing less does: in one document spread over lines a comma or a bracket stands between any two values.

    Raises:
        TraceError: It is empty, or no JSON.
    """
    values: list[Any] = []
    faults: list[tuple[int, NotJson]] = []
    size = 0
    neighbours = before = False
    ended = True
    for number, line in _lines(stream):
        good = False
        try:
            if line is None:
                raise NotJson(f"it is longer than {MAX_LINE >> 20} MiB")
            size += len(line)
            values.append(parse(line))
            good = True
        except NotJson as fault:
            faults.append((number, fault))
        neighbours |= before and good
        before = good
        enough = len(values) >= _HEAD_LINES or size >= _HEAD_WHOLE
        if (neighbours and enough) or (size >= _HEAD_BYTES and len(values) + len(faults) >= 3):
            ended = False
            break
    if not values and not faults:
        raise TraceError("is empty", where=where, mend=_formats())
    if ended and len(values) == 1 and not faults:
        return Head(values[0], values)
    if neighbours:
        return Head(lines=values)
    try:
        return Head(_document(stream, where, faults))
    except TraceError:
        if values and (len(values) >= len(faults) or not _opens(stream)):
            return Head(lines=values)
        raise


def _opens(stream: BinaryIO) -> bool:
    """Whether a trace begins as a list or an object does."""
    stream.seek(0)
    return (stream.read(4096) or b"").removeprefix(_BOM).lstrip()[:1] in (b"{", b"[")


def _document(stream: BinaryIO, where: str, faults: list[tuple[int, NotJson]]) -> Any:
    """The whole file as one JSON value.

    Raises:
        TraceError: It is none; ``faults`` say why its lines are none either.
    """
    line, why = faults[0][0], faults[0][1].why
    if len(faults) > 1 and all(isinstance(fault, TooManyValues) for _, fault in faults):  # lines that are too much, not a document
        raise TraceError(f"is no trace: {why}", where=f"{where}:{line}", mend=_formats())
    if _opens(stream):
        stream.seek(0)
        data = stream.read(MAX_DOCUMENT + 1) or b""
        if len(data) > MAX_DOCUMENT:
            raise TraceError(f"is one JSON document of more than {MAX_DOCUMENT >> 20} MiB", where=where, mend="split it")
        try:
            return parse(data.removeprefix(_BOM), DOCUMENT_OBJECTS)
        except TooManyValues as fault:
            raise TraceError(f"is one JSON document, and {fault.why}", where=where, mend="split it") from None
        except NotJson as fault:
            line, why = data.count(b"\n", 0, fault.offset or 0) + 1, fault.why
    else:
        stream.seek(0)
        mark = stream.read(4) or b""
        if mark in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
            raise TraceError("is UTF-32 text", where=where, mend="save it as UTF-8")
        if mark[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise TraceError("is UTF-16 text", where=where, mend="save it as UTF-8")
    raise TraceError(f"is no trace: {why}", where=f"{where}:{line}", mend=_formats())


def _formats() -> str:
    return "known formats: " + ", ".join(reader.name for reader in readers())


def _described(head: Head) -> str:
    """What a trace holds, for someone who took it for another."""
    document: Any = head.document
    if document is not None and not isinstance(document, list):
        return f"one JSON document: {_shape(document)}"
    values = head.lines if document is None else items(document)
    shapes = Counter(_shape(value) for value in values[:_HEAD_LINES])
    return "records of: " + "; ".join(shape for shape, _ in shapes.most_common(3)) if shapes else "an empty list"


_KINDS: dict[type, str] = {str: "a text", int: "a number", float: "a number", bool: "true or false", list: "a list", type(None): "null"}


def _shape(value: Any) -> str:
    if not isinstance(value, dict):
        return _KINDS.get(type(cast("object", value)), "a value")
    body = mapping(value)
    kind = body.get("type")
    keys = list(body)
    if not keys:
        return "an empty object"
    return f"type {kind!r}" if isinstance(kind, str) else "keys " + ", ".join(keys[:6]) + (", …" if len(keys) > 6 else "")


class _AtLeastOneCall:
    """A reader that refuses a trace in which it finds no call, and says what it found."""

    def __init__(self, reader: Reader, holds: str) -> None:
        self._reader = reader
        self._holds = holds
        self.name = reader.name
        self.title = reader.title

    def recognises(self, head: Head) -> bool:
        return self._reader.recognises(head)

    def read(self, source: Source) -> Iterator[Call]:
        empty = True
        for call in self._reader.read(source):
            empty = False
            yield call
        if empty:
            skipped = f", {plural(source.skipped.count, 'record')} skipped" if source.skipped.count else ""
            raise TraceError(
                f"recognised as {self.title}, but holds no LLM call ({self._holds}{skipped})",
                where=source.skipped.path,
            )

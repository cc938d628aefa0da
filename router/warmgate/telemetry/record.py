"""A record of live traffic: calls and reads as ``warmgate.trace/1`` for ``replay``, decisions and approvals as ``warmgate.decisions/1``.

Hash-only: sessions and namespaces are salted hashes, prompts are block hashes made without salt and adapter, calls are named by the
bindings of their verdicts; API keys are masked wherever they turn up. A disk that is full costs the record, never a decision.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from warmgate.engines.events import emit
from warmgate.engines.wire import wire_question
from warmgate.errors import OutputError
from warmgate.foreign import sendable
from warmgate.prefix.survival import Outcome
from warmgate.replay.record import TraceWriter, open_record
from warmgate.secret import mask
from warmgate.telemetry.protocol import Approval, CallSeen, Finished, ReadSeen, Silent
from warmgate.telemetry.urls import bare

DECISIONS = "warmgate.decisions/1"


class Recorder(Silent):
    """Writes calls and reads.

    Args:
        writer: Where to. Its ``block_size`` must be the tracker's; close it through :meth:`close`.
    """

    def __init__(self, writer: TraceWriter) -> None:
        self.writer = writer
        self.lost = 0
        """Records that could not be written."""

    def read(self, fact: ReadSeen) -> None:
        """One record a question."""
        for outcome in fact.survival:
            self._append(outcome, fact.session, fact.model, fact.worker, decision=fact.decision, questions=1)

    def agent_call(self, fact: CallSeen) -> None:
        """One record; without a predicted prompt, its usage alone."""
        if fact.survival is not None:
            self._append(
                fact.survival,
                fact.session,
                fact.model,
                fact.worker,
                decision=fact.decision,
                output_tokens=fact.reported.output_tokens,
                started=fact.started,
                ended=fact.ended,
            )
            return
        reported = fact.reported
        if reported.prompt_tokens is not None and reported.requests == 1:
            self._write(
                fact.session,
                model=fact.model,
                prompt_tokens=reported.prompt_tokens,
                cached_tokens=reported.cached_tokens,
                output_tokens=reported.output_tokens,
                worker=fact.worker,
                started=fact.started,
                ended=fact.ended,
                decision=fact.decision,
            )

    def close(self) -> None:
        """Write what is held back and close the file."""
        self.writer.close()

    def _append(self, outcome: Outcome, session: str, model: str, worker: str, **more: Any) -> None:
        prompt = outcome.expected.prompt
        self._write(
            session,
            prompt.names if prompt.plain is None else prompt.plain,
            kind=prompt.kind,
            model=model,
            namespace=prompt.namespace,
            prompt_tokens=prompt.tokens,
            cached_tokens=outcome.entry.reported_cached,
            worker=worker,
            question_tokens=prompt.question_tokens,
            shared=outcome.expected.shared,
            survived=None if outcome.entry.reported_cached is not None else outcome.entry.survived,
            cause=outcome.cause,
            **more,
        )

    def _write(self, *args: Any, model: str, worker: str, **fields: Any) -> None:
        try:
            self.writer.append(*args, model=mask(model), worker=bare(worker), **fields)
        except OutputError as fault:
            self.lost += 1
            if self.lost == 1:
                emit(logging.WARNING, "record.failed", fault=str(fault))


class Records(Silent):
    """Both records in one folder: ``trace.jsonl`` and ``decisions.jsonl``, opened with the first fact and again after :meth:`close`.

    Args:
        folder: Made where it does not exist; ``{pid}`` in it becomes the process's number, since one process writes a file.
        text: Write what grey cases were judged by (resolved facts of the calls) beside the decisions.
        blocks: Tokens per block and the name of the hash, as the workers are followed; ``None`` until it is known.
        salt: Sessions are hashed with it in both; drawn anew without it.

    Raises:
        OutputError: A file cannot be opened.
    """

    def __init__(
        self, folder: str | Path, *, text: bool = False, blocks: Callable[[], tuple[int, str] | None], salt: bytes | None = None
    ) -> None:
        self._given = str(folder)
        self._text = text
        self._blocks = blocks
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._size: tuple[int, str] = (1, "")
        self._pid = os.getpid()
        self._trace: Recorder | None = None
        self._decisions: DecisionRecord | None = None
        self._decided().close()
        self._decisions = None

    @property
    def folder(self) -> Path:
        """Where they are."""
        return Path(self._given.replace("{pid}", str(os.getpid())))

    def read(self, fact: ReadSeen) -> None:
        """See :class:`Recorder`."""
        self._traced().read(fact)

    def agent_call(self, fact: CallSeen) -> None:
        """See :class:`Recorder`."""
        self._traced().agent_call(fact)

    def decision_finished(self, fact: Finished) -> None:
        """See :class:`DecisionRecord`."""
        self._decided().decision_finished(fact)

    def approval(self, fact: Approval) -> None:
        """See :class:`DecisionRecord`."""
        self._decided().approval(fact)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._trace is not None and self._pid == os.getpid():
            self._trace.writer.flush()

    def close(self) -> None:
        """Write what is held back and close the files."""
        self._ours()
        trace, self._trace = self._trace, None
        decisions, self._decisions = self._decisions, None
        try:
            if trace is not None:
                trace.close()
        finally:
            if decisions is not None:
                decisions.close()

    def _ours(self) -> None:
        """A forked child leaves the files, and what its parent holds back for them, to its parent."""
        if self._pid != os.getpid():
            self._pid, self._trace, self._decisions = os.getpid(), None, None

    def _traced(self) -> Recorder:
        self._ours()
        known = self._blocks()
        trace = self._trace
        if trace is not None and ((known is not None and known != self._size) or not (self.folder / "trace.jsonl").exists()):
            # what comes has blocks of another size, under a header of its own; or somebody took the file away
            self._trace = None
            trace.close()
        if self._trace is None:
            self._size = known or self._size
            size, name = self._size
            self._trace = Recorder(TraceWriter(self._in("trace.jsonl"), size, hash_name=name, salt=self._salt))
        return self._trace

    def _decided(self) -> DecisionRecord:
        self._ours()
        if self._decisions is not None and not (self.folder / "decisions.jsonl").exists():
            decisions, self._decisions = self._decisions, None
            decisions.close()
        if self._decisions is None:
            self._decisions = DecisionRecord(self._in("decisions.jsonl"), salt=self._salt, text=self._text)
        return self._decisions

    def _in(self, name: str) -> Path:
        folder = self.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise OutputError(f"cannot be made ({fault.strerror})", where=str(folder), mend="name a folder that can be written") from fault
        return folder / name


class DecisionRecord(Silent):
    """Writes decisions (shadowed ones too) and what people said of them: what ``calibrate`` and a look back at shadow mode need.

    A line is written whole and at once; after a crash at most the last is torn, and the next writer begins on a line of its own.

    Args:
        path: ``decisions.jsonl``; at ``max_bytes`` it becomes ``decisions.1.jsonl`` and so on.
        salt: Sessions are hashed with it: the same as the trace's, to join the two.
        max_bytes: 0 is never.
        keep: Older files to keep.
        text: Write the resolved facts that grey cases were judged by.

    Raises:
        OutputError: The file cannot be opened.
    """

    def __init__(
        self, path: str | Path, *, salt: bytes | None = None, max_bytes: int = 256 << 20, keep: int = 3, text: bool = False
    ) -> None:
        self._path = Path(path)
        self._text = text
        self._salt = (secrets.token_bytes(16) if salt is None else salt)[:64]
        self._max_bytes, self._keep = max_bytes, keep
        self._lock = Lock()
        self.lost = 0
        """Lines that could not be written."""
        self._closed = False
        self._fd, self._torn = open_record(self._path)

    def decision_finished(self, fact: Finished) -> None:
        """One line."""
        decision = fact.decision
        self._line(
            {
                "decision": decision.id,
                "session": blake2b(fact.session.encode("utf-8", "surrogatepass"), digest_size=8, key=self._salt).hexdigest(),
                "model": fact.model,
                "worker": bare(decision.worker),
                "mounts": {
                    "strategy": decision.mounts.strategy,
                    "tools": decision.mounts.tools,
                    "changed": decision.mounts.changed,
                    "shadow": decision.mounts.shadow,
                    "would": decision.mounts.would,
                    "dropped_characters": fact.dropped_characters,
                    "prompt_tokens": fact.prompt_tokens,
                },
                "verdicts": [
                    {
                        "call": v.call,
                        "verdict": v.verdict,
                        "rule": v.rule,
                        "source": v.source,
                        "policy": v.policy,
                        "binding": v.binding,
                        "shadow": v.shadow,
                        **self._asked(fact, v.call),
                    }
                    for v in decision.verdicts.values()
                ],
                "answers": {
                    name: {"probabilities": answer.probabilities, "label_mass": answer.label_mass, "engine": answer.source.engine}
                    for read in decision.reads
                    for name, answer in read.answers.items()
                },
            }
        )

    def _asked(self, fact: Finished, call: str) -> dict[str, Any]:
        """What a model was asked about a grey case and said: with a person's word on it, a label for ``calibrate``."""
        asked, answer = fact.asked.get(call), fact.answered.get(call)
        if asked is None:
            return {}
        return {
            "question": wire_question(asked.question),
            "dialect": asked.dialect,
            "model": answer.source.model if answer is not None else None,
            "probabilities": answer.probabilities if answer is not None else None,
            **({"state": asked.facts} if self._text else {}),
        }

    def approval(self, fact: Approval) -> None:
        """One line."""
        self._line({"decision": fact.decision, "call": fact.call, "binding": fact.binding, "approved": fact.approved, "tool": fact.tool})

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _line(self, fields: dict[str, Any]) -> None:
        whole = {"schema": DECISIONS, "at": round(time.time(), 3), **fields}
        with self._lock:
            try:
                if self._closed:
                    raise OSError("closed")
                if self._fd < 0:  # a rotation failed; perhaps it can be opened again
                    self._fd, self._torn = open_record(self._path)
                data = f"{mask(_json(whole))}\n".encode()
                size = os.fstat(self._fd).st_size
                if self._max_bytes and size and size + len(data) > self._max_bytes:
                    self._rotate()
                if self._torn:  # what a crash or a full disk left of a line stays alone
                    data = b"\n" + data
                written = os.write(self._fd, data)
                self._torn = 0 < written < len(data) or (self._torn and not written)
                if written < len(data):
                    raise OSError("no space left")
            except (OSError, OutputError, ValueError, TypeError, RecursionError) as fault:
                self.lost += 1
                if self.lost == 1:
                    emit(logging.WARNING, "record.failed", fault=str(fault))

    def _rotate(self) -> None:
        os.close(self._fd)
        self._fd = -1
        names = [self._path, *(self._path.with_name(f"{self._path.stem}.{n}{self._path.suffix}") for n in range(1, self._keep + 1))]
        for older, newer in reversed(list(pairwise(names))):
            if older.exists():
                older.replace(newer)
        if not self._keep:
            self._path.unlink(missing_ok=True)
        self._fd, self._torn = open_record(self._path)


def _json(fields: dict[str, Any]) -> str:
    """As JSON. An agent may well name a tool or a call by half a surrogate pair."""
    try:
        return msgspec.json.encode(fields, enc_hook=str).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(sendable(fields), enc_hook=str).decode()

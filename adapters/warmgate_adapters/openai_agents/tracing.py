"""The SDK's traces as ``warmgate.trace/1``, which ``warmgate replay`` reads."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from datetime import datetime
from typing import Any

from agents.tracing import GenerationSpanData, ResponseSpanData, Span, Trace, TracingProcessor

from warmgate.decision import Decision
from warmgate.errors import OutputError
from warmgate.foreign import mapping
from warmgate.gate import Gate
from warmgate.replay.record import TraceWriter
from warmgate_adapters.openai_agents.desk import HELD, desk
from warmgate_adapters.openai_agents.naming import thread_of


class TraceRecorder(TracingProcessor):
    """Writes one record for each call of a model, for ``add_trace_processor(TraceRecorder(TraceWriter("trace.jsonl", 16)))``.

    Sessions are the traces' ``group_id``, or single runs. Prompts are written where the writer was made with ``text=True`` and the run lets
    its traces have them; tokens are those that the server reported. A fault of the file never reaches the run: records are lost then.

    Args:
        writer: Writes. It is flushed at the end of each trace and closed on shutdown.
        gate: Its reads are recorded too, and of each session's calls the worker and the tools, which the SDK's traces do not have.
    """

    def __init__(self, writer: TraceWriter, gate: Gate | None = None) -> None:
        self._writer = writer
        self._desk = desk(gate) if gate is not None else None
        self._groups: OrderedDict[str, str] = OrderedDict()
        if self._desk is not None:
            self._desk.listeners.append(self._decided)

    def on_trace_start(self, trace: Trace) -> None:
        """Note whose it is."""
        self._groups[trace.trace_id] = getattr(trace, "group_id", None) or trace.trace_id
        while len(self._groups) > HELD:
            self._groups.popitem(last=False)

    def on_trace_end(self, trace: Trace) -> None:
        """Write what is held back."""
        del trace  # a run that goes on after an interrupt goes on in it, and does not start it again
        self.force_flush()

    def on_span_start(self, span: Span[Any]) -> None:
        """Nothing yet."""

    def on_span_end(self, span: Span[Any]) -> None:
        """A record, where the span is a call of a model."""
        data, messages, response = span.span_data, None, None
        if isinstance(data, GenerationSpanData):
            model, messages = data.model or "", data.input
            response = data.output[0] if data.output else None
        elif isinstance(data, ResponseSpanData):
            model = str(data.response.model) if data.response is not None else ""
        else:
            return
        usage = mapping(data.usage)
        session = self._groups.get(span.trace_id) or thread_of() or span.trace_id
        known = self._desk.known(session) if self._desk is not None else None
        with contextlib.suppress(OutputError):
            self._writer.append(
                session,
                model=model,
                prompt_tokens=_count(usage.get("input_tokens")),
                cached_tokens=_count(mapping(usage.get("input_tokens_details")).get("cached_tokens")),
                output_tokens=_count(usage.get("output_tokens")),
                worker=known.state.worker if known is not None else None,
                decision=known.state.decision if known is not None else None,
                started=_seconds(span.started_at),
                ended=_seconds(span.ended_at),
                messages=messages,
                tools=known.keeper.offered(known.state) if known is not None and messages is not None else None,
                response=response,
            )

    def _decided(self, session: str, decision: Decision) -> None:
        """A record of each read of a decision."""
        for read in decision.reads:
            seen = read.ledger
            with contextlib.suppress(OutputError):
                self._writer.append(
                    session,
                    kind="read",
                    prompt_tokens=seen.prompt_tokens if seen is not None else None,
                    cached_tokens=seen.reported_cached if seen is not None else None,
                    worker=read.worker,
                    decision=decision.id,
                    questions=len(read.questions),
                    shared=seen.shared if seen is not None else None,
                    survived=seen.survived if seen is not None else None,
                    cause=seen.cause if seen is not None else None,
                )

    def shutdown(self) -> None:
        """Close the file."""
        with contextlib.suppress(OutputError):
            self._writer.close()

    def force_flush(self) -> None:
        """Write what is held back."""
        with contextlib.suppress(OutputError):
            self._writer.flush()


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp() if moment else None
    except ValueError:
        return None

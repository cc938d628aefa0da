"""The SDK's traces as ``warmgate.trace/1``, which ``warmgate replay`` reads."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

from agents.tracing import GenerationSpanData, Span, Trace, TracingProcessor

from warmgate.errors import OutputError
from warmgate.foreign import mapping
from warmgate.replay.record import TraceWriter


class TraceRecorder(TracingProcessor):
    """Writes one record for each call of a model, for ``add_trace_processor(TraceRecorder(TraceWriter("trace.jsonl", 16)))``.

    Sessions are the traces' ``group_id``, or single runs. Prompts are written where the writer was made with ``text=True`` and the run lets
    its traces have them; tokens are those that the server reported. A fault of the file never reaches the run: records are lost then.

    Args:
        writer: Writes. It is flushed at the end of each trace and closed on shutdown.
        worker: Whom to name as the worker, where there is one alone.
    """

    def __init__(self, writer: TraceWriter, worker: str | None = None) -> None:
        self._writer = writer
        self._worker = worker
        self._groups: dict[str, str] = {}

    def on_trace_start(self, trace: Trace) -> None:
        """Note whose it is."""
        self._groups[trace.trace_id] = getattr(trace, "group_id", None) or trace.trace_id

    def on_trace_end(self, trace: Trace) -> None:
        """Write what is held back."""
        self._groups.pop(trace.trace_id, None)
        self.force_flush()

    def on_span_start(self, span: Span[Any]) -> None:
        """Nothing yet."""

    def on_span_end(self, span: Span[Any]) -> None:
        """A record, where the span is a call of a model."""
        data = span.span_data
        if not isinstance(data, GenerationSpanData):
            return
        usage = mapping(data.usage)
        cached = mapping(usage.get("input_tokens_details")).get("cached_tokens")
        with contextlib.suppress(OutputError):
            self._writer.append(
                self._groups.get(span.trace_id, span.trace_id),
                model=data.model or "",
                prompt_tokens=_count(usage.get("input_tokens")),
                cached_tokens=_count(cached),
                output_tokens=_count(usage.get("output_tokens")),
                worker=self._worker,
                started=_seconds(span.started_at),
                ended=_seconds(span.ended_at),
                messages=data.input,
                response=data.output[0] if data.output else None,
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

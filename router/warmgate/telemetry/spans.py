"""OpenTelemetry: one ``warmgate.decide`` span a decision, and the ``traceparent`` that makes vLLM's ``llm_request`` spans its children.

Needs the extra ``warmgate[otel]``; uses whatever tracer provider the application has set up. Attributes are ids, words and counts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from warmgate.errors import OptionError
from warmgate.secret import mask
from warmgate.telemetry.protocol import Fallback, Finished, ReadSeen, Silent, Started
from warmgate.telemetry.urls import host

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

OPEN = 10_000
"""Decisions under way whose spans are held; one never finished is ended when more come."""


class Spans(Silent):
    """A span for every decision. Told on the decision's path, since its requests carry the span's ``traceparent``.

    Args:
        provider: The tracer provider; without it the global one.

    Raises:
        OptionError: OpenTelemetry is not installed.
    """

    inline = True

    def __init__(self, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise OptionError("OpenTelemetry is not installed", where="telemetry", mend="pip install 'warmgate[otel]'") from None
        from warmgate import __version__

        self._tracer = trace.get_tracer("warmgate", __version__, tracer_provider=provider)
        self._open: OrderedDict[str, Span] = OrderedDict()

    def decision_started(self, fact: Started) -> None:
        """Open the span, as a child of the caller's current one."""
        from opentelemetry.trace import SpanKind

        span = self._tracer.start_span(
            "warmgate.decide",
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": "decide",
                "gen_ai.request.model": mask(fact.model),
                "server.address": host(fact.worker),
                "warmgate.decision.id": fact.decision,
            },
        )
        self._open[fact.decision] = span
        if len(self._open) > OPEN:
            self._open.popitem(last=False)[1].end()

    def read(self, fact: ReadSeen) -> None:
        """An event on the span."""
        span = self._open.get(fact.decision)
        if span is None:
            return
        attributes: dict[str, Any] = {
            "warmgate.request.id": fact.request,
            "warmgate.engine": fact.engine or "none",
            "warmgate.outcome": fact.outcome,
            "warmgate.questions": fact.questions,
        }
        if fact.survival:
            attributes |= {
                "gen_ai.usage.input_tokens": sum(o.expected.prompt.tokens for o in fact.survival),
                "gen_ai.usage.cache_read.input_tokens": sum(o.entry.survived or 0 for o in fact.survival),
                "warmgate.reusable_tokens": sum(o.expected.reusable for o in fact.survival),
                "warmgate.basis": fact.survival[0].entry.survived_basis,
            }
        span.add_event("warmgate.read", attributes)

    def fallback(self, fact: Fallback) -> None:
        """An event on the span."""
        span = self._open.get(fact.decision)
        if span is not None:
            span.add_event("warmgate.fallback", {"warmgate.left": fact.left, "warmgate.to": fact.to, "error.type": fact.code or "skipped"})

    def decision_finished(self, fact: Finished) -> None:
        """Close the span with what was decided."""
        span = self._open.pop(fact.decision.id, None)
        if span is None:
            return
        decision = fact.decision
        words = [verdict.verdict for verdict in decision.verdicts.values()]
        span.set_attributes(
            {
                "warmgate.worker": host(decision.worker),
                "warmgate.mounts.strategy": decision.mounts.strategy,
                "warmgate.mounts.changed": decision.mounts.changed,
                "warmgate.mounts.count": len(decision.mounts.tools),
                "warmgate.reads": len(decision.reads),
                **{f"warmgate.verdicts.{word}": words.count(word) for word in ("allow", "ask", "deny")},
            }
        )
        span.end()

    def decision_failed(self, decision: str, code: str) -> None:
        """Close the span as failed."""
        from opentelemetry.trace import Status, StatusCode

        span = self._open.pop(decision, None)
        if span is not None:
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR, code))
            span.end()

    def headers(self, decision: str) -> dict[str, str]:
        """``traceparent`` and ``tracestate`` of the decision's span, for its requests to the engine."""
        span = self._open.get(decision)
        return {} if span is None else trace_headers(span)

    def close(self) -> None:
        """End what is open."""
        while self._open:
            self._open.popitem()[1].end()


def trace_headers(span: Span | None = None) -> dict[str, str]:
    """W3C headers of a span, or of the current one; empty where nothing is traced. An agent's call that carries them joins the trace."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, trace.set_span_in_context(span or trace.get_current_span()))
    return headers

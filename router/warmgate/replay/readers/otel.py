"""OpenTelemetry spans of LLM calls: OTLP as JSON, lists of spans, and the bare attributes of one span.

Ids are hex in OTLP's JSON and base64 where protobuf's own JSON mapping wrote it; attribute values are typed objects there and plain
values elsewhere. What the attributes mean: :mod:`warmgate.replay.readers._attributes`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers import _attributes as attributes
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import (
    Unusable,
    first_text,
    items,
    key,
    mapping,
    mappings,
    mostly,
    records,
    samples,
    seconds,
    text,
)
from warmgate.replay.readers._spans import Forest, Found, Span, many, settle
from warmgate.replay.readers._usage import attribute_usage
from warmgate.replay.trace import Call, TextPrompt

_SESSION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "traceloop.association.properties.session_id")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")

DECISION = re.compile(r"decision-.*-[0-9]+")
"""Request ids that vLLM 0.32 gives the reads of one ``/v1/systemone`` call (``entrypoints/generate/structured_decisions``)."""


@dataclass(slots=True)
class _Span:
    """One span, whatever it was written as."""

    line: int
    trace: str
    ident: str
    parent: str | None
    name: str
    attributes: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    started: float | None = None
    ended: float | None = None


class OTelReader:
    """Reads OTLP JSON, span lists and span attributes in the GenAI and OpenInference conventions."""

    name = "otel"
    title = "OpenTelemetry spans (OTLP JSON)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are OTLP, or spans or attributes of an LLM convention."""
        return mostly(_is_otlp(one) or _is_span(one) or _is_attributes(one) for one in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield the innermost LLM calls by start time.

        Raises:
            TraceError: No span is an LLM call; the message says what is there instead.
        """
        spans = _unique(_spans(source), source)
        nodes = {one.ident: _node(one) for one in spans}
        forest = Forest.of(nodes.values())
        by_ident = {one.ident: one for one in spans}
        found: list[Found] = []
        reads = 0
        for one in spans:
            if not _is_call(one):
                continue
            node = nodes[one.ident]
            around = [one, *(by_ident[s.ident] for s in forest.above(node))]
            try:
                found.append(_found(node, one, around))
            except Unusable as fault:
                source.skipped(one.line, fault.why)
                found.append(Found(node, Call(one.trace, "", None), broken=True))
            reads += DECISION.fullmatch(text(one.attributes.get("gen_ai.request.id")) or "") is not None
        if not found:
            raise TraceError(_nothing(spans), where=source.skipped.path, mend="record the spans of the model calls too")
        if reads:
            source.notes.append(f"questions of /v1/systemone decisions, not an agent's own calls: {many(reads, 'span')}")
        yield from settle(found, forest, source)


def _is_otlp(one: dict[str, Any]) -> bool:
    return bool(_resources(one))


def _resources(one: dict[str, Any]) -> list[dict[str, Any]]:
    """OTLP's outermost list, under the names of its JSON, of protobuf's and of Grafana Tempo."""
    listed = mappings(next((one[name] for name in ("resourceSpans", "resource_spans", "batches") if name in one), None))
    return [resource for resource in listed if any(name in resource for name in _SCOPES)]


def _is_span(one: dict[str, Any]) -> bool:
    listed = _attributes(one.get("attributes"))
    return isinstance(one.get("name"), str) and _is_attributes(listed)


def _is_attributes(one: dict[str, Any]) -> bool:
    """Whether these are attributes of a convention: dotted names, or the nested form of one with a kind or counts."""
    named = [name for name in one if name.startswith(attributes.NAMESPACES)]
    if named:
        return True
    nested = mapping(one.get("openinference")).get("span") or mapping(one.get("gen_ai")) or mapping(one.get("llm")).get("token_count")
    return bool(nested)


def _spans(source: Source) -> Iterator[_Span]:
    for number, record in records(source):
        body = mapping(record)
        if _is_otlp(body):
            yield from _otlp(number, body)
        elif isinstance(body.get("attributes"), (dict, list)):
            yield _plain(number, body, attributes.flat(_attributes(body["attributes"])))
        elif isinstance(body.get("spans"), list):
            for one in mappings(body["spans"]):
                yield _plain(number, one, attributes.flat(_attributes(one.get("attributes"))))
        elif _is_attributes(body):
            yield _plain(number, {}, attributes.flat(body))
        else:
            source.skipped(number, "it is neither OTLP nor a span with attributes")


def _otlp(line: int, body: dict[str, Any]) -> Iterator[_Span]:
    for resource in _resources(body):
        for scope in mappings(next(resource[name] for name in _SCOPES if name in resource)):
            for one in mappings(scope.get("spans")):
                yield _plain(line, one, attributes.flat(_attributes(one.get("attributes"))))


def _plain(line: int, one: dict[str, Any], flat: dict[str, Any]) -> _Span:
    context = mapping(one.get("context")) or mapping(one.get("span_context"))
    trace = _ident(first_text(*(one.get(k) for k in ("traceId", "trace_id")), context.get("trace_id"))) or "trace"
    span = _ident(first_text(*(one.get(k) for k in ("spanId", "span_id", "id")), context.get("span_id")))
    parents = ("parentSpanId", "parent_span_id", "parent_id", "parentId")
    parent = _ident(first_text(*(one.get(k) for k in parents), mapping(one.get("parent")).get("span_id")))
    starts, ends = (
        ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
    )
    events = [
        {"name": event.get("name"), "attributes": attributes.flat(_attributes(event.get("attributes"))), "body": event.get("body")}
        for event in mappings(one.get("events"))
    ]
    return _Span(
        line,
        trace,
        f"{trace}:{span}" if span else "",
        f"{trace}:{parent}" if parent else None,
        text(one.get("name")) or "",
        flat,
        events,
        _moment(next((one[k] for k in starts if one.get(k) is not None), None)),
        _moment(next((one[k] for k in ends if one.get(k) is not None), None)),
    )


def _moment(value: Any) -> float | None:
    """A time; JavaScript's exporter writes it as ``[seconds, nanoseconds]``."""
    pair = items(value)
    if len(pair) == 2:
        whole, rest = seconds(pair[0]), pair[1]
        return whole + rest / 1e9 if whole is not None and isinstance(rest, int) and 0 <= rest < 1_000_000_000 else whole
    return seconds(value)


def _unique(spans: Iterator[_Span], source: Source) -> list[_Span]:
    """Spans with an id each; one that was written twice counts once."""
    found: dict[str, _Span] = {}
    for number, one in enumerate(spans, 1):
        one.ident = one.ident or f"{one.trace}:#{number}"
        if one.ident in found:
            source.skipped(one.line, f"a second span with the id {one.ident.partition(':')[2]}")
        else:
            found[one.ident] = one
    return list(found.values())


def _ident(value: str | None) -> str | None:
    """An id as hex: given as hex, with ``0x``, or as base64 of the 8 or 16 bytes."""
    if value is None:
        return None
    bare = value[2:] if value[:2].lower() == "0x" else value
    if re.fullmatch(r"[0-9a-fA-F]{1,32}", bare):
        return bare.lower() if bare.strip("0") else None
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    return raw.hex() if len(raw) in (8, 16) else value


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes as a mapping, from OTLP's list of typed values or from one already."""
    if isinstance(value, list):
        return {name: _value(one.get("value")) for one in mappings(items(value)) if (name := text(one.get("key"))) is not None}
    return mapping(value)


def _value(value: Any, depth: int = 16) -> Any:
    """An OTLP value without its type. Protobuf's JSON writes 64-bit integers as text."""
    body = mapping(value)
    if not body or not depth:
        return None
    kind, inner = next(iter(body.items()))
    kind = kind.replace("_", "").lower()
    if kind == "intvalue":
        digits = re.fullmatch(r"-?[0-9]{1,19}", inner) if isinstance(inner, str) else None
        return int(digits[0]) if digits else inner
    if kind == "arrayvalue":
        return [_value(one, depth - 1) for one in items(mapping(inner).get("values"))]
    if kind == "kvlistvalue":
        listed = mappings(mapping(inner).get("values"))
        return {name: _value(one.get("value"), depth - 1) for one in listed if (name := text(one.get("key"))) is not None}
    return inner


def _node(one: _Span) -> Span:
    does = attributes.operation(one.attributes)
    agent = attributes.agent(one.attributes, one.name) if does == "agent" else None
    return Span(
        one.ident,
        one.parent,
        tool=does == "tool",
        agent=agent,
        system=attributes.system(one.attributes),
        sums=does == "agent",
        line=one.line,
    )


def _is_call(one: _Span) -> bool:
    does = attributes.operation(one.attributes)
    return does == "call" or (does == "" and attributes.has_counts(one.attributes))


def _found(node: Span, one: _Span, around: list[_Span]) -> Found:
    conversation = text(one.attributes.get("gen_ai.conversation.id"))
    previous = conversation if conversation and conversation.startswith("resp_") else None
    session = next((found for span in around if (found := _session(span.attributes))), None)
    sent = attributes.sent(one.attributes, one.events)
    call = Call(
        session=session or one.trace,
        model=attributes.model(one.attributes),
        prompt=TextPrompt(sent.messages, sent.tools) if sent is not None else None,
        usage=attribute_usage(one.attributes),
        response=attributes.answered(one.attributes, one.events),
        started=one.started,
        ended=one.ended,
        line=one.line,
    )
    return Found(node, call, attributes.response_id(one.attributes), previous)


def _session(span: dict[str, Any]) -> str | None:
    """A conversation's id. Microsoft's agent framework writes the last response's id there, which changes with every call."""
    ids = (key(span.get(name)) for name in _SESSION)
    return next((one for one in ids if one is not None and not one.startswith("resp_")), None)


def _nothing(spans: list[_Span]) -> str:
    """Why a trace of spans has no call in it."""
    if not spans:
        return "OpenTelemetry data without a span"
    kinds = [attributes.operation(one.attributes) for one in spans]
    if all(kind == "tool" for kind in kinds):
        names = [text(one.attributes.get("gen_ai.tool.name")) or one.name or "a tool" for one in spans]
        what = "only a tool execution span" if len(spans) == 1 else f"only {len(spans)} tool execution spans"
        return f"{what} ({', '.join(dict.fromkeys(names))}), which is no LLM call"
    if "agent" in kinds:
        return f"{many(len(spans), 'span')}, none of them a single LLM call: an agent's span sums up the calls inside it"
    return f"{many(len(spans), 'span')}, none of which records an LLM call (no gen_ai, llm or openinference attributes of one)"


READER = OTelReader()

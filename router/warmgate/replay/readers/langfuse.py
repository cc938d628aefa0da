"""Langfuse exports: ``{trace, observations[]}``, the public API's traces and observations, and blob exports of observations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from warmgate.errors import TraceError
from warmgate.replay.readers import _attributes as attributes
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import (
    SAMPLE,
    Unusable,
    dig,
    first_text,
    items,
    key,
    mapping,
    mappings,
    mostly,
    parsed,
    records,
    samples,
    seconds,
    text,
)
from warmgate.replay.readers._messages import answer, prompt, with_system
from warmgate.replay.readers._spans import Forest, Found, Span, many, settle, subgraph
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.readers._usage import attribute_usage, filled, langfuse_usage
from warmgate.replay.trace import Call, TextPrompt, Usage

TYPES = frozenset({"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"})
_NO_CALL = frozenset({"TOOL", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL", "EVENT"})
_LEGACY = frozenset({"input", "output", "total", "promptTokens", "completionTokens", "totalTokens"})

NEWEST_ONLY = "claude.assistant.turn"
"""LangSmith's Claude Agent SDK integration writes only the newest message, or a mangled one, into a turn's input."""


class _Observation(NamedTuple):
    line: int
    body: dict[str, Any]
    session: str
    attributes: dict[str, Any]


class LangfuseReader:
    """Reads Langfuse exports. Observations of type GENERATION are calls, and others that name a model and count tokens."""

    name = "langfuse"
    title = "Langfuse export (JSON)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are Langfuse traces or observations."""
        document = mapping(head.document)
        if any(map(_is_observation, mappings(document.get("data"))[:SAMPLE])):
            return True
        return mostly(_is_trace(one) or _is_observation(one) for one in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield the innermost LLM calls by start time.

        Raises:
            TraceError: No observation is an LLM call.
        """
        observations = list(_observations(source))
        spans: list[Span] = []
        found: list[Found] = []
        ids: set[str] = set()
        partial = 0
        for one in observations:
            ident = key(one.body.get("id")) or f"#{one.line}"
            if ident in ids:
                source.skipped(one.line, f"a second observation with the id {ident[:64]}")
                continue
            ids.add(ident)
            span = _span(ident, one)
            spans.append(span)
            if not _is_call(one):
                continue
            try:
                found.append(_found(span, one))
            except Unusable as fault:
                source.skipped(one.line, fault.why)
                found.append(Found(span, Call(one.session, "", None), broken=True))
            if text(one.body.get("name")) == NEWEST_ONLY:
                partial += 1
                found[-1].call.usage.prompt_tokens = None
        if all(f.span.sums for f in found):
            raise TraceError(
                f"a Langfuse export of {many(len(spans), 'observation')}, none of which is a single LLM call (type GENERATION)",
                where=source.skipped.path,
                mend="export a trace whose model calls are instrumented",
            )
        if partial:
            source.notes.append(
                "without a whole prompt, since the Claude Agent SDK's turns record their newest message alone; nor with prompt "
                f"tokens, since they count input without what was cached: {many(partial, 'call')}"
            )
        yield from settle(found, Forest.of(spans), source)


def _is_observation(one: dict[str, Any]) -> bool:
    known = text(one.get("type")) in TYPES and ("startTime" in one or "start_time" in one)
    return known and ("traceId" in one or "trace_id" in one)


def _is_trace(one: dict[str, Any]) -> bool:
    listed = one.get("observations")
    if not isinstance(listed, list):
        return False
    return isinstance(one.get("trace"), dict) or any(_is_observation(o) for o in mappings(listed))


def _observations(source: Source) -> Iterator[_Observation]:
    line = 0
    for number, record in records(source):
        body = mapping(record)
        trace = mapping(body.get("trace")) if "observations" in body else {}
        if isinstance(body.get("observations"), list):
            trace, listed = trace or body, items(body["observations"])
        elif isinstance(body.get("data"), list):
            listed = items(body["data"])
        elif _is_observation(body):
            yield _observation(number, body, {})
            continue
        else:
            source.skipped(number, "it is neither a Langfuse trace nor an observation")
            continue
        for entry in listed:
            line += 1
            if not isinstance(entry, dict):
                source.skipped(line, "the observation is no object")
                continue
            yield _observation(line, mapping(entry), trace)


def _observation(line: int, body: dict[str, Any], trace: dict[str, Any]) -> _Observation:
    metadata = mapping(parsed(body.get("metadata")))
    own = _pick(body, "traceId", "trace_id")
    trace_id = key(own) or key(trace.get("id")) or "trace"
    same = key(trace.get("id")) in (None, trace_id)
    named = (trace.get("sessionId") if same else None, body.get("sessionId"), body.get("session_id"), metadata.get("thread_id"))
    flat = attributes.flat(mapping(parsed(metadata.get("attributes"))))
    return _Observation(line, body, first_text(*map(key, named)) or trace_id, {n: _number(n, v) for n, v in flat.items()})


def _number(name: str, value: Any) -> Any:
    """Langfuse writes all attributes as text; counts among them become numbers again."""
    counts = name.startswith(("gen_ai.usage.", "llm.token_count.", "ai.usage."))
    return int(value) if counts and isinstance(value, str) and value.isdecimal() and len(value) < 20 else value


def _pick(body: dict[str, Any], *names: str) -> Any:
    return next((body[name] for name in names if body.get(name) is not None), None)


def _span(ident: str, one: _Observation) -> Span:
    kind, does = one.body.get("type"), attributes.operation(one.attributes)
    agent = None
    if kind == "AGENT" or does == "agent":
        agent = attributes.agent(one.attributes, text(one.body.get("name")))
    elif kind == "GENERATION":
        agent = subgraph(mapping(parsed(one.body.get("metadata"))).get("langgraph_checkpoint_ns"))
    return Span(
        ident,
        key(_pick(one.body, "parentObservationId", "parent_observation_id")),
        tool=kind == "TOOL" or does == "tool",
        agent=agent,
        system=attributes.system(one.attributes),
        sums=kind in ("AGENT", "CHAIN") or does == "agent",
        line=one.line,
    )


def _is_call(one: _Observation) -> bool:
    kind = text(one.body.get("type"))
    if kind == "GENERATION":
        return True
    if kind in _NO_CALL or attributes.operation(one.attributes) in ("tool", "embedding", "embeddings"):
        return False
    counted = mapping(parsed(_pick(one.body, "usageDetails", "usage_details"))) or mapping(one.body.get("usage"))
    return text(_pick(one.body, "model", "provided_model_name")) is not None and any(counted.values())


def _found(span: Span, one: _Observation) -> Found:
    body, more = one.body, one.attributes
    metadata, parameters = mapping(parsed(body.get("metadata"))), mapping(parsed(_pick(body, "modelParameters", "model_parameters")))
    output = parsed(body.get("output"))
    sent = None
    if text(body.get("name")) != NEWEST_ONLY and not span.sums:
        sent = attributes.sent(more) or prompt(body.get("input"))
    recorded = None
    if sent is not None:
        tools = (
            sent.tools
            or attributes.schemas(more)
            or tool_schemas(metadata.get("tools"))
            or tool_schemas(parameters.get("tools"))
            or tool_schemas(_pick(body, "toolDefinitions", "tool_definitions"))
            or tool_schemas(dig(output, "tools"))
        )
        instructions = first_text(parameters.get("instructions"), parameters.get("system_instruction"), dig(output, "instructions"))
        recorded = TextPrompt(with_system(sent.messages, instructions), tools)
    call = Call(
        session=one.session,
        model=first_text(_pick(body, "model", "provided_model_name")) or attributes.model(more),
        prompt=recorded,
        usage=_usage(body, more),
        response=answer(output) or attributes.answered(more),
        started=seconds(_pick(body, "startTime", "start_time")),
        ended=seconds(_pick(body, "endTime", "end_time")),
        line=one.line,
    )
    response_id = attributes.response_id(more) or first_text(dig(output, "id") if dig(output, "object") else None)
    return Found(span, call, response_id, _previous(more, output))


def _previous(more: dict[str, Any], output: Any) -> str | None:
    """The stored response that a request goes on from. Microsoft's agent framework writes its id as the conversation's."""
    conversation = text(more.get("gen_ai.conversation.id"))
    linked = conversation if conversation and conversation.startswith("resp_") else None
    return first_text(dig(output, "previous_response_id"), linked)


def _usage(body: dict[str, Any], more: dict[str, Any]) -> Usage:
    counted = langfuse_usage(parsed(_pick(body, "usageDetails", "usage_details")))
    legacy = mapping(body.get("usage"))
    if counted.prompt_tokens is None and legacy.get("unit") in (None, "TOKENS"):
        counted = filled(counted, langfuse_usage({k: v for k, v in legacy.items() if k in _LEGACY}))
    if counted.prompt_tokens is None:
        names = {"input": "inputUsage", "output": "outputUsage", "total": "totalUsage"}
        counted = filled(counted, langfuse_usage({name: body.get(old) for name, old in names.items()}))
    return filled(counted, attribute_usage(more))


READER = LangfuseReader()

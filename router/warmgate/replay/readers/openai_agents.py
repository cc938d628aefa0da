"""OpenAI Agents SDK: exported trace spans (JSON Lines), and a serialised ``RunState`` (one document)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import (
    Unusable,
    dig,
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
from warmgate.replay.readers._messages import answer, prompt, with_system
from warmgate.replay.readers._spans import Forest, Found, Span, many, settle
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.readers._usage import filled, usage
from warmgate.replay.trace import Call, TextPrompt, Usage


class OpenAIAgentsReader:
    """Reads what the SDK's trace processors export, and RunStates that hold model responses."""

    name = "openai_agents"
    title = "OpenAI Agents SDK spans (JSON Lines) or RunState (JSON)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are traces and spans of the SDK, or the document is a RunState."""
        if _is_state(mapping(head.document)):
            return True
        return mostly(_is_span(one) or any(map(_is_span, mappings(one.get("data")))) for one in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield generation and response spans by start time.

        Raises:
            TraceError: There is none, or the RunState holds no model response.
        """
        if _is_state(mapping(source.head.document)):
            return _state(mapping(source.head.document), source)
        return _spans(source)


def _is_state(document: dict[str, Any]) -> bool:
    return "$schemaVersion" in document and ("model_responses" in document or "current_agent" in document)


def _is_span(one: dict[str, Any]) -> bool:
    kind = one.get("object")
    return (kind == "trace.span" and "span_data" in one) or (kind == "trace" and "workflow_name" in one)


def _spans(source: Source) -> Iterator[Call]:
    groups: dict[str, str] = {}
    spans: list[Span] = []
    bodies: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, record in records(source):
        body = mapping(record)
        for entry in items(body.get("data")) if "object" not in body else [body]:
            one = mapping(entry)
            ident = key(one.get("id"))
            if one.get("object") == "trace" and ident is not None:
                groups[ident] = key(one.get("group_id")) or ident
            elif one.get("object") != "trace.span" or ident is None or not isinstance(one.get("span_data"), dict):
                source.skipped(number, "it is neither a trace nor a span of the Agents SDK")
            elif ident in bodies:
                source.skipped(number, f"a second span with the id {ident}")
            else:
                data = mapping(one["span_data"])
                agent = text(data.get("name")) if data.get("type") == "agent" else None
                spans.append(Span(ident, key(one.get("parent_id")), tool=data.get("type") == "function", agent=agent, line=number))
                bodies[ident] = number, one
    forest = Forest.of(spans)
    found = list(_calls(spans, bodies, groups, source))
    if not found:
        raise TraceError(
            f"{many(len(spans), 'span')} of the Agents SDK, none of which is a model call (generation or response)",
            where=source.skipped.path,
            mend="export the spans with tracing of sensitive data on",
        )
    _cached_of_turns(found, bodies, forest, source)
    named = any(dig(body, "span_data", "tools") for _, body in bodies.values())
    if named and any(isinstance(f.call.prompt, TextPrompt) and not f.call.prompt.tools for f in found):
        source.notes.append("spans of the Agents SDK name tools but leave their schemas out: the prompts here are shorter by them")
    yield from settle(found, forest, source)


def _calls(spans: list[Span], bodies: dict[str, tuple[int, dict[str, Any]]], groups: dict[str, str], source: Source) -> Iterator[Found]:
    for span in spans:
        line, body = bodies[span.ident]
        data = mapping(body["span_data"])
        if data.get("type") not in ("generation", "response"):
            continue
        trace = key(body.get("trace_id")) or "trace"
        session = groups.get(trace, trace)
        try:
            yield _found(span, data, session, body, line)
        except Unusable as fault:
            source.skipped(line, fault.why)
            yield Found(span, Call(session, "", None), broken=True)


def _found(span: Span, data: dict[str, Any], session: str, body: dict[str, Any], line: int) -> Found:
    response = mapping(data.get("response"))
    sent = prompt(data.get("input"))
    recorded = None
    if sent is not None:
        tools = sent.tools or tool_schemas(response.get("tools")) or tool_schemas(dig(data, "model_config", "tools"))
        recorded = TextPrompt(with_system(sent.messages, response.get("instructions")), tools)
    call = Call(
        session=session,
        model=first_text(data.get("model"), response.get("model")) or "",
        prompt=recorded,
        usage=filled(usage(data.get("usage")), usage(response.get("usage"))),
        response=answer(data.get("output") or response.get("output")),
        started=seconds(body.get("started_at")),
        ended=seconds(body.get("ended_at")),
        line=line,
    )
    response_id = first_text(data.get("response_id"), response.get("id"))
    if recorded is None and call.usage == Usage():
        raise Unusable("the span holds only a response id; prompt and token counts stayed with the provider")
    return Found(span, call, response_id, first_text(response.get("previous_response_id")))


def _cached_of_turns(found: list[Found], bodies: dict[str, tuple[int, dict[str, Any]]], forest: Forest, source: Source) -> None:
    """Take cached tokens from the turn around a call, where a span does not count them itself.

    The SDK writes 0 when the server reports none, so zeros count only in a trace where some call or turn has more.
    """
    turns: dict[str, list[Found]] = {}
    for one in found:
        turn = next((s.ident for s in forest.above(one.span) if _is_turn(bodies[s.ident][1])), None)
        if turn is not None:
            turns.setdefault(turn, []).append(one)
    reported: list[tuple[Found, Usage]] = []
    for turn, calls in turns.items():
        try:
            whole = usage(dig(bodies[turn][1], "span_data", "data", "usage"))
        except Unusable:
            continue  # the call's own counts stand
        if len(calls) == 1 and whole.cached_tokens is not None and calls[0].call.usage.prompt_tokens in (None, whole.prompt_tokens):
            reported.append((calls[0], whole))
    if any(whole.cached_tokens for _, whole in reported) or any(one.call.usage.cached_tokens for one in found):
        for one, whole in reported:
            one.call.usage = filled(one.call.usage, whole)
        return
    if reported or any(one.call.usage.cached_tokens == 0 for one in found):
        source.notes.append("every call counts 0 cached tokens, which the Agents SDK also writes when the server reports none: left out")
    for one in found:
        one.call.usage.cached_tokens = None


def _is_turn(body: dict[str, Any]) -> bool:
    return bool(dig(body, "span_data", "data", "sdk_span_type") == "turn")


def _state(document: dict[str, Any], source: Source) -> Iterator[Call]:
    """Model responses of a RunState. It keeps neither instructions nor tools, so their prompts are not whole."""
    responses = items(document.get("model_responses"))
    if not responses and isinstance(document.get("last_model_response"), dict):
        responses = [document["last_model_response"]]
    if not responses:
        raise TraceError(
            "a serialised RunState without a model response: it holds no LLM call",
            where=source.skipped.path,
            mend="hand in the run's exported spans, or a state saved after a model call",
        )
    session = first_text(key(document.get("conversation_id")), key(dig(document, "trace", "group_id"))) or "run"
    source.notes.append("a RunState keeps neither instructions nor tools: its prompts are not whole, token counts alone are used")
    for number, entry in enumerate(responses, 1):
        body = mapping(entry)
        try:
            entries = mappings(dig(body, "usage", "request_usage_entries"))
            counts = [_state_usage(one) for one in entries] if len(entries) > 1 else [_state_usage(mapping(body.get("usage")))]
        except Unusable as fault:
            source.skipped(number, fault.why)
            continue
        for counted in counts:
            if counted.prompt_tokens is None:
                source.skipped(number, "the response has no token counts")
                continue
            yield Call(session, "", None, counted, response=answer(body.get("output")), line=number)


def _state_usage(body: dict[str, Any]) -> Usage:
    """A RunState writes the details of a count as a list of one."""
    details = next(iter(mappings(body.get("input_tokens_details"))), None)
    return usage({**body, "input_tokens_details": details} if details is not None else body)


READER = OpenAIAgentsReader()

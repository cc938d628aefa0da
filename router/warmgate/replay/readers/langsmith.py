"""LangSmith runs: ingestion payloads ``{post: […], patch: […]}``, and lists or JSON Lines of runs as the API returns them."""

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
    parsed,
    records,
    samples,
    seconds,
    text,
)
from warmgate.replay.readers._messages import answer, prompt
from warmgate.replay.readers._spans import Forest, Found, Span, many, settle, subgraph
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.readers._usage import filled, usage
from warmgate.replay.trace import Call, TextPrompt, Usage

TYPES = frozenset({"llm", "chain", "tool", "retriever", "embedding", "prompt", "parser"})

_THREAD = ("thread_id", "session_id", "conversation_id")
"""Metadata keys by which LangSmith groups traces into a thread. A run's own ``session_id`` is its project, not its thread."""


class LangSmithReader:
    """Reads LangSmith runs."""

    name = "langsmith"
    title = "LangSmith runs (JSON)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are ingestion payloads or runs."""
        return mostly(_is_payload(one) or _is_run(one) or any(map(_is_run, mappings(one.get("runs")))) for one in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield the innermost runs of type ``llm`` by start time; a patch completes the post of the same run.

        Raises:
            TraceError: No run is of type ``llm``.
        """
        runs, lines = _merged(source)
        spans: list[Span] = []
        found: list[Found] = []
        for ident, run in runs.items():
            span = _span(ident, run, lines[ident])
            spans.append(span)
            if run.get("run_type") != "llm":
                continue
            try:
                found.append(_found(span, run, lines[ident]))
            except Unusable as fault:
                source.skipped(lines[ident], fault.why)
                found.append(Found(span, Call(_session(ident, run), "", None), broken=True))
        if not found:
            raise TraceError(
                f"{many(len(runs), 'LangSmith run')}, none of which is an LLM call (run_type llm)",
                where=source.skipped.path,
                mend="export the child runs too",
            )
        yield from settle(found, Forest.of(spans), source)


def _is_run(one: dict[str, Any]) -> bool:
    known = text(one.get("run_type")) in TYPES
    return known and bool(one.keys() & {"inputs", "outputs"}) and bool(one.keys() & {"dotted_order", "trace_id", "id"})


def _is_payload(one: dict[str, Any]) -> bool:
    posts, patches = one.get("post"), one.get("patch")
    if not isinstance(posts, list) and not isinstance(patches, list):
        return False
    return any(_is_run(run) or "dotted_order" in run for run in [*mappings(posts), *mappings(patches)])


def _merged(source: Source) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """All runs by id, and the line (or element) where each began."""
    runs: dict[str, dict[str, Any]] = {}
    lines: dict[str, int] = {}
    whole: set[str] = set()  # ids that were posted, or written as whole runs that have ended
    several = isinstance(source.head.document, dict)
    count = 0
    for number, record in records(source):
        body = mapping(record)
        payload = _is_payload(body)
        posts = items(body.get("post")) if payload else items(body.get("runs")) or [body]
        patches = items(body.get("patch")) if payload else []
        for place, entry in enumerate([*posts, *patches]):
            count += 1
            line = count if several else number
            run = mapping(entry)
            ident = _ident(run)
            if ident is None or not (run.keys() & {"run_type", "dotted_order", "inputs", "outputs"}):
                source.skipped(line, "it is no LangSmith run")
                continue
            if place < len(posts):
                if ident in whole:
                    source.skipped(line, f"a second run with the id {ident[:64]}")
                    continue
                if payload or run.get("end_time") is not None or run.get("outputs"):
                    whole.add(ident)
            if ident in runs:
                _complete(runs[ident], run)
            else:
                runs[ident], lines[ident] = dict(run), line
    return runs, lines


def _ident(run: dict[str, Any]) -> str | None:
    """A run's id. Patches of some SDKs leave it out; the end of ``dotted_order`` (time, ``Z``, id) has it."""
    if (ident := key(run.get("id"))) is not None:
        return ident
    order = text(run.get("dotted_order"))
    return order.split(".")[-1].partition("Z")[2] or None if order else None


def _complete(run: dict[str, Any], patch: dict[str, Any]) -> None:
    """What a patch says replaces what was posted, except where it says nothing."""
    for name, value in patch.items():
        if value is None or value == {} or value == []:
            continue
        if name == "extra" and isinstance(run.get("extra"), dict) and isinstance(value, dict):
            merged = dict(mapping(run["extra"]))
            for part, inner in mapping(value).items():
                merged[part] = {**mapping(merged.get(part)), **mapping(inner)} if isinstance(inner, dict) else inner
            run["extra"] = merged
        else:
            run[name] = value


def _parent(run: dict[str, Any]) -> str | None:
    if (parent := key(run.get("parent_run_id"))) is not None:
        return parent
    path = (text(run.get("dotted_order")) or "").split(".")
    return path[-2].partition("Z")[2] or None if len(path) > 1 else None


def _span(ident: str, run: dict[str, Any], line: int) -> Span:
    metadata = mapping(dig(run, "extra", "metadata"))
    kind = run.get("run_type")
    agent = subgraph(metadata.get("langgraph_checkpoint_ns")) if kind == "llm" else None
    return Span(ident, _parent(run), tool=kind == "tool", agent=agent, line=line)


def _session(ident: str, run: dict[str, Any]) -> str:
    metadata = mapping(dig(run, "extra", "metadata"))
    root = (text(run.get("dotted_order")) or "").split(".")[0].partition("Z")[2]
    return first_text(*(key(metadata.get(name)) for name in _THREAD), key(run.get("trace_id")), root) or ident


def _found(span: Span, run: dict[str, Any], line: int) -> Found:
    inputs, outputs = parsed(run.get("inputs")), parsed(run.get("outputs"))
    extra = mapping(run.get("extra"))
    metadata, parameters = mapping(extra.get("metadata")), mapping(extra.get("invocation_params"))
    sent = prompt(inputs)
    recorded = None
    if sent is not None:
        tools = tool_schemas(parameters.get("tools") or parameters.get("functions")) or sent.tools
        recorded = TextPrompt(sent.messages, tools)
    call = Call(
        session=_session(span.ident, run),
        model=first_text(
            metadata.get("ls_model_name"),
            parameters.get("model"),
            parameters.get("model_name"),
            dig(inputs, "model"),
            dig(outputs, "model"),
        )
        or "",
        prompt=recorded,
        usage=_usage(run, outputs, metadata),
        response=answer(outputs) if outputs else None,
        started=seconds(run.get("start_time")),
        ended=seconds(run.get("end_time")),
        line=line,
    )
    return Found(span, call, first_text(dig(outputs, "id")), first_text(dig(inputs, "previous_response_id")))


def _usage(run: dict[str, Any], outputs: Any, metadata: dict[str, Any]) -> Usage:
    """Counts where the run keeps them: LangSmith's own place first, then the provider's answer, then the run's sums."""
    generation: Any = dig(outputs, "generations")
    while isinstance(generation, list):
        generation = next(iter(items(generation)), None)
    message = mapping(dig(generation, "message"))
    found = Usage()
    for place in (
        dig(outputs, "usage_metadata"),
        metadata.get("usage_metadata"),
        dig(message, "kwargs", "usage_metadata") or message.get("usage_metadata"),
        dig(outputs, "usage"),
        dig(outputs, "llm_output", "token_usage"),
        run,
    ):
        if isinstance(place, dict):
            found = filled(found, usage(place))
    return found


READER = LangSmithReader()

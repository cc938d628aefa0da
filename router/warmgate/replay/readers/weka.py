"""WEKA's kv-cache-tester traces: anonymised coding-agent sessions as chains of block hashes, sub-agents inside.

One JSON document a session: ``{id, block_size, hash_id_scope, requests: […]}``. A request of type ``n`` or ``s`` (streamed) is an LLM call:
``t`` seconds since the session began, ``in`` and ``out`` tokens, ``hash_ids`` of its full blocks, ``api_time`` seconds. A request of
type ``subagent`` holds the ``requests`` of a sub-agent, their ``t`` counted from its own. Ids name a block and all before it, and
are comparable within the document. (After the published traces of callanjfox/kv-cache-tester.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers._base import Head, Reader, Source
from warmgate.replay.readers._blocks import MAX_BLOCK_SIZE, block_prompt, needed
from warmgate.replay.readers._fields import Unusable, count, in_order, items, key, mapping, text
from warmgate.replay.trace import Call, Usage

MAX_NESTING = 16
"""Sub-agents of sub-agents followed so deep; published traces have one level."""


class _Weka:
    name = "weka"
    title = "WEKA kv-cache trace (JSON)"

    def recognises(self, head: Head) -> bool:
        """A document with ``block_size`` and requests of which one has hashes or nests others."""
        document = mapping(head.document)
        if "block_size" not in document:
            return False
        requests = [mapping(one) for one in items(document.get("requests"))[:50]]
        return "hash_id_scope" in document or any("hash_ids" in one or one.get("type") == "subagent" for one in requests)

    def read(self, source: Source) -> Iterator[Call]:
        """Calls of the session and its sub-agents, each of which is a session of its own, by the time they were sent.

        Raises:
            TraceError: The block size is missing or absurd.
        """
        document = mapping(source.head.document)
        block_size = document.get("block_size")
        if isinstance(block_size, bool) or not isinstance(block_size, int) or not 0 < block_size <= MAX_BLOCK_SIZE:
            raise TraceError("its block_size is no number of tokens from 1 to 1,048,576", where=source.skipped.path)
        calls = list(_calls(document, block_size, source))
        for index in in_order([call.started for call in calls]):
            yield calls[index]


def _calls(document: dict[str, Any], block_size: int, source: Source) -> Iterator[Call]:
    """Calls in the order written, sub-agents' where they stand."""
    trace = key(document.get("id")) or "trace"
    agents = 0
    line = 0
    # one frame a level: session, start of its clock, requests still to come
    stack: list[tuple[str, float | None, Iterator[Any]]] = [(trace, 0.0, iter(items(document.get("requests"))))]
    while stack:
        session, clock, requests = stack[-1]
        entry = next(requests, stack)
        if entry is stack:
            stack.pop()
            continue
        line += 1
        request = mapping(entry)
        starts = _seconds(request.get("t"))
        started = None if clock is None or starts is None else clock + starts
        try:
            if request.get("type") == "subagent":
                if len(stack) > MAX_NESTING:
                    raise Unusable(f"sub-agents are nested more than {MAX_NESTING} deep")
                agents += 1
                agent = key(request.get("agent_id")) or f"subagent_{agents}"
                stack.append((f"{trace}/{agent}", started, iter(items(request.get("requests")))))
            else:
                yield _call(request, session, started, block_size, line)
        except Unusable as fault:
            source.skipped(None, f"request {line}: {fault.why}")


def _call(request: dict[str, Any], session: str, started: float | None, block_size: int, line: int) -> Call:
    if request.get("type", "n") not in ("n", "s"):
        raise Unusable(f"its type is {str(request.get('type'))[:24]!r}, not n, s or subagent")
    tokens = needed(request.get("in"), "in")
    prompt = block_prompt(request.get("hash_ids"), tokens, block_size)
    took = _seconds(request.get("api_time"))
    return Call(
        session=session,
        model=text(request.get("model")) or "",
        prompt=prompt,
        usage=Usage(tokens, None, count(request.get("out"), "out")),
        started=started,
        ended=None if started is None or took is None else started + took,
        line=line,
    )


def _seconds(value: Any) -> float | None:
    """A time or a span on the trace's own clock, which begins at 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12 or not math.isfinite(value):
        return None
    return float(value)


READER: Reader = _Weka()

"""If these fail, a trace is read as another format's and its numbers are made up, or a real file of the format is not known."""

from __future__ import annotations

import io

import pytest

from tests.unit.replay.reading import DATA, SHARED, head
from warmgate.errors import TraceError
from warmgate.replay.readers import langfuse, langgraph, langsmith, openai_agents, openhands, otel, sweagent, taubench
from warmgate.replay.readers._base import Skipped, Source

READERS = [m.READER for m in (langfuse, langsmith, otel, openai_agents, langgraph, sweagent, taubench, openhands)]
NAMES = {reader.name for reader in READERS}
FILES = sorted(path for path in DATA.glob("*/*") if path.is_file() and path.parent.name != "gate_state")  # checkpoints are no traces
FOLDERS = {"otel_genai": "otel"}
"""Shared folders that are not named like their format."""


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_each_sample_is_claimed_by_its_own_reader_alone(path):
    """Two readers for one file: whichever is asked first decides what the numbers mean."""
    claims = [reader.name for reader in READERS if reader.recognises(head(path.read_bytes()))]
    assert claims == [path.parent.name] * (path.parent.name in NAMES)


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)
@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"[{}]",
        b"null",
        b'"x"',
        b"1",
        b'{"messages":[{"role":"user","content":"hi"}]}',
        b'[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]',
        b'{"name":"x","attributes":{"http.method":"GET"}}\n{"name":"y","attributes":{}}\n',
        b'{"id":"1","type":"message","kind":"x","source":"agent"}\n{"a":1}\n',
        b'{"trace":{},"spans":[]}',
        b'{"data":[{"id":1}]}',
        b'{"history":[],"trajectory":[]}',
    ],
)
def test_json_of_no_format_is_claimed_by_none(reader, data):
    """Any JSON file in a directory would be reported as an empty trace of some format."""
    assert not reader.recognises(head(data))


def shared_files():
    return sorted(p for p in SHARED.glob("*/*") if p.is_file() and FOLDERS.get(p.parent.name, p.parent.name) in NAMES)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are absent here")
def test_real_traces_give_calls_or_a_true_reason():
    """Samples of our own prove nothing about the files that users have."""
    found = {}
    for path in shared_files():
        data = path.read_bytes()
        source = Source(path.name, head(data), io.BytesIO(data), Skipped(path.name, print))
        (reader,) = [r for r in READERS if r.recognises(source.head)]
        assert reader.name == FOLDERS.get(path.parent.name, path.parent.name)
        try:
            calls = list(reader.read(source))
            found[path.name] = (
                len(calls),
                sum(c.usage.prompt_tokens or 0 for c in calls),
                sum(c.usage.cached_tokens or 0 for c in calls),
                len({c.session for c in calls}),
            )
        except TraceError as fault:
            found[path.name] = fault.what
    assert len(found) == 23
    assert {name: found[name] for name in KNOWN} == KNOWN
    assert all(isinstance(value, str) or value[0] > 0 for value in found.values())


KNOWN = {
    "claude-agent-2025-12-22.trace.json": (4, 0, 0, 1),
    "langgraph-python-2025-08-22.trace.json": (2, 168, 0, 1),
    "microsoft-agent-2025-12-17.trace.json": (2, 293, 0, 1),  # not the agent's 44
    "openai-agents-2025-09-30.trace.json": (2, 140, 0, 1),
    "pydantic-ai-tools-2025-12-04.trace.json": (4, 1315, 0, 2),
    "vercel-aisdk-2025-11-17.trace.json": (1, 62, 0, 1),  # not the outer span's 14
    "langgraph-1.2.24.checkpoints.jsonl": (1, 10, 8, 1),
    "langgraph-1.2.24.stream.jsonl": (1, 10, 8, 1),
    "openai-agents-0.24.0.spans.jsonl": (3, 600, 0, 1),
    "run_state.v1_13_nested_history_ownership.json": "a serialised RunState without a model response: it holds no LLM call",
    "goal-events.jsonl": (4, 107458, 68193, 1),
    "otel_genai_tool_execution_span.json": "only a tool execution span (get_weather), which is no LLM call",
    "vllm-0.32.0.systemone.otlp.jsonl": (2, 176, 0, 1),
    "gpt-4o-airline.first60.json": (790, 0, 0, 60),
}
"""Calls, prompt tokens, cached tokens, sessions: added up by hand from the files."""

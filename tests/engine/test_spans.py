"""Traces of a real vLLM. If these fail, an operator sees a decision and the engine's work for it as two stories."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.engine.rig.server import VllmServer
from tests.engine.rig_gate import TOOLS, Three, conversation
from tests.integration.events.traffic import until
from warmgate.gate import Gate
from warmgate.settings import Settings
from warmgate.telemetry.spans import Spans, trace_headers
from warmgate.turn import Turn


@dataclass(frozen=True)
class Told:
    """A span as the engine exports it. Ids are in hex."""

    name: str
    trace: str
    parent: str


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of the length-delimited fields of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        wire = key & 7
        if wire == 0:
            varint()
            continue
        size = {1: 8, 5: 4}.get(wire) or varint()
        if wire == 2:
            yield key >> 3, message[at : at + size]
        at += size


def spans_of(export: bytes) -> Iterator[Told]:
    """The spans of an ExportTraceServiceRequest: resource_spans 1, scope_spans 2, spans 2; trace_id 1, parent_span_id 4, name 5."""
    for number, resource in fields(export):
        for within, scope in fields(resource) if number == 1 else ():
            for deeper, span in fields(scope) if within == 2 else ():
                if deeper == 2:
                    found = dict(fields(span))
                    yield Told(found.get(5, b"").decode(), found.get(1, b"").hex(), found.get(4, b"").hex())


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Told]]]:
    """An OTLP receiver over HTTP: its address, and what arrived."""
    told: list[Told] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.extend(spans_of(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", told
    server.shutdown()
    server.server_close()


async def test_the_engines_spans_join_ours(
    vllm_server: Callable[..., VllmServer], collector: tuple[str, list[Told]], monkeypatch: pytest.MonkeyPatch
):
    """Each read's ``llm_request`` is a child of its ``warmgate.decide``, which is a child of the agent's span; so is the agent's call."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    endpoint, told = collector
    for name, value in {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    server = vllm_server(fresh=True, num_gpu_blocks=500, max_model_len=4096, extra=("--otlp-traces-endpoint", endpoint))
    ours = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ours))
    options = Settings(
        workers=[server.url], model="qwen3", engines=["systemone"], deadline_ms=60_000, label_mass_floor=0, alignment="always"
    )
    agent: list[str] = []
    async with httpx.AsyncClient(timeout=120) as client, Gate(options, mounts=Three(), telemetry=[Spans(provider)]) as gate:
        for messages in conversation(2):
            turn = Turn("spans", messages, TOOLS)
            with provider.get_tracer("agent").start_as_current_span("agent.turn") as span:
                decision = await gate.decide(turn)
                body = {"model": "qwen3", "messages": messages, "tools": TOOLS, "max_tokens": 4}
                headers = {**decision.headers, **trace_headers()}
                reply = await client.post(f"{decision.worker}/v1/chat/completions", json=body, headers=headers)
                reply.raise_for_status()
                agent.append(f"{span.get_span_context().span_id:016x}")
    mine = {f"{one.context.span_id:016x}": one for one in ours.get_finished_spans() if one.context is not None}
    traces = {f"{one.context.trace_id:032x}" for one in mine.values() if one.context is not None}
    decides = [key for key, one in mine.items() if one.name == "warmgate.decide"]
    assert [f"{mine[key].parent.span_id:016x}" for key in decides] == agent  # type: ignore[union-attr]

    def requests() -> list[Told]:
        return [one for one in told if one.name == "llm_request" and one.trace in traces]

    assert await asyncio.to_thread(until, lambda: len(requests()) >= 8, 30), told
    parents = [one.parent for one in requests()]
    print(
        f"\n{len(parents)} llm_request spans in {len(traces)} traces: "
        + ", ".join(f"{parents.count(key)} below {mine[key].name}" for key in mine)
    )
    assert [parents.count(key) for key in decides] == [3, 3]
    assert [parents.count(key) for key in agent] == [1, 1]

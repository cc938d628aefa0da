"""Logs, spans, records and the fan: nothing secret leaves, nothing breaks a decision."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.unit.telemetry.facts import call, decision, finished, read
from warmgate.errors import OutputError
from warmgate.questions import Noul
from warmgate.replay.record import TraceWriter
from warmgate.replay.run import Options, replay
from warmgate.secret import remember
from warmgate.telemetry.logs import Logs
from warmgate.telemetry.protocol import Approval, Asked, Fallback, Fan, Finished, Silent, Started, Telemetry
from warmgate.telemetry.record import DecisionRecord, Recorder, Records

STARTED = Started("d1", "secret session", "qwen3", "http://user:hunter2hunter2@a:8000")


def all_facts(one: Telemetry) -> None:
    one.decision_started(STARTED)
    one.read(read(2))
    one.fallback(Fallback("d1", "d1-0", "http://a", "systemone", "prefix_read", "WG314"))
    one.decision_finished(finished())
    one.agent_call(call())
    one.approval(Approval("d1", "c1", "b1", approved=True, tool="shell"))
    one.counted("session_moved", {"role": "workers", "reason": "drained"}, 1)
    one.decision_failed("d2", "WG330")
    one.close()


def test_logs_are_json_with_ids_and_nothing_secret():
    """Message text or a key in a log is a leak that nobody notices for months."""
    out = io.StringIO()
    all_facts(Logs(out, salt=b"s"))
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["event"] for row in rows] == [
        "decision.read",
        "decision.fallback",
        "decision.made",
        "agent.call",
        "decision.approval",
        "pool.session_moved",
        "decision.failed",
    ]
    assert "secret" not in out.getvalue()
    assert "hunter2" not in out.getvalue()
    for row in rows[:4]:
        assert row["decision"] == "d1"
        assert row["worker"]
    assert rows[0]["request_id"] == "d1-0"
    assert rows[2]["verdicts"] == {"deny": 1, "allow": 1}
    assert rows[3]["survived"] == 64
    assert rows[2]["session"] == rows[3]["session"]


def test_logs_go_to_the_applications_own_set_up(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="warmgate"):
        Logs().decision_finished(finished())
    assert [record.message for record in caplog.records] == ["decision.made"]


def test_spans():
    """Traces would show no decision, or one that never ends."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from warmgate.telemetry.spans import Spans, trace_headers

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    with provider.get_tracer("agent").start_as_current_span("turn") as turn:
        spans.decision_started(STARTED)
        headers = spans.headers("d1")
        outer = trace_headers()
    assert outer["traceparent"].split("-")[1] == headers["traceparent"].split("-")[1] == f"{turn.get_span_context().trace_id:032x}"
    spans.read(read(2))
    spans.fallback(Fallback("d1", "d1-0", "http://a", "systemone", "prefix_read", "WG314"))
    spans.decision_finished(finished())
    spans.decision_started(Started("d2", "s", "m", "http://a"))
    spans.decision_failed("d2", "WG330")
    spans.decision_started(Started("d3", "s", "m", "http://a"))
    spans.close()
    spans.decision_finished(finished())  # unknown by now
    assert spans.headers("d1") == {}
    made, failed = (
        s for s in exporter.get_finished_spans() if s.name == "warmgate.decide" and s.attributes["warmgate.decision.id"] in ("d1", "d2")
    )
    assert made.attributes is not None
    assert made.attributes["gen_ai.request.model"] == "qwen3"
    assert made.attributes["warmgate.verdicts.deny"] == 1
    assert [e.name for e in made.events] == ["warmgate.read", "warmgate.fallback"]
    assert f"{made.context.span_id:016x}" == headers["traceparent"].split("-")[2]
    assert failed.status.status_code.name == "ERROR"
    text = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert "secret" not in text
    assert "hunter2" not in text
    provider.shutdown()


def test_open_spans_are_bounded(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("opentelemetry")
    from warmgate.telemetry import spans

    monkeypatch.setattr(spans, "OPEN", 3)
    one = spans.Spans()
    for n in range(10):
        one.decision_started(Started(f"d{n}", "s", "m", "http://a"))
    assert len(one._open) == 3


def test_the_record_is_replayable_and_hash_only(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(TraceWriter(path, 16))
    all_facts(recorder)
    assert "secret" not in path.read_text()
    totals = replay([str(path)], Options()).totals
    assert (totals.calls, totals.prompt_tokens, totals.survived_tokens) == (1, 100, 64)


def test_a_full_disk_costs_the_record_only(tmp_path: Path):
    recorder = Recorder(TraceWriter(tmp_path / "t.jsonl", 16))
    recorder.writer.close()
    recorder.agent_call(call())
    assert recorder.lost == 1


def test_decisions_and_approvals_are_recorded(tmp_path: Path):
    """Shadow mode would leave nothing to look back on, and people's words would teach nothing."""
    path = tmp_path / "decisions.jsonl"
    record = DecisionRecord(path, salt=b"s")
    all_facts(record)
    made, word = (json.loads(line) for line in path.read_text().splitlines())
    assert made["verdicts"][1] == {
        "call": "c2",
        "verdict": "allow",
        "rule": None,
        "source": "systemone",
        "policy": None,
        "binding": "b2",
        "shadow": True,
    }
    assert made["mounts"]["tools"] == ["read_file"]
    assert (word["binding"], word["approved"]) == ("b1", True)
    assert "secret" not in path.read_text()
    assert oct(path.stat().st_mode)[-3:] == "600"
    record.decision_finished(finished())
    assert record.lost == 1


def test_a_torn_line_stays_alone(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b'{"torn":')
    record = DecisionRecord(path)
    record.approval(Approval("d", "c", "b", approved=True))
    record.close()
    assert len(path.read_text().splitlines()) == 2


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines; torn ones are passed over, as readers do."""
    found = []
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def test_a_disk_that_filled_up_in_a_line_costs_that_line_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a full disk left of one line would take the next one with it, once there is room again."""
    path = tmp_path / "decisions.jsonl"
    record = DecisionRecord(path)
    write, room = os.write, [30, 0]  # the disk takes 30 bytes, then nothing, then all

    def full(fd: int, data: bytes) -> int:
        if not room:
            return write(fd, data)
        left = room.pop(0)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:left])

    monkeypatch.setattr(os, "write", full)
    for number in range(4):
        record.approval(Approval("d", f"c{number}", "b", approved=True))
    record.close()
    assert [line["call"] for line in lines(path)] == ["c2", "c3"]
    assert record.lost == 2


def test_a_rotation_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder that was read-only for a minute would end the record for good."""
    path = tmp_path / "decisions.jsonl"
    record = DecisionRecord(path, max_bytes=1)
    record.approval(Approval("d", "c0", "b", approved=True))
    replace = Path.replace

    def refused(*_: Any) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", refused)
    record.approval(Approval("d", "c1", "b", approved=True))
    monkeypatch.setattr(Path, "replace", replace)
    record.approval(Approval("d", "c2", "b", approved=True))
    record.close()
    assert record.lost == 1
    assert [line["call"] for line in lines(path)] == ["c2"]
    assert [line["call"] for line in lines(tmp_path / "decisions.1.jsonl")] == ["c0"]


def test_files_that_were_taken_away_are_made_again(tmp_path: Path):
    """Somebody tidies up, and the record goes on into files that nobody can find."""
    folder = tmp_path / "record"
    records = Records(folder, blocks=lambda: (16, "sha256"))
    all_facts(records)
    records.flush()
    shutil.rmtree(folder)
    all_facts(records)
    records.close()
    assert len(lines(folder / "decisions.jsonl")) == 2
    assert replay([str(folder / "trace.jsonl")], Options()).totals.calls == 1


def test_a_forked_child_leaves_its_parents_lines_to_it(tmp_path: Path):
    """What the parent holds back would be written twice, and the child's records into the parent's file."""
    records = Records(tmp_path / "{pid}", blocks=lambda: (16, "sha256"))
    records.agent_call(call())
    child = os.fork()
    if not child:
        with suppress(BaseException):
            records.agent_call(call())
            records.close()
        os._exit(0)
    os.waitpid(child, 0)
    records.close()
    for pid in (os.getpid(), child):
        assert replay([str(tmp_path / str(pid) / "trace.jsonl")], Options()).totals.calls == 1, pid


@pytest.mark.parametrize("text", [False, True])
def test_a_key_is_in_no_record_and_no_span(tmp_path: Path, text: bool):
    """An API key that an agent put into a call's id, a tool's name or a command would lie on the disk in the clear."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from warmgate.telemetry.spans import Spans

    key = "sk-0123456789abcdefghij"
    remember(key)
    folder = tmp_path / "record"
    records, exporter = Records(folder, text=text, blocks=lambda: (16, "sha256")), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    one = decision()
    verdict = structs.replace(one.verdicts["c1"], call=key)
    asked = Asked(Noul(instructions="Is it harmless?"), {"argv": ["curl", "-H", f"Authorization: Bearer {key}"]}, "vllm")
    told = replace(finished(structs.replace(one, verdicts={key: verdict})), model=key, asked={key: asked})
    fan = Fan(records, Spans(provider))
    fan.decision_started(Started("d1", "s", key, "http://a"))
    fan.decision_finished(told)
    fan.agent_call(replace(call(), model=key))
    fan.approval(Approval("d1", key, "b", approved=True, tool=f"tool {key}"))
    fan.close()
    assert fan.faults == 0
    written = (folder / "decisions.jsonl").read_text() + (folder / "trace.jsonl").read_text()
    written += " ".join(span.to_json() for span in exporter.get_finished_spans())
    assert len(lines(folder / "decisions.jsonl")) == 2
    assert "0123456789" not in written
    assert "hunter2" not in written  # in the worker's URL
    assert "***" in written


def test_half_a_surrogate_pair_costs_no_line(tmp_path: Path):
    """An agent names a call by a text that was cut in an emoji, and the record of its decision would be gone."""
    record = DecisionRecord(tmp_path / "decisions.jsonl")
    record.approval(Approval("d", "c \ud83d", "b", approved=True))
    record.close()
    assert [line["call"] for line in lines(tmp_path / "decisions.jsonl")] == ["c \ufffd"]


def test_the_record_rotates(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    record = DecisionRecord(path, max_bytes=300, keep=2)
    for _ in range(20):
        record.approval(Approval("d", "c", "b", approved=True))
    record.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["decisions.1.jsonl", "decisions.2.jsonl", "decisions.jsonl"]
    assert record.lost == 0
    with pytest.raises(OutputError):
        DecisionRecord(tmp_path)
    one = DecisionRecord(path)
    with pytest.raises(OutputError, match="another process"):
        DecisionRecord(path)
    one.close()


class Broken(Silent):
    def decision_finished(self, fact: Finished) -> None:
        raise RuntimeError("no")

    def headers(self, decision: str) -> dict[str, str]:
        raise RuntimeError("no")


def test_a_broken_listener_breaks_nothing():
    """An exporter's fault would become an agent's."""
    out = io.StringIO()
    fan = Fan(Broken(), Logs(out))
    all_facts(fan)
    fan.decision_finished(finished())
    assert fan.faults == 2
    assert fan.headers("d1") == {}
    assert out.getvalue().count("decision.made") == 2
    all_facts(Silent())

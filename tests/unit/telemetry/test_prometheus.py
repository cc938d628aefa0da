"""The metrics: what a fact adds, and that no label can grow without bound or carry what a user wrote."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.telemetry.facts import call, decision, finished, outcome, read
from warmgate.doctor.exposition import Metrics
from warmgate.errors import OptionError
from warmgate.prefix.events import Status
from warmgate.prefix.index import ShadowIndex
from warmgate.telemetry.prometheus import MAX_WORKERS, Prometheus
from warmgate.telemetry.protocol import Approval, Fallback, Parts, fallbacks


def value(prometheus: Prometheus, name: str, **labels: str) -> float:
    page = Metrics(prometheus.page().decode())
    return sum(s.value for s in page.of(f"warmgate_{name}") if labels.items() <= dict(s.labels).items())


def test_survival_adds_up():
    """The ratio on the dashboard would not be the ledger's."""
    one = Prometheus(prefill_rate=100.0)
    one.agent_call(call(cached=32, reusable=64, tokens=100))
    one.read(read(2))
    assert value(one, "reusable_tokens_total", kind="call") == 64
    assert value(one, "survived_tokens_total", kind="call", basis="measured") == 32
    assert value(one, "lost_tokens_total", cause="worker_change") == 32
    assert value(one, "computed_tokens_total", kind="call") == 68
    assert value(one, "floor_tokens_total", kind="call") == 36
    assert value(one, "tax_tokens") == value(one, "computed_tokens_total") - value(one, "floor_tokens_total")
    assert value(one, "tax_seconds", part="prefill") == pytest.approx(value(one, "tax_tokens") / 100)
    assert value(one, "predictions_total", kind="call", result="off") == 1
    assert value(one, "agent_calls_total", reported="yes") == 1
    assert value(one, "reported_cached_tokens_total") == 32
    assert value(one, "reads_total", engine="systemone", outcome="answered") == 1


def test_what_the_engine_did_not_tell_is_called_predicted():
    """A tax that rests on a model of the cache would be read as one that was measured."""
    one = Prometheus()
    one.agent_call(call(cached=32, reusable=64, tokens=100))
    guessed = outcome(32)
    one.agent_call(replace(call(), survival=replace(guessed, entry=replace(guessed.entry, survived_basis="predicted"))))
    for basis in ("measured", "predicted"):
        assert value(one, "survived_tokens_total", basis=basis) == 32
        assert value(one, "lost_tokens_total", basis=basis) == 32
        assert value(one, "computed_tokens_total", basis=basis) == 68
        assert value(one, "tax_tokens", basis=basis) == 32
        assert value(one, "worker_survived_tokens_total", basis=basis) == 32


def test_prompts_without_a_prediction_are_counted():
    """Half the traffic could be missing from the survival on the dashboard, and nobody would know."""
    one = Prometheus()
    one.agent_call(replace(call(), survival=None))
    one.read(replace(read(2), survival=(), questions=3))
    one.read(replace(read(2), survival=(), questions=3, engine=None, outcome="no_answer"))
    one.read(read(2))
    assert value(one, "unpredicted_total", kind="call") == 1
    assert value(one, "unpredicted_total", kind="read") == 3


def test_decisions_verdicts_mounts():
    one = Prometheus()
    one.decision_finished(finished(parts=Parts(hop=0.25, engine=0.5)))
    one.decision_finished(finished(decision(reads=())))
    one.decision_finished(finished(decision(engine=None, outcome="no_answer")))
    one.decision_failed("d9", "WG330")
    assert value(one, "decisions_total", engine="systemone", outcome="answered") == 1
    assert value(one, "decisions_total", engine="rules", outcome="not_asked") == 1
    assert value(one, "decisions_total", outcome="no_answer") == 1
    assert value(one, "decisions_total", outcome="failed") == 1
    assert value(one, "verdicts_total", verdict="deny", source="rules", mode="enforce") == 3
    assert value(one, "verdicts_total", verdict="allow", mode="shadow") == 3
    assert value(one, "mount_changes_total", strategy="append") == 3
    assert value(one, "decision_seconds_sum", part="hop") == 0.25
    assert value(one, "decision_duration_seconds_count") == 3
    assert value(one, "tax_seconds", part="hop") == 0.25


def test_fallbacks_and_moves():
    one = Prometheus()
    for fact in fallbacks(
        "d", "d-0", "http://a", [("systemone", "failed", "WG314"), ("prefix_read", "skipped", None), ("round_trip", "failed", "WG999")]
    ):
        one.fallback(fact)
    assert value(one, "fallbacks_total", **{"from": "systemone", "to": "prefix_read", "reason": "not_supported"}) == 1
    assert value(one, "fallbacks_total", **{"from": "prefix_read", "to": "round_trip", "reason": "skipped"}) == 1
    assert value(one, "fallbacks_total", **{"from": "round_trip", "to": "rules", "reason": "other"}) == 1
    one.counted("session_moved", {"role": "workers", "reason": "drained"}, 2)
    one.counted("worker_lost", {"role": "workers"}, 1)
    assert value(one, "rebinds_total", reason="drained") == 2
    assert value(one, "pool_events_total", event="worker_lost") == 1
    one.approval(Approval("d", "c", "b", approved=False))
    assert value(one, "approvals_total", word="rejected") == 1


def test_labels_are_bounded():
    """One odd value a request, and Prometheus runs out of memory."""
    one = Prometheus()
    hostile = 'x"\n{}' * 50
    for n in range(MAX_WORKERS + 50):
        one.agent_call(call(worker=f"http://user:secret@10.0.{n // 256}.{n % 256}:8000"))
        one.fallback(Fallback("d", "r", "w", f"engine{n}", f"to{n}", f"code{n}"))
        one.read(read(1, engine=f"engine {n}", worker="http://a"))
        one.counted("session_moved", {"reason": f"{hostile}{n}"}, 1)
    page = one.page().decode()
    assert "secret" not in page
    assert hostile not in page
    workers = set(re.findall(r'worker="([^"]*)"', page))
    assert len(workers) <= MAX_WORKERS + 1
    assert "other" in workers
    assert page.count("warmgate_fallbacks_total{") <= 3
    assert page.count("warmgate_rebinds_total{") <= 4


def test_series_that_alerts_need_exist_from_the_start():
    """A rate over a series that is not there is no data, and no alert."""
    page = Metrics(Prometheus().page().decode())
    for name in (
        "reusable_tokens_total",
        "survived_tokens_total",
        "lost_tokens_total",
        "decisions_total",
        "computed_tokens_total",
        "rebinds_total",
    ):
        assert page.of(f"warmgate_{name}"), name


def test_states():
    one = Prometheus()
    index = ShadowIndex(16, source="events")
    index.stored([1, 2])
    one.followed("http://a", index, Status("lagging", 0.0, "late"))
    one.sessions({"http://a": 3})
    assert value(one, "worker_events", worker="http://a", state="lagging") == 1
    assert value(one, "worker_events", worker="http://a", state="fresh") == 0
    assert value(one, "worker_resident_blocks") == 2
    assert value(one, "worker_sessions") == 3
    one.followed("http://a", index, None)
    assert value(one, "worker_events", worker="http://a") == 0


def test_a_missing_folder_is_said(monkeypatch: pytest.MonkeyPatch):
    """Processes would count apart, and each scrape show another one's figures."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nonexistent/folder")
    with pytest.raises(OptionError, match="no folder"):
        Prometheus()


async def test_asgi():
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    app = Prometheus().asgi()
    await app({"type": "http", "method": "GET", "path": "/"}, receive, send)
    assert sent[0]["status"] == 200
    assert b"warmgate_decisions_total" in sent[1]["body"]
    await app({"type": "http", "method": "POST", "path": "/"}, receive, send)
    assert sent[2]["status"] == 405


def test_wsgi():
    heads: list[str] = []
    app = Prometheus().wsgi()
    body = b"".join(app({"REQUEST_METHOD": "GET"}, lambda status, headers: heads.append(status)))
    assert heads == ["200 OK"]
    assert b"warmgate_" in body


def test_the_docs_list_every_series():
    """A series nobody describes is one nobody reads right."""
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    described = dict(re.findall(r"^\| `(warmgate_[a-z_]+)` \| \w+ \| ([a-z, ]*) \|", text, re.MULTILINE))
    one = Prometheus()
    made = {}
    for family in one._registry.collect():
        collector = one._registry._names_to_collectors[family.name]
        made[family.name + ("_total" if family.type == "counter" else "")] = set(collector._labelnames)
    assert {name: {label for label in labels.split(", ") if label} for name, labels in described.items()} == made

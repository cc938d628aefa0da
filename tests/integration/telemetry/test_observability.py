"""A real run, scraped: every series that a panel or rule names is there, a real Prometheus shows the survival of that run, and a replay agrees.

`make test-observability`. The Prometheus parts need Debian's package (`prometheus`, `promtool`), and say so when it is not there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import wsgiref.simple_server
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.events.traffic import Pooled, Traffic, mixed, until
from warmgate.doctor.exposition import Metrics
from warmgate.gate import Gate
from warmgate.prefix.events import sources_of
from warmgate.replay.record import TraceWriter
from warmgate.replay.run import Options, replay
from warmgate.settings import Settings
from warmgate.standin import StandIn
from warmgate.telemetry.prometheus import Prometheus
from warmgate.telemetry.protocol import Fan, Finished
from warmgate.telemetry.record import Recorder
from warmgate.turn import ProposedCall, Turn

FILES = Path(__file__).parents[3] / "examples" / "observability"
ON_DEMAND = {
    "warmgate_diverged_tokens_total": "change",
    "warmgate_reads_total": "engine",
}
"""Series that appear with their first event; the run has one of each."""


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_: Any) -> None: ...


async def decisions(url: str, model: str, fan: Fan) -> None:
    async with Gate(Settings(workers=(url,), model=model)) as gate:
        for n in range(3):
            turn = Turn(f"s{n}", [{"role": "user", "content": "hello"}], proposed_calls=[ProposedCall("c1", "shell", {"command": "ls"})])
            fan.decision_finished(Finished(await gate.decide(turn), turn.session, model))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Traffic, Path, str]]:
    """Two stand-in rounds with decisions and evictions, everything listening, the metrics served over HTTP."""
    path = tmp_path_factory.mktemp("record") / "trace.jsonl"
    prometheus = Prometheus(prefill_rate=5000)
    fan = Fan(prometheus, Recorder(TraceWriter(path, 32)))
    with StandIn(block_size=32, kv_tokens=40 * 32, kv_events_port=0, max_model_len=1200) as worker:
        source = sources_of(httpx.get(worker.url + "/kv_event_sources").json(), worker.url)[0]
        model = httpx.get(worker.url + "/v1/models").json()["data"][0]["id"]
        traffic = Traffic(Pooled(worker.url, model, 32, 1200, source.endpoint, source.replay), blocks=40, telemetry=fan)
        server = wsgiref.simple_server.make_server("127.0.0.1", 0, prometheus.wsgi(), handler_class=Quiet)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            assert traffic.reader is not None
            assert until(lambda: traffic.reader is not None and traffic.reader.status.state == "fresh")
            mixed(traffic, sessions=3, rounds=3, seed=7, reads=False)
            asyncio.run(decisions(worker.url, model, fan))
            index = traffic.trackers["events"].index(worker.url)
            assert index is not None
            prometheus.followed(worker.url, index, traffic.reader.status)
            prometheus.sessions({worker.url: 3})
            fan.listeners[1].close()
            assert fan.faults == 0
            yield prometheus, traffic, path, f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            traffic.close()


def named() -> dict[str, set[str]]:
    """Series that each file of the example names."""
    found: dict[str, set[str]] = {}
    rules = (FILES / "rules.yml").read_text()
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    texts = {"rules.yml": rules, **{p["title"]: " ".join(t["expr"] for t in p["targets"]) for p in dashboard["panels"]}}
    for where, text in texts.items():
        found[where] = set(re.findall(r"\bwarmgate_[a-z_]+\b", text))
    return found


def test_every_series_named_is_in_a_scrape(run: tuple[Prometheus, Traffic, Path, str]):
    """A panel would stay empty, an alert silent, and nobody would know."""
    page = Metrics(httpx.get(run[3]).text)
    missing = {f"{where}: {name}" for where, names in named().items() for name in names if not page.of(name)}
    assert missing <= {f"Outside R: {name}" for name in ON_DEMAND}, missing
    assert all(named().values())


def test_labels_named_are_there(run: tuple[Prometheus, Traffic, Path, str]):
    """A rule that sums by a label that does not exist gives one unnamed line."""
    page = Metrics(httpx.get(run[3]).text)
    text = (FILES / "rules.yml").read_text() + (FILES / "dashboard.json").read_text()
    known = {label for name in page.names for sample in page.of(name) for label in sample.labels} | {"change"}
    for group in re.findall(r"by \(([a-z_, ]+)\)", text):
        assert {label.strip() for label in group.split(",")} <= known, group
    for label in re.findall(r"\{([a-z_]+)=", text):
        assert label in known


def test_replay_of_the_record_gives_the_live_totals(run: tuple[Prometheus, Traffic, Path, str]):
    """Live figures and replayed ones would tell two stories of the same traffic."""
    page = Metrics(httpx.get(run[3]).text)
    totals = replay([str(run[2])], Options()).totals
    live = run[1].trackers["events"].sums.calls
    assert (totals.calls, totals.prompt_tokens, totals.reusable_tokens, totals.survived_tokens) == (
        live.calls,
        live.prompt_tokens,
        live.reusable,
        live.survived,
    )
    assert page.total("warmgate_reusable_tokens_total") == totals.reusable_tokens
    assert page.total("warmgate_survived_tokens_total") == totals.survived_tokens
    assert totals.outside.divergence == live.divergence
    assert live.lost.keys() == {"eviction"}


def test_top_shows_it(run: tuple[Prometheus, Traffic, Path, str]):
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from warmgate.cli.top import command; sys.exit(command(['--once', sys.argv[1]], standalone_mode=False))", run[3]],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "160"}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    survival = run[1].trackers["events"].sums.calls.survival
    assert survival is not None
    assert f"survival {100 * survival:.1f} %" in done.stdout
    assert "eviction" in done.stdout
    assert "fresh" in done.stdout


WORKER = """
import os, sys
from warmgate.telemetry.prometheus import Prometheus
from tests.unit.telemetry.facts import call
one = Prometheus()
for _ in range(int(sys.argv[1])):
    one.agent_call(call(cached=32))
one.sessions({"http://a": int(sys.argv[1])})
print(one.page().decode() if sys.argv[2] == "show" else os.getpid())
"""


def test_several_processes_add_up(tmp_path: Path):
    """Behind gunicorn each scrape would show one process's share."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def process(calls: int, what: str) -> str:
        done = subprocess.run([sys.executable, "-c", WORKER, str(calls), what], capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    process(3, "quiet")
    pid = int(process(4, "quiet"))
    page = Metrics(process(5, "show"))
    assert page.total("warmgate_survived_tokens_total") == 12 * 32
    assert page.total("warmgate_reusable_tokens_total") == 12 * 64
    assert page.total("warmgate_worker_sessions") == 12
    done = subprocess.run(
        [sys.executable, "-c", f"from warmgate.telemetry.prometheus import forget_process; forget_process({pid})"],
        env=environment, timeout=60, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = Metrics(process(0, "show"))
    assert page.total("warmgate_worker_sessions") == 8
    assert page.total("warmgate_survived_tokens_total") == 12 * 32  # counters of the dead still count


def tool(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("WARMGATE_PROMETHEUS_BIN", "") + os.pathsep + os.environ.get("PATH", ""))
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install prometheus)")
    return found


def test_rules_load():
    done = subprocess.run([tool("promtool"), "check", "config", str(FILES / "prometheus.yml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_shows_the_survival(run: tuple[Prometheus, Traffic, Path, str], tmp_path: Path):
    """The rule's ratio is the ledger's, to the digit, as an operator sees it."""
    binary = tool("prometheus")
    target = run[3].split("/")[2]
    config = (FILES / "prometheus.yml").read_text().replace("127.0.0.1:9464", target).replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(config)
    (tmp_path / "rules.yml").write_text((FILES / "rules.yml").read_text().replace("interval: 15s", "interval: 1s"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [binary, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        want = run[1].trackers["events"].sums.calls.survival
        assert want is not None
        told: list[Any] = []

        def shown() -> bool:
            time.sleep(0.3)
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": "warmgate:survival:ratio"}, timeout=5).json()
            except (httpx.HTTPError, ValueError):
                return False
            told[:] = answer["data"]["result"]
            return bool(told)

        assert until(shown, 60), (tmp_path / "log").read_text()[-2000:]
        assert float(told[0]["value"][1]) == pytest.approx(want)
        rules = httpx.get(f"http://127.0.0.1:{port}/api/v1/rules").json()["data"]["groups"]
        assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}
        assert sum(len(group["rules"]) for group in rules) == 15
    finally:
        process.terminate()
        process.wait(20)

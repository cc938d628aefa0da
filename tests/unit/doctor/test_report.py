"""If these fail, the report itself misleads: scripts read the wrong code, people see a broken table, or odd replies end in a traceback."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import httpx
import msgspec
import pytest
from rich.console import Console

from warmgate.doctor import CHECKS, Facts
from warmgate.doctor.check import failed, passed, skipped, warned
from warmgate.doctor.report import EndpointReport, Report
from warmgate.doctor.table import render

from .fake import FakeVllm, check, report

DOCS = Path(__file__).parents[3] / "docs/doctor.md"


def endpoint(*checks, **facts) -> EndpointReport:
    return EndpointReport(url="http://w:1", checks=list(checks), facts=Facts(**facts), requests=3, tokens_sent=1234, seconds=1.5)


GOOD = passed("reachable", "answers")
DEAD = failed("reachable", "refused", mend="start it")


@pytest.mark.parametrize(
    ("endpoints", "code"),
    [
        ([endpoint(GOOD)], 0),
        ([endpoint(GOOD, warned("metrics", "x"), skipped("kv_events", "y"))], 0),
        ([endpoint(GOOD, skipped("route", "no time left"))], 1),
        ([endpoint(GOOD, failed("route", "x"))], 1),
        ([endpoint(DEAD)], 3),
        ([endpoint(GOOD, failed("route", "x")), endpoint(DEAD)], 3),
    ],
)
def test_exit_codes(endpoints, code):
    """A deployment script would go on."""
    assert Report(endpoints=endpoints).exit_code == code


def test_json_has_what_the_page_promises():
    """Programs that read warmgate.doctor/1 would find a field missing."""
    found = report(FakeVllm(), origins=("https://a.example",))
    data = json.loads(Report(endpoints=[found]).to_json())
    assert data["schema"] == "warmgate.doctor/1"
    assert data["exit_code"] == 1
    row = data["endpoints"][0]
    assert row.keys() == {"url", "reachable", "counts", "checks", "facts", "requests", "tokens_sent", "seconds"}
    assert sum(row["counts"].values()) == len(row["checks"])
    assert [c["name"] for c in row["checks"]] == list(CHECKS)
    assert all(c.keys() == {"name", "status", "seen", "mend", "where"} for c in row["checks"])
    assert row["facts"].keys() == set(Facts.__struct_fields__)


def test_the_page_describes_every_check_and_fact():
    """A user who looks up a line of the report would find nothing."""
    text = DOCS.read_text()
    headings = re.findall(r"^### `(\w+)`$", text, re.MULTILINE)
    assert headings == list(CHECKS)
    assert [name for name in Facts.__struct_fields__ if f"`{name}`" not in text] == []


def drawn(found: Report, *, terminal: bool, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    render(found, Console(file=file, force_terminal=terminal, width=100, legacy_windows=False))
    file.flush()
    return file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_names_with_markup_are_shown_as_they_are():
    """A model called [red]x[/] would vanish from the table, or colour it."""
    found = Report(endpoints=[endpoint(GOOD, passed("models", "[red]x[/red] [link=http://evil]"), model="[bold]m")])
    for terminal in (True, False):
        text = drawn(found, terminal=terminal)
        assert "[red]x[/red] [link=http://evil]" in text
        assert "[bold]m" in text


def test_plain_lines_for_pipes_and_ascii_for_old_terminals():
    """A log file would fill with boxes, or the command would die on an arrow."""
    found = Report(endpoints=[endpoint(DEAD, *(skipped(name, "the endpoint does not answer") for name in CHECKS[1:8]), server="vllm")])
    text = drawn(found, terminal=False)
    assert re.search(r"^  FAIL reachable +refused$", text, re.MULTILINE)
    assert re.search(r"^ +→ start it$", text, re.MULTILINE)
    assert text.count("the endpoint does not answer") == 1, "one reason for many is told once"
    assert "\x1b" not in text
    assert "-> start it" in drawn(found, terminal=False, encoding="ascii")


def test_control_characters_do_not_reach_the_terminal():
    """A hostile server could rewrite the screen."""
    fake = FakeVllm()
    fake.routes["GET /version"] = httpx.Response(200, json={"version": "0.32.0\x1b[2J\n"})
    fake.routes["GET /v1/models"] = httpx.Response(200, json={"data": [{"id": "m\x1b]0;x\x07", "owned_by": "vllm"}]})
    found = report(fake)
    assert "\x1b" not in drawn(Report(endpoints=[found]), terminal=False)
    assert all(c.seen.isprintable() for c in found.checks)


ODD = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"x"',
    b"7",
    b"[" * 3000,
    b"\xff\xfe\x00",
    b"<html>",
    b'{"id": 5, "data": [[]], "version": {}, "usage": {"prompt_tokens": "many"}, "tokens": [null], "answers": []}',
    b'{"data": [{"id": "m"}], "version": [], "usage": [], "tokens": [1.5, -1], "answers": {"noul": null}, "diagnostics": 3}',
    b'{"data": [{"id": "m", "owned_by": [], "max_model_len": 1e400}], "version": "", "usage": {"prompt_tokens": 1e308}, "tokens": {}}',
    b'vllm:cache_config_info{block_size="-1",kv_cache_size_tokens="99999999999999999999",engine=""} 1\nvllm:num_requests_running 1e999\n',
]
PATHS = ("/health", "/version", "/v1/models", "/metrics", "/kv_event_sources", "/v1/systemone", "/v1/completions", "/tokenize")


@pytest.mark.parametrize("body", ODD)
@pytest.mark.parametrize("status", [200, 404, 500])
def test_any_reply_to_any_route_gives_a_report(status, body):
    """One odd server would end the whole examination in a traceback."""
    for path in PATHS:
        fake = FakeVllm()
        odd = httpx.Response(status, content=body)
        fake.routes |= {f"GET {path}": odd, f"POST {path}": odd, f"OPTIONS {path}": odd}
        found = report(fake)
        assert [c.name for c in found.checks] == [name for name in CHECKS if name != "cors_origin"]
        msgspec.json.decode(Report(endpoints=[found]).to_json())
    assert check(found, "reachable")[0] == "pass"

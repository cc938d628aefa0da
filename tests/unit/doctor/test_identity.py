"""If these fail, the doctor mistakes what answers, and everything it says after that is about something else."""

from __future__ import annotations

import httpx
import pytest

from warmgate.doctor.identity import release_of
from warmgate.doctor.styles import CLEF, D1, DGEMMA, QWEN3, QWEN35, by_name

from .fake import FakeVllm, check, report


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.32.0", (0, 32)),
        ("0.33.0rc1", (0, 33)),
        ("0.32.1.dev5+gabc", (0, 32)),
        ("v0.31.2", (0, 31)),
        ("0.32", (0, 32)),
        ("1.0.0", (1, 0)),
        ("0.1.dev1+gabc", None),
        ("dev", None),
        ("", None),
        ("99999.1", None),
    ],
)
def test_releases_out_of_version_strings(text, release):
    """A release candidate or a build with a hash would be taken for an older vLLM."""
    assert release_of(text) == release


@pytest.mark.parametrize(
    ("name", "style"),
    [
        ("Qwen/Qwen3-8B", QWEN3),
        ("qwen3.5-35b", QWEN35),
        ("Qwen3_5-moe", QWEN35),
        ("LiquidAI/d1", D1),
        ("LFM2-VL-1.6B", D1),
        ("cloudflare/clef-omni", CLEF),
        ("diffusion-gemma", DGEMMA),
        ("llama-3", None),
        (None, None),
    ],
)
def test_families_by_name(name, style):
    """The hint for a gateway that hides everything but the name would be wrong."""
    assert by_name(name) is style


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("0.31.0", "warn", "before 0.32"),
        ("0.32.4", "pass", "0.32.4"),
        ("0.33.0", "pass", "not run against"),
        ("0.34.0", "warn", "newer"),
        ("0.1.dev7", "warn", "no release number"),
    ],
)
def test_what_a_version_means(version, status, words):
    """A user would not learn that their vLLM is too old, or newer than what was tried."""
    fake = FakeVllm()
    fake.routes["GET /version"] = httpx.Response(200, json={"version": version})
    found = check(report(fake), "version")
    assert found[0] == status
    assert words in found[1]


def test_a_dead_engine_is_a_failure():
    """503 from /health means that no decision will come."""
    fake = FakeVllm()
    fake.routes["GET /health"] = httpx.Response(503)
    found = report(fake)
    assert check(found, "health")[0] == "fail"
    assert found.exit_code == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"null", b"[]", b'{"data": null}', b'{"data": {"id": "m"}}', b"\xff\xfe", b'"data"', b"[" * 5000]
)
def test_a_server_that_lists_no_models_is_no_model_server(body):
    """A plain web server answers 200 to much, and 501 to POST: its reports must not speak of read strategies."""
    fake = FakeVllm()
    fake.routes |= {f"GET {path}": httpx.Response(200, content=body) for path in ("/v1/models", "/version", "/metrics")}
    fake.routes["POST /v1/systemone"] = httpx.Response(501, text="Unsupported method ('POST')")
    found = report(fake)
    assert check(found, "models")[0] == "fail"
    assert "no model server" in check(found, "models")[1]
    assert check(found, "route")[:2] == ("skip", "not a model server")
    assert all(request.method == "GET" for request in fake.seen)
    assert found.exit_code == 1


def test_rows_that_are_no_models_are_passed_over():
    """One odd entry in the list would hide the others."""
    fake = FakeVllm()
    rows = [None, 7, {"id": 5}, {"id": ""}, {"id": "good", "owned_by": "vllm", "max_model_len": "long"}]
    fake.routes["GET /v1/models"] = httpx.Response(200, json={"data": rows})
    assert check(report(fake), "models")[:2] == ("pass", "good")


def test_a_model_that_is_not_served_fails_with_those_that_are():
    """A user with a typing error would be told about an absent route."""
    found = report(FakeVllm(), model="n")
    assert check(found, "models") == ("fail", "'n' is not served; served: m", "name one of these with --model")
    assert check(found, "route")[:2] == ("skip", "no model to ask; see models")


def test_a_vllm_that_lists_nothing_is_still_a_vllm():
    """Its health, metrics and key would not be looked at."""
    fake = FakeVllm()
    fake.routes["GET /v1/models"] = httpx.Response(500, text="oops")
    found = report(fake)
    assert check(found, "models")[0] == "fail"
    assert check(found, "metrics")[0] == "pass"


def test_a_redirect_names_its_target():
    """A user would be told that there is no model server, not that they wrote http for https."""
    fake = FakeVllm()
    target = {"location": "https://elsewhere.example/health"}
    fake.routes = {f"GET {path}": httpx.Response(301, headers=target) for path in ("/health", "/version", "/v1/models", "/metrics")}
    found = report(fake)
    assert check(found, "reachable")[0] == "warn"
    assert "https://elsewhere.example/health" in check(found, "reachable")[1]
    assert check(found, "models")[2].startswith("give the URL it redirects to")


def test_the_key_never_shows_even_when_the_server_sends_it_back():
    """A report is pasted into issues."""
    fake = FakeVllm()
    fake.routes["GET /version"] = httpx.Response(200, json={"version": "0.32.0 for Bearer sesame-open"})
    fake.routes["POST /v1/systemone"] = httpx.Response(500, json={"error": {"message": "bad token sesame-open"}})
    found = report(fake, api_key="sesame-open")
    assert not [c for c in found.checks if "sesame-open" in f"{c.seen}{c.mend}{c.where}"]
    assert "***" in check(found, "route")[1]

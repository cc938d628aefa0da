"""If these fail, a user pins sessions to an address that scatters them."""

from __future__ import annotations

import httpx

from .fake import FakeVllm, check, report


def test_ranks_behind_one_address():
    """Data-parallel ranks have a cache each; no header reaches one of them through systemone."""
    fake = FakeVllm()
    fake.ranks = ["0", "1"]
    found = report(fake)
    assert check(found, "one_worker")[0] == "warn"
    assert found.facts.engines == 2
    assert check(found, "reads_cached")[0] == "skip", "counters of several engines prove nothing about one"


def test_processes_that_answer_in_turn():
    """A load balancer without any header of its own would go unseen."""
    fake = FakeVllm()
    fake.started = ["100.0", "200.0"]
    status, seen, _ = check(report(fake), "one_worker")
    assert status == "warn"
    assert "2 processes" in seen


def test_nothing_found_where_requests_scatter_is_no_verdict():
    """A full-attention worker behind a gateway would be called a hybrid."""
    fake = FakeVllm()
    fake.ranks = ["0", "1"]
    fake.cached = [0, 32, 0, 0, 0, 0]
    assert check(report(fake), "shorter_prefix")[0] == "skip"
    fake = FakeVllm()
    fake.ranks = ["0", "1"]
    fake.cached = [0, 0, 0, 0, 0, 0]
    found = check(report(fake), "prefix_caching")
    assert found[0] == "warn"
    assert "different workers" in found[2]


def test_gateways_by_their_headers():
    """Stickiness is then the gateway's to keep: the user must know that there is one."""
    for headers in ({"via": "1.1 edge"}, {"x-smg-routed-worker-id": "http://w"}, {"server": "nginx/1.25"}, {"cf-ray": "1"}):
        fake = FakeVllm()
        fake.routes["GET /v1/models"] = httpx.Response(200, json={"data": [{"id": "m", "owned_by": "vllm"}]}, headers=headers)
        found = report(fake)
        assert check(found, "gateway")[0] == "warn", headers
        assert found.facts.gateway is True
        assert check(found, "one_worker")[0] == "skip"


def test_a_gateway_that_answers_some_routes_itself():
    """vllm-router passes /version on but answers /health: two servers at one address."""
    fake = FakeVllm()
    fake.server = ""
    fake.routes["GET /version"] = httpx.Response(200, json={"version": "0.32.0"}, headers={"server": "uvicorn"})
    assert check(report(fake), "gateway")[0] == "warn"


def test_a_gateway_that_hides_version_and_metrics():
    """smg does."""
    fake = FakeVllm()
    fake.routes |= {"GET /version": httpx.Response(404), "GET /metrics": httpx.Response(404)}
    fake.ids = False  # and it takes no token ids
    found = report(fake)
    assert "no /version and no /metrics" in check(found, "gateway")[1]
    assert found.facts.version == "0.32.0", "the completions' fingerprint tells it"
    assert check(found, "shorter_prefix")[0] == "pass"
    assert "words" in check(found, "shorter_prefix")[1]


def test_a_request_id_that_a_gateway_drops():
    """A decision could not be found in the worker's log."""
    fake = FakeVllm()

    def dropped(request: httpx.Request) -> httpx.Response:
        request.headers["x-request-id"] = "of-its-own"
        return fake.post_v1_systemone(request)

    fake.routes["POST /v1/systemone"] = dropped
    found = report(fake)
    assert check(found, "request_id")[0] == "warn"
    assert found.facts.request_id == "lost"
    fake = FakeVllm()
    fake.echo = True
    assert report(fake).facts.request_id == "header"

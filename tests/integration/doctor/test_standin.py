"""If these fail, the report on a server of known release, style or set-up is not what that server is."""

from __future__ import annotations

import asyncio
import time

import pytest

from warmgate.doctor import EndpointReport, Options, examine
from warmgate.standin import FAULTS, StandIn

from .servers import gateway, web

ORIGIN = "https://app.example"


def doctor(url: str, seconds: float = 20.0, **options) -> EndpointReport:
    return asyncio.run(examine([url], Options(**options), seconds=seconds)).endpoints[0]


def statuses(found: EndpointReport, *names: str) -> list[str]:
    by_name = {check.name: check.status for check in found.checks}
    return [by_name[name] for name in names]


def seen(found: EndpointReport, name: str) -> str:
    return next(check.seen for check in found.checks if check.name == name)


def test_a_healthy_worker_has_nothing_to_mend():
    with StandIn() as worker:
        found = doctor(worker.url)
        assert {check.status for check in found.checks} == {"pass"}
        assert found.exit_code == 0
        assert "stand-in" in seen(found, "version")
        asked = [exchange for exchange in worker.requests if exchange.method == "POST" and exchange.status == 200]
    assert found.facts.shorter_prefix == "first"
    assert found.facts.hit_granularity == found.facts.block_size == 16
    assert found.facts.reads_use_cache is True
    assert found.facts.cached_tokens_reported is True
    assert 0 < found.tokens_sent < 4000
    assert len(asked) < 15


def test_0_31_has_no_route_and_lets_every_site_in():
    with StandIn(version="0.31") as worker:
        found = doctor(worker.url, origins=(ORIGIN,))
    assert statuses(found, "version", "route", "cors_stranger", "cors_origin") == ["warn", "fail", "warn", "pass"]
    assert "older than it" in seen(found, "route")
    assert found.exit_code == 1


def test_0_33_is_said_to_be_known_from_a_stand_in():
    with StandIn(version="0.33") as worker:
        found = doctor(worker.url)
    assert found.exit_code == 0
    assert "0.33.0" in seen(found, "version")
    assert "/v1/decisions answers too" in seen(found, "route")


@pytest.mark.parametrize(("style", "told", "strategy"), [("d1", "d1", "pass"), ("clef", "clef", "warn"), ("dgemma", "dgemma", "pass")])
def test_styles_are_told_from_behaviour(style, told, strategy):
    """A gate would send instructions to a model that refuses them, or pay for affinity that buys nothing."""
    with StandIn(style=style, model="a-name-that-says-nothing") as worker:
        found = doctor(worker.url)
    assert found.facts.style == told
    assert statuses(found, "strategy") == [strategy]
    assert found.facts.reads_use_cache is (style != "clef")


def test_keys():
    with StandIn(api_key="sesame-open") as worker:
        assert statuses(doctor(worker.url), "api_key", "route") == ["fail", "skip"]
        assert statuses(doctor(worker.url, api_key="wrong"), "api_key", "route") == ["fail", "skip"]
        right = doctor(worker.url, api_key="sesame-open")
    assert statuses(right, "api_key", "route", "shorter_prefix") == ["pass", "pass", "pass"]
    assert not [check for check in right.checks if "sesame" in f"{check.seen}{check.mend}{check.where}"]


def test_origins():
    with StandIn(allowed_origins=[ORIGIN]) as worker:
        found = doctor(worker.url, origins=(ORIGIN, "https://other.example"))
    rows = {check.where: check for check in found.checks if check.name == "cors_origin"}
    assert rows[f"origin {ORIGIN}"].status == "pass"
    assert rows["origin https://other.example"].status == "fail"
    assert "--allowed-origins" in (rows["origin https://other.example"].mend or "")
    assert statuses(found, "cors_stranger") == ["pass"]
    with StandIn(allowed_origins=["*"]) as worker:
        assert statuses(doctor(worker.url), "cors_stranger") == ["warn"]


def test_kv_events():
    with StandIn(kv_events_port=0) as worker:
        found = doctor(worker.url)
    assert statuses(found, "kv_events") == ["pass"]
    assert "tcp://" in seen(found, "kv_events")


def test_a_gateway_that_hides_metrics_and_version():
    with StandIn() as worker, web(gateway(worker.url, frozenset({"/metrics", "/version", "/kv_event_sources"}))) as url:
        found = doctor(url)
    assert statuses(found, "gateway", "one_worker", "metrics", "route", "request_id") == ["warn", "skip", "warn", "pass", "warn"]
    assert statuses(found, "shorter_prefix", "cached_tokens") == ["pass", "pass"]
    assert found.exit_code == 0


def test_a_gateway_that_passes_everything_on_is_seen_by_its_server_header():
    with StandIn() as worker, web(gateway(worker.url, frozenset())) as url:
        found = doctor(url)
    assert statuses(found, "reads_cached") == (["skip"] if found.facts.gateway else ["pass"])
    assert found.exit_code == 0


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_fault_of_the_stand_in_gives_a_report_in_time(fault):
    """A faulty worker is what a doctor is called for: no crash, no hang, and no clean bill."""
    value = {"slow": "=0.1", "drip_feed": "=0.3", "huge_body": "=17"}.get(fault, "")
    with StandIn(fault=fault + value) as worker:
        begun = time.monotonic()
        found = doctor(worker.url, seconds=3.0)
        assert time.monotonic() - begun < 3.5
    assert found.exit_code in (0, 1)
    harmless = {"slow", "extra_fields", "wrong_content_type"}
    assert (found.exit_code == 0 and {check.status for check in found.checks} == {"pass"}) == (fault in harmless), found.checks

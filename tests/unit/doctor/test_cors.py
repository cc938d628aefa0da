"""If these fail, a user believes that a browser may, or may not, talk to the worker, and the browser disagrees."""

from __future__ import annotations

import httpx
import pytest

from warmgate.doctor.cors import check_origin, preflight_allows
from warmgate.engines.http import Reply
from warmgate.errors import OptionError

from .fake import FakeVllm, check, report

ORIGIN = "https://app.example"


@pytest.mark.parametrize(
    ("status", "headers", "wanted", "allowed"),
    [
        (200, {"access-control-allow-origin": "*", "access-control-allow-headers": "Content-Type"}, ["content-type"], True),
        (204, {"access-control-allow-origin": ORIGIN, "access-control-allow-headers": "*"}, ["content-type"], True),
        (200, {"access-control-allow-origin": ORIGIN, "access-control-allow-headers": "*"}, ["content-type", "authorization"], False),
        (200, {"access-control-allow-origin": ORIGIN, "access-control-allow-headers": "*, Authorization"}, ["authorization"], True),
        (200, {"access-control-allow-origin": ORIGIN + "/", "access-control-allow-headers": "*"}, ["content-type"], False),
        (200, {"access-control-allow-origin": "https://other.example", "access-control-allow-headers": "*"}, ["content-type"], False),
        (200, {"access-control-allow-origin": ORIGIN}, ["content-type"], False),
        (400, {"access-control-allow-origin": ORIGIN, "access-control-allow-headers": "*"}, ["content-type"], False),
        (200, {}, [], False),
    ],
)
def test_what_a_browser_makes_of_a_preflight(status, headers, wanted, allowed):
    """By the Fetch standard: `*` does not cover Authorization, an origin is compared letter by letter, an error refuses."""
    assert preflight_allows(Reply(status, httpx.Headers(headers), b""), ORIGIN, wanted)[0] is allowed


@pytest.mark.parametrize("good", ["http://localhost:3000", "https://a.example", "http://[::1]:8080", "chrome-extension://abc", "null"])
def test_origins_as_browsers_send_them(good):
    """An origin that browsers do send would be refused."""
    assert check_origin(good) == good


@pytest.mark.parametrize(
    "bad", ["", "a.example", "https://a.example/", "https://a.example/x", "https://A.example", "https://u:p@a.example", "https://a.example:0",
            "https://a b", "https://ä.example", "https://", "*", "https://[::1", "https://a.example?x"]
)  # fmt: skip
def test_what_is_no_origin(bad):
    """A typing error (mostly a slash at the end) would be reported as a blocked origin."""
    with pytest.raises(OptionError):
        check_origin(bad)


def _cors(allow: str):
    """A server whose CORS lets in `allow`: the sender's own origin, or everybody."""

    def answer(request: httpx.Request) -> httpx.Response:
        origin = request.headers["origin"]
        return httpx.Response(
            200,
            headers={"access-control-allow-origin": origin if allow == "mirror" else allow, "access-control-allow-headers": "content-type"},
        )

    return answer


def test_one_open_route_is_named():
    """A gateway that opens a single route to every site would pass."""
    fake = FakeVllm()
    fake.routes["OPTIONS /v1/chat/completions"] = _cors("mirror")
    status, seen, mend = check(report(fake), "cors_stranger")
    assert status == "warn"
    assert "POST /v1/chat/completions" in seen
    assert "/tokenize" not in seen
    assert "--allowed-origins" in mend


def test_an_origin_let_in_on_some_routes_only_fails_and_the_flag_names_all_origins():
    """A page would break on the one route that was forgotten; a flag with one origin would lock the other out."""
    fake = FakeVllm()
    for path in ("/v1/systemone", "/v1/completions", "/tokenize"):
        fake.routes[f"OPTIONS {path}"] = _cors(ORIGIN)
    found = report(fake, origins=(ORIGIN, "https://b.example"))
    rows = [c for c in found.checks if c.name == "cors_origin"]
    assert [row.status for row in rows] == ["fail", "fail"]
    assert "POST /v1/chat/completions" in rows[0].seen
    assert "/tokenize" not in rows[0].seen
    assert """'["https://app.example","https://b.example"]'""" in (rows[0].mend or "")
    assert found.exit_code == 1


def test_preflights_carry_no_key():
    """The API key would be sent where no browser sends it."""
    fake = FakeVllm()
    report(fake, api_key="sesame", origins=(ORIGIN,))
    assert all("authorization" not in request.headers for request in fake.seen if "origin" in request.headers)
    assert any("authorization" in request.headers for request in fake.seen)

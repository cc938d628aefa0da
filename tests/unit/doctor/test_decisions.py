"""If these fail, a user learns too late, or wrongly, that no decision will come from this server."""

from __future__ import annotations

import json

import httpx
import pytest

from .fake import FakeVllm, check, report


def error(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message, "type": "x", "param": None, "code": status}})


@pytest.mark.parametrize(
    ("version", "reply", "status", "words", "mend"),
    [
        ("0.31.0", httpx.Response(404, json={"detail": "Not Found"}), "fail", "older than it", "upgrade"),
        ("0.32.0", httpx.Response(404, json={"detail": "Not Found"}), "fail", "no such route", "round_trip"),
        ("0.32.0", error(501, "The model does not support the structured decision API"), "fail", "501", "--logprobs-mode"),
        ("0.32.0", error(503, "queue is full"), "warn", "no room", "less busy"),
        ("0.32.0", error(500, "boom"), "fail", "boom", "log"),
        ("0.32.0", httpx.Response(200, text="hello"), "fail", "not what was asked", "dialect"),
        ("0.32.0", httpx.Response(200, json={"answers": {"noul": {"type": "noul", "noul": 7}}}), "fail", "not what was asked", "dialect"),
    ],
)
def test_what_stands_in_the_way_of_a_decision(version, reply, status, words, mend):
    """Each cause has another cure."""
    fake = FakeVllm()
    fake.routes["GET /version"] = httpx.Response(200, json={"version": version})
    fake.routes["POST /v1/systemone"] = reply
    found = report(fake)
    got = check(found, "route")
    assert got[0] == status
    assert words in got[1]
    assert mend in got[2]
    assert check(found, "strategy")[0] == check(found, "label_mass")[0] == "skip"
    assert found.exit_code == (1 if status == "fail" else 0)


def test_a_key_that_is_demanded():
    """Without one, nothing behind /v1 may be reported as broken."""
    fake = FakeVllm()

    def guarded(request: httpx.Request) -> httpx.Response:
        if request.headers.get("authorization") != "Bearer sesame":
            return httpx.Response(401, json={"error": "Unauthorized"})
        return fake.get_v1_models(request)

    fake.routes["GET /v1/models"] = guarded
    without = report(fake)
    assert check(without, "api_key")[0] == "fail"
    assert "--api-key-env" in check(without, "api_key")[2]
    assert check(without, "route")[0] == "skip"
    assert without.facts.key_demanded
    assert check(report(fake, api_key="wrong"), "api_key")[:2] == ("fail", "401: the key in the variable is not accepted")
    right = report(fake, api_key="sesame")
    assert check(right, "api_key")[0] == "pass"
    assert check(right, "route")[0] == "pass"
    fake.routes["GET /invocations"] = httpx.Response(405)
    beyond = check(report(fake, api_key="sesame"), "api_key")
    assert beyond[0] == "warn", "vLLM's key leaves this route open, and the address is no loopback"
    assert "/invocations" in beyond[1]


def test_an_open_server_on_a_network_warns():
    """Anybody there could use it."""
    assert check(report(FakeVllm()), "api_key")[0] == "warn"


def test_a_model_that_does_not_want_to_answer():
    """Its probabilities would be taken for decisions."""
    fake = FakeVllm()
    fake.mass = 0.2
    status, seen, mend = check(report(fake), "label_mass")
    assert status == "warn"
    assert "noul 0.2" in seen
    assert "no label" in seen
    assert "abstain" in mend


def test_a_reader_of_fixed_prompts():
    """clef refuses instructions: asked without, it answers, and is known for what it is."""
    fake = FakeVllm()

    def clef(request: httpx.Request) -> httpx.Response:
        if "content-encoding" not in request.headers and "instructions" in json.loads(request.content):
            return error(400, "this model reads a fixed prompt, so it takes no instructions")
        reply = fake.post_v1_systemone(request)
        fake.queries = fake.hits = 0  # it never looks into the cache
        body = json.loads(reply.content)
        if reply.status_code == 200:
            body["usage"]["output_tokens"] = 0
        return httpx.Response(reply.status_code, json=body)

    fake.routes["POST /v1/systemone"] = clef
    found = report(fake)
    assert check(found, "route")[0] == "pass"
    assert found.facts.style == "clef"
    assert check(found, "strategy")[0] == "warn"
    assert check(found, "reads_cached")[0] == "warn"
    assert found.facts.reads_use_cache is False
    assert not fake.completions


def test_styles_by_behaviour():
    """The name of a model is its owner's choice; how it behaves is not."""
    fake = FakeVllm()
    fake.cache["mamba_cache_mode"] = "align"
    assert report(fake).facts.style == "qwen3.5"

    fake = FakeVllm()

    def d1(request: httpx.Request) -> httpx.Response:
        if b'"rune"' in request.content:
            return error(400, "question 'rune': label 'ᚠ' is not one distinct token for this model")
        return fake.post_v1_systemone(request)

    fake.routes["POST /v1/systemone"] = d1
    assert report(fake).facts.style == "d1"

    fake = FakeVllm()
    fake.routes["GET /version"] = httpx.Response(200, json={"version": "0.33.0"})
    assert report(fake).facts.style == "next-token", "0.33 reads more families this way"


def test_what_becomes_of_compressed_bodies():
    """A client that compresses would fail, or a gateway would choke."""
    assert check(report(FakeVllm()), "compression")[1].startswith("compressed bodies are refused (400)")
    for status, verdict in ((200, "pass"), (502, "warn")):
        fake = FakeVllm()

        def answer(request: httpx.Request, fake: FakeVllm = fake, status: int = status) -> httpx.Response:
            return httpx.Response(status) if "content-encoding" in request.headers else fake.post_v1_systemone(request)

        fake.routes["POST /v1/systemone"] = answer
        assert check(report(fake), "compression")[0] == verdict

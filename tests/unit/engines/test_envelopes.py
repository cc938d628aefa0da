"""Every server's way of saying no becomes one error with the server's words, its status and how to mend it."""

from __future__ import annotations

import json
import pickle

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgate.engines.envelopes import error_of, server_words
from warmgate.errors import (
    BadRequest,
    EngineError,
    NotSupported,
    Overloaded,
    RouteAbsent,
    ServerFault,
    Unauthorized,
    UnknownModel,
    Unreachable,
)


def fault(status: int, body: object, headers: dict[str, str] | None = None, path: str = "/v1/systemone") -> EngineError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of(status, httpx.Headers(headers or {}), raw, where="http://w", request_id="r1", path=path)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        # OpenAI's envelope: vLLM, llama.cpp, OpenRouter, Fireworks
        (400, {"error": {"message": "at most 26", "type": "BadRequestError", "param": None, "code": 400}}, BadRequest, "at most 26"),
        (
            404,
            {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}},
            UnknownModel,
            "The model `x` does not exist.",
        ),
        (
            404,
            {"error": {"message": "no such thing", "type": "invalid_request_error", "param": None, "code": "model_not_found"}},
            UnknownModel,
            None,
        ),
        (400, {"error": {"message": "no such thing", "code": "model_not_found"}}, UnknownModel, None),
        (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, Overloaded, "Loading model"),
        (
            501,
            {"error": {"message": "not supported", "type": "NotImplementedError", "param": None, "code": 501}},
            NotSupported,
            "not supported",
        ),
        (429, {"error": {"code": 429, "message": "Rate limited", "metadata": {"raw": "x"}}}, Overloaded, "Rate limited"),
        # a string: vLLM's 401, Ollama
        (401, {"error": "Unauthorized"}, Unauthorized, "Unauthorized"),
        (404, {"error": "model 'x' not found"}, UnknownModel, "model 'x' not found"),
        # FastAPI's router and validation, TypeSafe
        (404, {"detail": "Not Found"}, RouteAbsent, "Not Found"),
        (405, {"detail": "Method Not Allowed"}, RouteAbsent, "Method Not Allowed"),
        (
            422,
            {"detail": [{"loc": ["body", "questions", "q", "criteria"], "msg": "Field required", "type": "missing"}]},
            BadRequest,
            "questions.q.criteria: Field required",
        ),
        (
            403,
            {"detail": {"error_type": "authentication_error", "message": "Must supply an API key!"}},
            Unauthorized,
            "Must supply an API key!",
        ),
        (404, {"detail": {"error_type": "not_found", "message": "No route /v1/systemone"}}, RouteAbsent, "No route /v1/systemone"),
        (404, {"detail": {"error_type": "not_found", "message": "Model not served: jev-latest"}}, UnknownModel, None),
        (529, {"detail": {"error_type": "overloaded", "message": "later"}}, Overloaded, "later"),
        # SGLang's flat one
        (
            400,
            {"object": "error", "message": "input must not be blank", "type": "BadRequest", "code": 400},
            BadRequest,
            "input must not be blank",
        ),
        # Workers AI
        (400, {"success": False, "errors": [{"code": 7000, "message": "bad model input"}], "result": None}, BadRequest, "bad model input"),
        # a proxy's page, plain text, nothing
        (502, b"<html><head><title>502 Bad Gateway</title></head></html>", ServerFault, "502 Bad Gateway"),
        (500, b"Internal Server Error", ServerFault, "Internal Server Error"),
        (500, b"", ServerFault, None),
        (302, b"", ServerFault, None),
        # a web server, a login page, a proxy: the same statuses mean something else there
        (501, b"<!DOCTYPE HTML><html><h1>Error response</h1><p>Message: Unsupported method ('POST').</p></html>", RouteAbsent, None),
        (501, b"Not Implemented", RouteAbsent, "Not Implemented"),
        (501, {"message": "Not Implemented"}, RouteAbsent, "Not Implemented"),
        (501, {"error": "Not Implemented"}, RouteAbsent, "Not Implemented"),
        (501, {"object": "error", "message": "no", "type": "NotImplemented", "code": 501}, NotSupported, "no"),
        (404, b"<html>The model page you want is gone</html>", RouteAbsent, "The model page you want is gone"),
        (405, b"<html><h1>405 Not Allowed</h1><hr>nginx</html>", RouteAbsent, None),
        (403, b" <!doctype html><p>AirTunes", Unauthorized, None),
        (400, b"<html>400 The plain HTTP request was sent to HTTPS port</html>", Unreachable, None),
        (400, b"Client sent an HTTP request to an HTTPS server.\n", Unreachable, None),
        (400, b"<html>400 Bad Request</html>", RouteAbsent, "400 Bad Request"),
        (413, b"<html>413 Request Entity Too Large</html>", BadRequest, None),
        (418, {"unknown": ["shape"]}, ServerFault, None),
    ],
)
def test_each_envelope_gives_its_words_and_its_class(status: int, body: object, kind: type[EngineError], words: str | None):
    error = fault(status, body)
    assert type(error) is kind
    assert error.status == status
    assert error.request_id == "r1"
    if words is not None:
        assert error.server_words == words
        assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("status", "retried"),
    [
        *((status, False) for status in (301, 400, 401, 403, 404, 405, 413, 422, 500, 501)),
        *((status, True) for status in (429, 502, 503, 504, 529)),
    ],
)
def test_which_statuses_are_worth_another_try(status: int, retried: bool):
    assert fault(status, {"error": "x"}).retryable is retried


def test_a_501_names_its_likely_causes():
    """The reply itself does not: they are in the server's debug log alone."""
    text = str(fault(501, {"error": {"message": "The model does not support the structured decision API"}}))
    for cause in ("read strategy", "--logprobs-mode", "one token", "prefix_read"):
        assert cause in text


@pytest.mark.parametrize("status", [400, 404, 405, 409, 501])
def test_what_is_no_decision_server_is_called_so(status: int):
    """Advice about models and their read strategies would send the reader the wrong way: the port is another program's."""
    error = fault(status, b"<html><h1>Error response</h1></html>")
    assert error.what.startswith(f"{status}: what answers there is no decision server")
    assert error.mend == "check the URL and the port"
    assert not error.retryable


def test_a_page_that_asks_for_a_login_is_not_blamed_on_the_api_key():
    error = fault(401, b"<html>Sign in</html>")
    assert "API key" not in str(error)
    assert "login of its own" in str(error)


def test_plain_http_to_a_tls_port_says_so():
    error = fault(400, b"Client sent an HTTP request to an HTTPS server.\n")
    assert (error.mend, error.retryable) == ("write https://w", False)
    assert "the server has TLS there" in error.what


def test_a_redirect_says_where_to_without_its_query():
    error = fault(308, b"", {"location": "https://login.example/v1/systemone?state=secret"})
    assert error.mend == "give the URL it redirects to: https://login.example/v1/systemone"


def test_a_501_of_another_route_does_not_advise_the_engine_that_has_just_failed():
    error = fault(501, {"error": {"message": "no"}}, path="/v1/completions")
    assert error.mend == "its model has no /v1/completions; use another engine"


def test_a_route_that_came_with_0_32_says_so():
    assert "0.32" in str(fault(404, {"detail": "Not Found"}))


def test_a_prompt_that_is_too_long_says_how_to_mend_it():
    assert "--max-model-len" in str(fault(400, {"error": {"message": "This model's maximum context length is 16384 tokens. …"}}))


def test_the_state_that_a_validation_error_quotes_is_cut_off():
    """Servers print the offending input, which is a whole conversation: it must not reach a log through an error."""
    words, _ = server_words(
        json.dumps(
            {"error": {"message": "1 validation error:\n  {'type': 'dict_type', 'loc': ('body', 'questions'), 'msg': 'Input should be a valid "
                                  "dictionary', 'input': 'the secret conversation'}", "type": "BadRequestError", "code": 400}}
        ).encode()
    )  # fmt: skip
    assert words is not None
    assert "valid dictionary" in words
    assert "secret" not in words


def test_words_are_one_short_printable_line():
    words, _ = server_words(json.dumps({"error": "a\x1b[31m\n" + "x" * 9999}).encode())
    assert words is not None
    assert len(words) <= 400
    assert words.isprintable()


def test_engine_errors_survive_pickling():
    error = fault(503, {"error": "full"}, {"retry-after": "2"})
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.status, again.retry_after_s, again.retryable) == (Overloaded, str(error), 503, 2.0, True)


@given(st.binary(max_size=300), st.integers(201, 599))
def test_no_body_crashes_the_reader(body: bytes, status: int):
    assert "\n" not in str(fault(status, body))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=20), lambda x: st.lists(x) | st.dictionaries(st.sampled_from(
    ["error", "detail", "errors", "message", "msg", "loc", "type", "code"]), x), max_leaves=15))  # fmt: skip
def test_no_json_crashes_the_reader(value: object):
    fault(400, json.dumps(value).encode())

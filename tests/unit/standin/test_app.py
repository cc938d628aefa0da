"""Keys, browser origins, options, and that nothing a client sends becomes anything but a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.standin.asking import Asker, noul, read
from warmgate.errors import InputError, OptionError
from warmgate.standin import Options

DECISION = {"state": "x", "questions": {"q": noul()}}


class TestKeys:
    @pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic right", "right", "Bearer right "])
    async def test_no_way_around_the_key(self, header: str | None):
        asker = Asker(api_key="right")
        sent = {} if header is None else {"authorization": header}
        assert await asker.post("/v1/systemone", DECISION, **sent) == (401, {"error": "Unauthorized"})

    async def test_any_of_several_keys(self):
        asker = Asker(api_key=["one", "two"])
        assert (await asker.post("/v1/systemone", DECISION, authorization="Bearer two"))[0] == 200
        assert (await asker.post("/v1/systemone", DECISION, authorization="bearer one"))[0] == 200

    async def test_what_stays_open(self):
        """As on a real server, health and tokenization need no key; doctor says so."""
        asker = Asker(api_key="k")
        assert (await asker.get("/health"))[0] == 200
        assert (await asker.post("/tokenize", {"prompt": "x"}))[0] == 200
        assert (await asker.get("/v1/models"))[0] == 401


class TestOrigins:
    PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}  # noqa: RUF012

    async def test_listed_origins_alone(self):
        asker = Asker(allowed_origins=["https://a.example"])
        ours = await asker.request("OPTIONS", "/v1/systemone", headers={"origin": "https://a.example", **self.PREFLIGHT})
        assert (ours.status, dict(ours.headers)["access-control-allow-origin"]) == (200, "https://a.example")
        assert dict(ours.headers)["access-control-allow-headers"] == "content-type"
        theirs = await asker.request("OPTIONS", "/v1/systemone", headers={"origin": "https://b.example", **self.PREFLIGHT})
        assert (theirs.status, read(theirs)) == (400, "Disallowed CORS origin")

    async def test_answers_carry_the_origin_they_are_for(self):
        asker = Asker(allowed_origins=["https://a.example"])
        reply = await asker.request("GET", "/health", headers={"origin": "https://a.example"})
        assert dict(reply.headers)["access-control-allow-origin"] == "https://a.example"

    async def test_preflights_need_no_key(self):
        asker = Asker(api_key="k", allowed_origins=["*"])
        reply = await asker.request("OPTIONS", "/v1/systemone", headers={"origin": "https://a.example", **self.PREFLIGHT})
        assert reply.status == 200


async def test_every_reply_says_what_it_comes_from():
    """Nobody shall take a stand-in for a model."""
    asker = Asker(api_key="k")
    for method, path, headers in (
        ("GET", "/health", {}),
        ("POST", "/v1/systemone", {}),
        ("GET", "/nope", {}),
        ("POST", "/tokenize", {"x-standin-fault": "500"}),
    ):
        reply = await asker.request(method, path, {}, headers)
        assert ("x-warmgate-standin", "1") in reply.headers


@pytest.mark.parametrize("key", ["", ["", ""]])
async def test_an_empty_key_is_none(key: str | list[str]):
    """`--api-key "$KEY"` with the variable unset locks nobody out of vLLM."""
    assert (await Asker(api_key=key).get("/v1/models"))[0] == 200


async def test_an_adapter_has_its_own_cache():
    asker = Asker(loras=["sql"], block_size=4)
    for model in ("standin", "sql", "sql"):
        await asker.decide({"q": noul()}, "word " * 50, model=model)
    assert asker.served.engine.counters.hits > 0
    first = asker.served.engine.counters.hits
    await asker.decide({"q": noul()}, "word " * 50)
    assert asker.served.engine.counters.hits == 2 * first
    names = [card["id"] for card in (await asker.get("/v1/models"))[1]["data"]]
    assert names == ["standin", "sql"]


async def test_half_a_character_is_refused():
    """A lone surrogate is valid JSON and no text; the real tokenizer refuses it too."""
    reply = await Asker().request("POST", "/v1/systemone", raw=b'{"state":"\\ud800","questions":{"q":{"type":"noul"}}}')
    assert reply.status == 400


async def test_names_with_half_characters_come_back_as_valid_text():
    reply = await Asker().request("POST", "/v1/systemone", raw=b'{"state":"x","questions":{"\\ud800":{"type":"noul"}}}')
    reply.content().decode("utf-8")


async def test_deep_nesting_is_refused():
    reply = await Asker().request("POST", "/v1/systemone", raw=b"[" * 200_000)
    assert (reply.status, read(reply)) == (400, {"detail": "There was an error parsing the body"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    *("state", "questions", "instructions", "messages", "prompt", "tools", "tool_choice", "logprobs", "top_logprobs", "logprob_token_ids"),
    *("n", "max_tokens", "stop", "stream", "stream_options", "response_format", "structured_outputs", "cache_salt", "chat_template_kwargs"),
    *("tokens", "model", "echo", "input", "images"),
)
ASKER = Asker(version="0.33")


@given(
    st.sampled_from(["/v1/systemone", "/v1/decisions", "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"]), st.data()
)
@settings(max_examples=400, deadline=None)
def test_no_body_breaks_the_worker(path: str, data: st.DataObject):
    """Any JSON gets a reply below 500, and no request stays behind."""
    import asyncio

    likely: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hi"}],
        "prompt": "hi",
        "state": "x",
        "questions": {"q": {"type": "noul"}},
        "max_tokens": 3,
    }
    body = {**likely, **data.draw(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))}

    async def play() -> None:
        reply = await ASKER.request("POST", path, raw=json.dumps(body).encode())
        assert reply.status < 500, (body, read(reply))
        if reply.stream is not None:
            async for _ in reply.stream:
                pass
        else:
            json.loads(reply.content())

    asyncio.run(play())
    assert ASKER.served.engine.counters.running == 0


@pytest.mark.parametrize(
    "options",
    [
        {"style": "gpt"},
        {"version": "0.30"},
        {"hash_algorithm": "md5"},
        {"block_size": 0},
        {"kv_tokens": 3},
        {"max_model_len": 0},
        {"port": -1},
        {"port": 65536},
        {"kv_events_port": 70000},
        {"model": ""},
        {"model": ()},
        {"fault": "nonsense"},
        {"fault": "slow=x"},
        {"script": "/nowhere/script.json"},
        {"tokenizer": "/nowhere/tokenizer.json"},
        {"chat_template": "/nowhere/template.jinja"},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]):
    """One line, before anything listens."""
    with pytest.raises(InputError) as caught:
        Asker(**options)
    assert "\n" not in str(caught.value)


def test_the_context_never_exceeds_the_cache():
    """A prompt that can never be admitted would wait for ever."""
    assert Asker(kv_tokens=100, block_size=16).served.prompts.max_model_len == 96
    assert Options(kv_tokens=100).max_model_len > 100


async def test_an_impossible_prompt_is_refused_at_once():
    status, _ = await Asker(kv_tokens=64, block_size=16).decide({"q": noul()}, "word " * 100)
    assert status == 400


def test_option_errors_are_of_one_kind():
    with pytest.raises(OptionError):
        Options(block_size=-1)

"""The wire itself, in bytes: what a vLLM 0.32 worker answers, field by field, and what a stand-in must answer too.

One suite, two servers: it runs against the stand-in in ``tests/integration/standin`` and against a real vLLM in ``tests/engine``. Neither
may need an exception. Each provides the fixtures ``worker`` and ``events_worker`` (with KV events).
"""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import httpx
import msgspec
import pytest

from tests.wire.raw import CHOICE, NOUL, SCORE, TOOLS, Worker, fresh
from warmgate.standin.hashing import BlockNames, wire_name


def error_of(reply: httpx.Response) -> dict[str, Any]:
    body = reply.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["code"] == reply.status_code
    return body["error"]


class TestListing:
    def test_health_and_version(self, worker: Worker):
        """doctor and probes would call a live worker dead, or misread its release."""
        assert (worker.get("/health").status_code, worker.get("/health").content) == (200, b"")
        assert worker.get("/version").json()["version"].startswith("0.32")

    def test_models(self, worker: Worker):
        """The model name and context length would be guessed."""
        body = worker.get("/v1/models").json()
        assert body["object"] == "list"
        card = body["data"][0]
        assert (card["id"], card["max_model_len"], card["parent"]) == (worker.model, worker.max_model_len, None)

    def test_unknown_route_and_method(self, worker: Worker):
        """A missing route could not be told from a missing model."""
        missing = worker.post("/v1/nothing", {})
        assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
        wrong = worker.get("/v1/systemone")
        assert (wrong.status_code, wrong.json(), wrong.headers["allow"]) == (405, {"detail": "Method Not Allowed"}, "POST")

    def test_decisions_route_is_absent_in_032(self, worker: Worker):
        """A client would take 0.32 for 0.33."""
        assert worker.post("/v1/decisions", {"input": "x"}).status_code == 404

    def test_browser_origins_are_kept_out(self, worker: Worker):
        """doctor would report an open door where there is none."""
        headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        reply = httpx.request("OPTIONS", worker.url + "/v1/systemone", headers=headers)
        assert (reply.status_code, reply.text) == (400, "Disallowed CORS origin")
        assert "access-control-allow-origin" not in worker.get("/health", origin="https://evil.example").headers

    def test_metrics_are_prometheus_text(self, worker: Worker):
        """`top`, doctor and the ledger read these names and labels."""
        reply = worker.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain")
        labels = f'engine="0",model_name="{worker.model}"'
        for name in ("prefix_cache_queries_total", "prefix_cache_hits_total", "num_requests_running", "kv_cache_usage_perc"):
            assert f"vllm:{name}{{{labels}}}" in reply.text
        config = next(line for line in reply.text.splitlines() if line.startswith("vllm:cache_config_info{"))
        assert f'block_size="{worker.block_size}"' in config
        assert 'enable_prefix_caching="True"' in config

    def test_no_event_sources_unless_configured(self, worker: Worker):
        """The shadow index would wait for events that never come."""
        assert worker.get("/kv_event_sources").json() == {}


class TestSystemOne:
    def test_envelope(self, worker: Worker):
        """The client would look for answers, usage or diagnostics in the wrong place."""
        body = worker.decide({"route": CHOICE, "red": NOUL, "risk": SCORE}, "The user asked to list files.").json()
        assert list(body) == ["id", "object", "created", "model", "answers", "usage", "diagnostics"]
        assert body["object"] == "structured_decision"
        assert abs(body["created"] - time.time()) < 3600
        assert list(body["answers"]) == list(body["diagnostics"]) == ["route", "red", "risk"]
        assert set(body["usage"]) == {"input_tokens", "output_tokens"}
        assert body["usage"]["output_tokens"] == 3
        for told in body["diagnostics"].values():
            assert 0 <= told["label_mass"] <= 1.001
            assert isinstance(told["argmax_is_label"], bool)

    def test_answers(self, worker: Worker):
        """Probabilities, confidence and names would be misread."""
        body = worker.decide({"route": CHOICE, "red": NOUL, "risk": SCORE}).json()
        route, red, risk = (body["answers"][qid] for qid in ("route", "red", "risk"))
        mass = {qid: told["label_mass"] for qid, told in body["diagnostics"].items()}
        assert list(route) == ["type", "choice", "probabilities", "confidence"]
        assert list(route["probabilities"]) == ["fs", "web", "none"]
        assert route["choice"] == max(route["probabilities"], key=route["probabilities"].__getitem__)
        assert list(red) == ["type", "noul", "probabilities", "confidence"]
        assert red["noul"] == red["probabilities"]["yes"]
        assert list(risk) == ["type", "score", "legend", "probabilities", "confidence"]
        assert risk["legend"] == {"0": "none", "1": "some", "2": "high"}
        assert risk["score"] == pytest.approx(sum(int(level) * p for level, p in risk["probabilities"].items()))
        for qid, answer in body["answers"].items():
            assert sum(answer["probabilities"].values()) == pytest.approx(1)
            assert answer["confidence"] == pytest.approx(max(answer["probabilities"].values()) * mass[qid])

    def test_usage_counts_every_questions_prompt(self, worker: Worker):
        """The tax would be computed from the wrong token counts."""
        state = fresh(60)
        one = worker.decide({"a": NOUL}, state).json()["usage"]["input_tokens"]
        two = worker.decide({"a": NOUL, "b": NOUL}, state).json()["usage"]["input_tokens"]
        assert two == 2 * one

    def test_the_prompt_is_system_then_state_and_question(self, worker: Worker):
        """Alignment rests on this: the decision's prompt is the template's rendering of exactly these two turns."""
        instructions, state = "You are a router.", fresh(40)
        question = "Question: Is it red?\nyes\nno\nAnswer with yes or no only."
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": f"{state}\n\n{question}"}]
        expected = worker.tokens(messages=messages, chat_template_kwargs={"enable_thinking": False})
        reply = worker.decide({"q": NOUL}, state, instructions=instructions)
        assert reply.json()["usage"]["input_tokens"] == len(expected)

    def test_the_generation_prompt_stays(self, worker: Worker):
        """A decision without it would read its label somewhere else."""
        told = worker.decide({"q": NOUL}, chat_template_kwargs={"add_generation_prompt": False})
        assert told.json()["usage"] == worker.decide({"q": NOUL}).json()["usage"]

    @pytest.mark.parametrize("state", ["text", None, {"b": 1, "a": [2]}, ["x"], 7, True])
    def test_any_json_is_a_state(self, worker: Worker, state: Any):
        assert worker.decide({"q": NOUL}, state).status_code == 200

    def test_unknown_top_level_fields_are_ignored(self, worker: Worker):
        """A client that sends one more field would break on 0.32 though it need not."""
        assert worker.decide({"q": NOUL}, x_trace="abc", seed=7).status_code == 200

    def test_a_model_by_its_name_or_none(self, worker: Worker):
        assert worker.decide({"q": NOUL}, model=worker.model).status_code == 200
        assert worker.decide({"q": NOUL}, model=None).status_code == 200
        refused = error_of(worker.decide({"q": NOUL}, model="nope"))
        assert refused == {
            "message": f"The model `nope` does not exist. Valid aliases: {worker.model}.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }

    def test_the_request_id_names_the_decision(self, worker: Worker):
        """A log line here could not be found in the worker's."""
        body = {"state": "x", "questions": {"q": NOUL}}
        assert worker.post("/v1/systemone", body, x_request_id="abc-1").json()["id"] == "decision-abc-1"
        assert worker.post("/v1/systemone", {**body, "request_id": "abc-2"}).json()["id"] == "decision-abc-2"

    MESSAGES = (
        ("no questions", {"questions": {}}, "questions: needs at least one question"),
        ("65 questions", {"questions": {f"q{i}": NOUL for i in range(65)}}, "questions: at most 64 for this model"),
        ("empty id", {"questions": {"": NOUL}}, "question ids must be non-empty"),
        ("unknown type", {"questions": {"q": {"type": "rank"}}}, "unknown question type 'rank'; supported: ['choice', 'noul', 'score']"),
        ("unknown field", {"questions": {"q": {**NOUL, "foo": 1}}}, "question 'q': unknown field(s) ['foo']"),
        (
            "choice without options",
            {"questions": {"q": {"type": "choice", "criteria": {}}}},
            "question 'q': choice criteria must map option names to a description or null",
        ),
        (
            "27 options",
            {"questions": {"q": {"type": "choice", "criteria": {f"o{i}": None for i in range(27)}}}},
            "question 'q': at most 26 options for this model",
        ),
        (
            "noul with other sides",
            {"questions": {"q": {"type": "noul", "criteria": {"maybe": "x"}}}},
            "question 'q': noul criteria must be an object with true and false",
        ),
        (
            "score as a map",
            {"questions": {"q": {"type": "score", "criteria": {"0": "a"}}}},
            "question 'q': score criteria must be an ordered list of levels",
        ),
        (
            "11 levels",
            {"questions": {"q": {"type": "score", "criteria": [f"l{i}" for i in range(11)]}}},
            "question 'q': at most 10 options",
        ),
        ("same level twice", {"questions": {"q": {"type": "score", "criteria": ["a", "a"]}}}, "question 'q': duplicate option names"),
        (
            "thinking",
            {"questions": {"q": NOUL}, "chat_template_kwargs": {"enable_thinking": True}},
            "a read is the reply's first token, so thinking must be off",
        ),
        (
            "an image",
            {"questions": {"q": NOUL}, "images": ["data:image/png;base64,AA=="]},
            "this model does not take image inputs",
        ),
    )

    @pytest.mark.parametrize(("body", "message"), [pytest.param(b, m, id=name) for name, b, m in MESSAGES])
    def test_bad_input_is_400_with_its_reason(self, worker: Worker, body: dict[str, Any], message: str):
        """Limits that the client checks before sending would drift from the server's."""
        error = error_of(worker.post("/v1/systemone", {"state": "x", **body}))
        assert error["code"] == 400
        assert error["type"] == "BadRequestError"
        assert error["message"].startswith(message)

    @pytest.mark.parametrize(
        ("body", "param", "message"),
        [
            ({"questions": {"q": NOUL}}, "body.state", "{'type': 'missing', 'loc': 'body.state', 'msg': 'Field required'"),
            ({"state": "x"}, "body.questions", "'loc': 'body.questions', 'msg': 'Field required'"),
            ({"state": "x", "questions": []}, "body.questions", "'type': 'dict_type'"),
            ({"state": "x", "questions": {"q": {}}}, "body.questions.q.type", "'loc': 'body.questions.q.type', 'msg': 'Field required'"),
            ({"state": "x", "questions": {"q": NOUL}, "instructions": 7}, "body.instructions", "'type': 'string_type'"),
        ],
    )
    def test_a_body_of_the_wrong_shape(self, worker: Worker, body: dict[str, Any], param: str, message: str):
        error = error_of(worker.post("/v1/systemone", body))
        assert (error["code"], error["type"], error["param"]) == (400, "Bad Request", param)
        assert message in error["message"]

    @pytest.mark.parametrize("salt", ["", 7, "a/b", "a@b", "x" * 129])
    def test_salts_that_are_refused(self, worker: Worker, salt: Any):
        error = error_of(worker.decide({"q": NOUL}, cache_salt=salt))
        assert (error["code"], error["param"]) == (400, "cache_salt")

    def test_bodies_must_be_plain_json(self, worker: Worker):
        """A client that compresses would blame its questions for the 400."""
        url, body = worker.url + "/v1/systemone", json.dumps({"state": "x", "questions": {"q": NOUL}}).encode()
        packed = httpx.post(url, content=gzip.compress(body), headers={"content-type": "application/json", "content-encoding": "gzip"})
        assert (packed.status_code, packed.json()) == (400, {"detail": "There was an error parsing the body"})
        broken = error_of(httpx.post(url, content=body[:-3], headers={"content-type": "application/json"}))
        assert "'type': 'json_invalid'" in broken["message"]
        unnamed = error_of(httpx.post(url, content=body, headers={"content-type": "text/plain"}))
        assert unnamed["message"] == "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        empty = httpx.post(url, content=b"", headers={"content-type": "application/json"})
        assert (empty.status_code, error_of(empty)["param"]) == (400, "body")

    def test_a_prompt_too_long_is_refused_never_cut(self, worker: Worker):
        error = error_of(worker.decide({"q": NOUL}, "word and more " * worker.max_model_len))
        assert error["code"] == 400
        assert f"maximum context length is {worker.max_model_len} tokens" in error["message"]


class TestTokens:
    def test_text_there_and_back(self, worker: Worker):
        """Prefix reads put questions behind ids; a lossy tokenizer would move them."""
        text = "def f(x):\n    return x  # naïve ☃\n\n\n<|im_start|>user\n1234"
        reply = worker.post("/tokenize", {"prompt": text}).json()
        assert list(reply) == ["count", "max_model_len", "tokens", "token_strs"]
        assert reply["count"] == len(reply["tokens"])
        assert (reply["max_model_len"], reply["token_strs"]) == (worker.max_model_len, None)
        assert worker.post("/detokenize", {"tokens": reply["tokens"]}).json() == {"prompt": text}

    def test_token_strings(self, worker: Worker):
        reply = worker.post("/tokenize", {"prompt": "yes no", "return_token_strs": True}).json()
        assert reply["token_strs"] == ["yes", "Ġno"]

    def test_a_conversation_with_tools(self, worker: Worker):
        """The exact prompt of an agent's call comes from here."""
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        bare = worker.tokens(messages=messages, add_generation_prompt=False)
        whole = worker.tokens(messages=messages)
        assert whole[: len(bare)] == bare
        assert len(whole) > len(bare)
        assert len(worker.tokens(messages=messages, tools=TOOLS)) > len(whole)
        assert worker.chat(messages).json()["usage"]["prompt_tokens"] == len(whole)
        assert worker.chat(messages, tools=TOOLS).json()["usage"]["prompt_tokens"] == len(worker.tokens(messages=messages, tools=TOOLS))

    def test_contents_in_parts_and_calls_as_text(self, worker: Worker):
        """Clients send one conversation in several spellings; all must give one prompt."""
        call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
        plain = [
            {"role": "user", "content": "one\ntwo"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
        ]
        parts = [
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "text"}]},
        ]
        assert worker.tokens(messages=plain) == worker.tokens(messages=parts)

    def test_ids_the_vocabulary_does_not_have(self, worker: Worker):
        """Ids of another tokenizer must not pass as a prompt."""
        error = error_of(worker.post("/v1/completions", {"prompt": [10_000_000], "max_tokens": 1}))
        assert (error["code"], error["message"]) == (400, "Token id 10000000 is out of vocabulary")
        assert worker.post("/detokenize", {"tokens": [10_000_000]}).json() == {"prompt": ""}  # here they are passed over

    @pytest.mark.parametrize(
        ("body", "places"),
        [({}, ["body.prompt", "body.messages"]), ({"prompt": 7}, ["body.prompt", "body.messages"]), ({"messages": "x"}, ["body.prompt"])],
    )
    def test_neither_text_nor_conversation(self, worker: Worker, body: dict[str, Any], places: list[str]):
        error = error_of(worker.post("/tokenize", body))
        assert (error["code"], error["param"]) == (400, "body.prompt")
        assert error["message"].startswith("2 validation errors:")
        for place in places:
            assert f"'loc': '{place}', 'msg': " in error["message"]

    def test_unknown_model(self, worker: Worker):
        assert worker.post("/tokenize", {"prompt": "x", "model": "nope"}).status_code == 404


class TestCompletions:
    def labels(self, worker: Worker) -> list[int]:
        ids = [worker.tokens(prompt=label) for label in ("yes", "no")]
        assert all(len(one) == 1 for one in ids)
        return [one[0] for one in ids]

    def test_a_read_of_one_token(self, worker: Worker):
        """The prefix read: exact label log-probabilities at the end of the agent's own prompt."""
        prompt = worker.tokens(messages=[{"role": "user", "content": f"{fresh(80)}\nIs it red? Answer with yes or no only."}])
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1, "logprob_token_ids": self.labels(worker)}
        reply = worker.post("/v1/completions", body).json()
        assert (reply["object"], reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (
            "text_completion",
            len(prompt),
            1,
        )
        choice = reply["choices"][0]
        assert choice["finish_reason"] == "length"
        told = choice["logprobs"]
        assert list(told) == ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
        assert {"yes", "no"} <= set(told["top_logprobs"][0])
        assert all(value <= 0 for value in told["top_logprobs"][0].values())
        assert told["tokens"][0] in told["top_logprobs"][0]

    def test_cached_tokens_per_read(self, worker: Worker):
        """The ledger's best source: what each read found."""
        prompt = worker.tokens(prompt=fresh(400))
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        cold = worker.post("/v1/completions", body).json()["usage"]
        warm = worker.post("/v1/completions", body).json()["usage"]
        assert cold["prompt_tokens_details"]["cached_tokens"] == 0
        assert warm["prompt_tokens_details"]["cached_tokens"] == worker.reusable(len(prompt))
        question = worker.tokens(prompt="\nIs it red?")
        longer = worker.post("/v1/completions", {**body, "prompt": prompt + question}).json()["usage"]
        assert longer["prompt_tokens_details"]["cached_tokens"] >= worker.reusable(len(prompt))

    def test_text_and_ids_are_one_prompt(self, worker: Worker):
        text = fresh(100)
        assert worker.post("/v1/completions", {"prompt": text, "max_tokens": 1}).json()["usage"]["prompt_tokens"] == len(
            worker.tokens(prompt=text)
        )

    def test_only_the_prompt_again(self, worker: Worker):
        """`echo` without generation still computes, and counts, one token."""
        reply = worker.post("/v1/completions", {"prompt": "one two", "max_tokens": 0, "echo": True}).json()
        assert reply["choices"][0]["text"] == "one two"
        assert reply["usage"]["completion_tokens"] == 1

    def test_several_prompts(self, worker: Worker):
        reply = worker.post("/v1/completions", {"prompt": ["one two", "three"], "max_tokens": 1}).json()
        assert [choice["index"] for choice in reply["choices"]] == [0, 1]
        assert reply["usage"]["prompt_tokens"] == len(worker.tokens(prompt="one two")) + len(worker.tokens(prompt="three"))

    @pytest.mark.parametrize(
        ("body", "param", "message"),
        [
            ({"prompt": ""}, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."),
            ({"prompt": "x", "logprob_token_ids": [1]}, "logprob_token_ids", "when using `logprob_token_ids`, `logprobs` must be set."),
            ({"prompt": "x", "logprobs": 21}, "logprobs", "Requested sample logprobs of 21, which is greater than max allowed: 20"),
            ({"prompt": "x", "logprobs": "2"}, "logprobs", "`logprobs` must be an integer."),
            ({"prompt": "x", "max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
            ({"prompt": "x", "stream_options": {}}, None, ""),
            (
                {"prompt": "x", "logprobs": 1, "logprob_token_ids": [10**7]},
                "logprob_token_ids",
                "token_id(s) [10000000] in logprob_token_ids",
            ),
            (
                {"prompt": "x", "logprobs": 1, "logprob_token_ids": [1] * 129},
                "logprob_token_ids",
                "Requested logprob_token_ids of length 129",
            ),
        ],
    )
    def test_what_is_refused(self, worker: Worker, body: dict[str, Any], param: str | None, message: str):
        reply = worker.post("/v1/completions", body)
        if param is None:
            assert reply.status_code == 200
            return
        error = error_of(reply)
        assert (error["code"], error["type"], error["param"]) == (400, "BadRequestError", param)
        assert error["message"].startswith(message)

    def test_streamed(self, worker: Worker):
        body = {"prompt": "one two", "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}
        events = sse(worker.post("/v1/completions", body))
        assert all(event["object"] == "text_completion" for event in events)
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["prompt_tokens"] == len(worker.tokens(prompt="one two"))


class TestChat:
    def test_envelope(self, worker: Worker):
        reply = worker.chat([{"role": "user", "content": "hi"}])
        body = reply.json()
        assert (body["object"], body["id"][:9]) == ("chat.completion", "chatcmpl-")
        choice = body["choices"][0]
        assert {"index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"} <= set(choice)
        assert choice["message"]["role"] == "assistant"
        usage = body["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert set(usage["prompt_tokens_details"]) == {"cached_tokens", "created_cache_tokens", "multimodal_tokens"}

    def test_cached_tokens(self, worker: Worker):
        """Survival is measured with this field."""
        messages = [{"role": "user", "content": fresh(400)}]
        cold, warm = (worker.chat(messages, max_tokens=1).json()["usage"] for _ in range(2))
        tokens = cold["prompt_tokens"]
        assert cold["prompt_tokens_details"]["cached_tokens"] == 0
        assert cold["prompt_tokens_details"]["created_cache_tokens"] == tokens // worker.block_size * worker.block_size
        assert warm["prompt_tokens_details"]["cached_tokens"] == worker.reusable(tokens)

    def test_the_reply_is_cached_too(self, worker: Worker):
        """The next turn begins with the last reply; its blocks are there, all but the last sampled token's."""
        messages = [{"role": "user", "content": fresh(200)}]
        prompt = worker.tokens(messages=messages)
        reply = worker.post(
            "/v1/completions", {"prompt": prompt, "max_tokens": 70, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        )
        choice = reply.json()["choices"][0]
        whole = prompt + choice["token_ids"]
        again = worker.post("/v1/completions", {"prompt": [*whole, *worker.tokens(prompt=" and then")], "max_tokens": 1}).json()
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (len(whole) - 1) // worker.block_size * worker.block_size

    def test_streamed(self, worker: Worker):
        """Agents stream: usage with cached tokens comes in the last event."""
        messages = [{"role": "user", "content": fresh(200)}]
        worker.chat(messages, max_tokens=1)
        reply = worker.chat(messages, stream=True, stream_options={"include_usage": True})
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = sse(reply)
        assert all(event["object"] == "chat.completion.chunk" for event in events)
        assert events[0]["choices"][0] == {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]][-1] in ("stop", "length")
        usage = events[-1]["usage"]
        assert events[-1]["choices"] == []
        assert usage["prompt_tokens_details"]["cached_tokens"] == worker.reusable(usage["prompt_tokens"])

    def test_labels_of_the_first_token(self, worker: Worker):
        labels = [worker.tokens(prompt=label)[0] for label in ("yes", "no")]
        reply = worker.chat([{"role": "user", "content": "Is it red?"}], max_tokens=1, logprobs=True, logprob_token_ids=labels).json()
        first = reply["choices"][0]["logprobs"]["content"][0]
        assert set(first) == {"token", "logprob", "bytes", "top_logprobs"}
        assert {"yes", "no"} <= {entry["token"] for entry in first["top_logprobs"]}

    @pytest.mark.parametrize(
        ("more", "param", "message"),
        [
            ({"tools": []}, "tools", "`tools` must not be an empty array."),
            ({"tool_choice": "auto"}, "tool_choice", "When using `tool_choice`, `tools` must be set."),
            (
                {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
                "tool_choice",
                "The tool specified in `tool_choice` does not match any of the specified `tools`",
            ),
            ({"top_logprobs": 2}, "top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true."),
            ({"logprob_token_ids": [1]}, "logprob_token_ids", "when using `logprob_token_ids`, `logprobs` must be set to true."),
            ({"logprobs": True, "top_logprobs": 21}, "logprobs", "Requested sample logprobs of 21"),
            ({"stream_options": {"include_usage": True}}, "stream_options", "Stream options can only be defined when `stream=True`."),
            ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
            ({"max_tokens": 10**6}, "max_tokens", "max_tokens=1000000 cannot be greater than max_model_len="),
            ({"messages": []}, None, "Cannot apply chat template to an empty conversation."),
            ({"n": 0}, None, "n must be at least 1, got 0."),
        ],
    )
    def test_what_is_refused(self, worker: Worker, more: dict[str, Any], param: str | None, message: str):
        error = error_of(worker.chat(**{"messages": [{"role": "user", "content": "hi"}], **more}))
        assert (error["code"], error["type"], error["param"]) == (400, "BadRequestError", param)
        assert error["message"].startswith(message)

    def test_a_template_from_the_client_is_refused(self, worker: Worker):
        error = error_of(worker.chat([{"role": "user", "content": "hi"}], chat_template="{{ 1 }}"))
        assert (error["code"], error["message"][:44]) == (400, "Chat template is passed with request, but --")

    def test_messages_are_required(self, worker: Worker):
        error = error_of(worker.post("/v1/chat/completions", {}))
        assert (error["code"], error["param"]) == (400, "body.messages")

    def test_a_forced_tool_call(self, worker: Worker):
        """tool_choice names a tool: the reply calls it, with arguments that parse."""
        choice = {"type": "function", "function": {"name": "read_file"}}
        reply = worker.chat([{"role": "user", "content": "read a.txt"}], tools=TOOLS, tool_choice=choice, max_tokens=120).json()
        told = reply["choices"][0]
        if told["finish_reason"] == "length":  # a model of random weights may not find the end of its call
            assert "tool_calls" not in told["message"]
            return
        assert (told["finish_reason"], told["message"]["content"]) == ("stop", "")
        call = told["message"]["tool_calls"][0]
        assert set(call) == {"id", "type", "function"}
        assert call["function"]["name"] == "read_file"
        assert isinstance(call["function"]["arguments"], str)

    def test_a_reply_bound_by_a_schema_parses(self, worker: Worker):
        """The round trip rests on constrained output."""
        schema = {
            "type": "object",
            "properties": {"answer": {"enum": ["fs", "web"]}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        shape = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema, "strict": True}}
        reply = worker.chat([{"role": "user", "content": "files?"}], response_format=shape, max_tokens=120).json()
        choice = reply["choices"][0]
        if choice["finish_reason"] == "stop":
            assert json.loads(choice["message"]["content"])["answer"] in ("fs", "web")


class TestPrefixCache:
    def test_the_same_decision_twice(self, worker: Worker):
        """Counters and usage agree: queries are all tokens, hits are whole blocks of what was there."""
        state = fresh(400)
        with worker.counted() as cold:
            first = worker.decide({"q": NOUL}, state).json()["usage"]["input_tokens"]
        with worker.counted() as warm:
            worker.decide({"q": NOUL}, state)
        assert cold["prefix_cache_queries"] == warm["prefix_cache_queries"] == first
        assert cold["prefix_cache_hits"] == 0
        assert warm["prefix_cache_hits"] == worker.reusable(first)
        assert warm["prompt_tokens_by_source.local_cache_hit"] == warm["prompt_tokens_cached"] == worker.reusable(first)
        assert warm["prompt_tokens_by_source.local_compute"] == first - worker.reusable(first)
        assert warm["prompt_tokens"] == first

    def test_siblings_share_a_cold_prompt(self, worker: Worker):
        """A cold decision hits on itself; whoever measures survival has to subtract that."""
        state = fresh(400)
        question = f"{state}\n\n"
        shared = len(worker.tokens(messages=[{"role": "user", "content": question}], add_generation_prompt=False)) - 3
        with worker.counted() as moved:
            worker.decide({"a": NOUL, "b": CHOICE, "c": SCORE}, state)
        least = 2 * (shared // worker.block_size * worker.block_size)
        assert least <= moved["prefix_cache_hits"] <= least + 2 * worker.block_size

    def test_chat_then_a_decision_that_extends_it(self, worker: Worker):
        """The product: an aligned decision finds the agent's prompt."""
        messages = [{"role": "system", "content": "You are careful."}, {"role": "user", "content": fresh(500)}]
        held = worker.chat(messages, max_tokens=1).json()["usage"]["prompt_tokens"]
        with worker.counted() as moved:
            worker.decide({"q": NOUL}, messages[1]["content"], instructions="You are careful.")
        shared = held - 10  # the turn's end and the generation prompt are not shared
        assert moved["prefix_cache_hits"] >= shared // worker.block_size * worker.block_size

    def test_a_decision_then_the_chat_it_prepared(self, worker: Worker):
        """And the other way round: the decision's prefill is the agent call's prefill."""
        messages = [{"role": "system", "content": "You are careful."}, {"role": "user", "content": fresh(500)}]
        worker.decide({"q": NOUL}, messages[1]["content"], instructions="You are careful.")
        usage = worker.chat(messages, max_tokens=1).json()["usage"]
        shared = usage["prompt_tokens"] - 10
        assert usage["prompt_tokens_details"]["cached_tokens"] >= shared // worker.block_size * worker.block_size

    def test_json_state_shares_nothing(self, worker: Worker):
        """What everyone does, and why it costs the whole prompt again."""
        messages = [{"role": "system", "content": fresh(300)}, {"role": "user", "content": fresh(300)}]
        worker.chat(messages, max_tokens=1)
        with worker.counted() as moved:
            worker.decide({"q": NOUL}, messages)
        assert moved["prefix_cache_hits"] == 0

    def test_salts_keep_callers_apart(self, worker: Worker):
        """A salt that leaked blocks would let one tenant probe another's prompts."""
        state, salt = fresh(400), fresh(0).strip()
        with worker.counted() as moved:
            worker.decide({"q": NOUL}, state)
            worker.decide({"q": NOUL}, state, cache_salt=salt)
        assert moved["prefix_cache_hits"] == 0
        with worker.counted() as again:
            worker.decide({"q": NOUL}, state, cache_salt=salt)
        assert again["prefix_cache_hits"] > 0


class TestEvents:
    def test_stored_blocks_by_their_names(self, events_worker: Worker):
        """The shadow index predicts from these: names must be computable from token ids, parents must chain."""
        worker, events = events_worker, Events(events_worker)
        source = worker.get("/kv_event_sources").json()["0"]
        assert (source["enable_kv_cache_events"], source["publisher"], source["topic"]) == (True, "zmq", "")
        prompt = worker.tokens(prompt=fresh(200))
        worker.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}, x_session_id="s-1")
        names = [wire_name(name) for name in BlockNames(worker.block_size)(prompt)]
        stored = events.until(names[-1])
        assert [h for event in stored for h in event["block_hashes"]] == names
        assert [t for event in stored for t in event["token_ids"]] == prompt[: len(names) * worker.block_size]
        assert stored[0]["parent_block_hash"] is None
        assert {event["block_size"] for event in stored} == {worker.block_size}
        assert {event["medium"] for event in stored} == {"GPU"}
        assert {event["session_id"] for event in stored} == {"s-1"}

        longer = prompt + worker.tokens(prompt=fresh(100))
        worker.post("/v1/completions", {"prompt": longer, "max_tokens": 1})
        more = [wire_name(name) for name in BlockNames(worker.block_size)(longer)]
        added = events.until(more[-1])
        assert [h for event in added for h in event["block_hashes"]] == more[len(names) :]  # only new blocks are announced
        assert added[0]["parent_block_hash"] == names[-1]
        events.close()

    def test_a_salt_is_in_the_first_blocks_name(self, events_worker: Worker):
        worker, events = events_worker, Events(events_worker)
        prompt = worker.tokens(prompt=fresh(100))
        worker.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "cache_salt": "pepper"})
        salted = BlockNames(worker.block_size)(prompt, lambda block: (("cache_salt", "pepper"),) if block == 0 else None)
        stored = events.until(wire_name(salted[-1]))
        assert [h for event in stored for h in event["block_hashes"]] == [wire_name(name) for name in salted]
        assert stored[0]["extra_keys"][0] == ["pepper"]
        events.close()

    def test_missed_batches_are_replayed(self, events_worker: Worker):
        """A router that reconnects would keep a hole in its index."""
        import zmq

        worker = events_worker
        assert worker.replay is not None
        for _ in range(2):
            worker.post("/v1/completions", {"prompt": worker.tokens(prompt=fresh(100)), "max_tokens": 1})
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(worker.replay)
        numbers: list[int] = []
        deadline = time.monotonic() + 20
        while len(numbers) < 2 and time.monotonic() < deadline:
            numbers = []
            dealer.send_multipart([b"", (0).to_bytes(8, "big")])
            while dealer.poll(5000):
                frames = dealer.recv_multipart()
                number = int.from_bytes(frames[2], "big", signed=True)
                if number == -1:
                    break
                numbers.append(number)
        dealer.close(linger=0)
        context.term()
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 2


class Events:
    """A subscriber to a worker's KV events."""

    def __init__(self, worker: Worker) -> None:
        import zmq

        assert worker.events is not None
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.subscribe(b"")
        self.socket.connect(worker.events)
        # A subscription takes a moment to reach the publisher, and nothing tells when: ask until something arrives.
        deadline = time.monotonic() + 20
        while not self.socket.poll(200):
            assert time.monotonic() < deadline, "no KV event arrived"
            worker.post("/v1/completions", {"prompt": worker.tokens(prompt=fresh(100)), "max_tokens": 1})
        while self.socket.poll(300):
            self.socket.recv_multipart()

    def until(self, name: int) -> list[dict[str, Any]]:
        """BlockStored events up to the one that holds a block of that name."""
        stored: list[dict[str, Any]] = []
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if not self.socket.poll(500):
                continue
            topic, number, payload = self.socket.recv_multipart()
            assert (topic, len(number)) == (b"", 8)
            stamp, events, rank = msgspec.msgpack.decode(payload)
            assert abs(stamp - time.time()) < 3600
            assert rank == 0
            stored += [event for event in events if event["type"] == "BlockStored"]
            if any(name in event["block_hashes"] for event in stored):
                return stored
        raise AssertionError("the expected block was not announced")

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()


def sse(reply: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, which has to end with the usual mark."""
    assert reply.status_code == 200, reply.text
    lines = [line for line in reply.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

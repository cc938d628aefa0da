"""What sets the four model families apart on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.standin.asking import Asker, noul

PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class TestClef:
    async def test_reads_nothing_from_the_cache(self):
        """No alignment and no affinity pay for it; a gate has to learn that from the counters."""
        asker = Asker(style="clef")
        for _ in range(2):
            await asker.decide({"a": noul(), "b": noul()}, "word " * 500)
        c = asker.served.engine.counters
        assert (c.queries, c.hits, c.cached_tokens, len(asker.served.engine.cache)) == (0, 0, 0, 0)
        assert c.prompt_tokens == c.computed_tokens > 1000

    async def test_counts_the_prompt_once(self):
        asker = Asker(style="clef")
        one = (await asker.decide({"a": noul()}, "word " * 500))[1]["usage"]
        two = (await asker.decide({"a": noul(), "b": noul()}, "word " * 500))[1]["usage"]
        assert one["output_tokens"] == two["output_tokens"] == 0
        assert two["input_tokens"] < one["input_tokens"] + 200

    async def test_a_state_too_long_is_cut_without_a_word(self):
        status, body = await Asker(style="clef", max_model_len=500).decide({"a": noul()}, "word " * 5000)
        assert (status, body["usage"]["input_tokens"]) == (200, 500)

    async def test_questions_too_long_are_refused(self):
        status, body = await Asker(style="clef", max_model_len=100).decide({"a": noul("word " * 200)})
        assert (status, body["error"]["message"].startswith("the questions take ")) == (400, True)

    async def test_takes_no_instructions(self):
        assert (await Asker(style="clef").decide({"a": noul()}, instructions="You route."))[0] == 400
        assert (await Asker(style="clef").decide({"a": noul()}, instructions=""))[0] == 200

    async def test_has_no_chat(self):
        for path in ("/v1/chat/completions", "/v1/completions"):
            assert await Asker(style="clef").post(path, {}) == (404, {"detail": "Not Found"})

    async def test_label_mass_is_one(self):
        _, body = await Asker(style="clef").decide({"a": noul()})
        assert body["diagnostics"]["a"] == {"label_mass": 1.0, "argmax_is_label": True}
        assert body["answers"]["a"]["confidence"] == max(body["answers"]["a"]["probabilities"].values())

    @pytest.mark.parametrize(("kind", "data"), [("images", PICTURE), ("audio", "data:audio/wav;base64,UklGRiR9AABXQVZF")])
    async def test_takes_media(self, kind: str, data: str):
        asker = Asker(style="clef")
        bare = (await asker.decide({"a": noul()}))[1]["usage"]["input_tokens"]
        status, body = await asker.decide({"a": noul()}, **{kind: [data]})
        assert status == 200
        assert body["usage"]["input_tokens"] > bare


class TestD1:
    async def test_letters_become_labels(self):
        status, body = await Asker(style="d1").decide({"q": {"type": "choice", "criteria": {"b": "bee", "a": "ant"}}})
        assert (status, list(body["answers"]["q"]["probabilities"])) == (200, ["b", "a"])

    async def test_a_letter_that_is_two_tokens(self):
        status, body = await Asker(style="d1").decide({"q": {"type": "choice", "criteria": {"é": None, "ß": None}}})
        assert (status, body["error"]["message"]) == (400, "question 'q': label 'é' is not one distinct token for this model")

    async def test_pictures_are_told_apart(self):
        """Two pictures behind the same placeholders must not share blocks."""
        asker = Asker(style="d1", block_size=4)
        other = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAYAAABytg0kAAAAEklEQVR4nGNgYGD4z8DAwMAAAAIIAQE="
        hits = []
        for picture in (PICTURE, PICTURE, other):
            before = asker.served.engine.counters.hits
            assert (await asker.decide({"q": noul()}, "What colour?", images=[picture]))[0] == 200
            hits.append(asker.served.engine.counters.hits - before)
        assert hits[0] == 0
        assert hits[1] > hits[2]

    @pytest.mark.parametrize("url", ["https://example.org/a.png", "data:image/png;base64,AA==", "data:image/png;base64,§", "nothing"])
    async def test_media_that_cannot_be_read(self, url: str):
        """The stand-in fetches nothing, whatever a request says."""
        status, body = await Asker(style="d1").decide({"q": noul()}, images=[url])
        assert (status, body["error"]["message"].startswith("media: ")) == (400, True)

    async def test_no_state_leaves_the_question_alone(self):
        asker = Asker(style="d1")
        without = (await asker.decide({"q": noul()}, None))[1]["usage"]["input_tokens"]
        assert without < (await asker.decide({"q": noul()}, "null"))[1]["usage"]["input_tokens"]


class TestDiffusion:
    async def test_two_tokens_a_question(self):
        _, body = await Asker(style="dgemma").decide({"a": noul(), "b": noul()})
        assert body["usage"]["output_tokens"] == 4

    async def test_chat_takes_no_temperature(self):
        messages = [{"role": "user", "content": "hi"}]
        status, body = await Asker(style="dgemma").post("/v1/chat/completions", {"messages": messages, "temperature": 0})
        assert (status, "not yet supported with diffusion models" in body["error"]["message"]) == (400, True)
        assert (await Asker(style="dgemma").post("/v1/chat/completions", {"messages": messages}))[0] == 200

    async def test_the_canvas_needs_room(self):
        """A prompt that fits alone is refused where the canvas behind it does not."""
        asker = Asker(style="dgemma", max_model_len=400)
        thought = len(asker.app.decider._thought)
        bare = (await asker.decide({"q": noul()}, ""))[1]["usage"]["input_tokens"] - thought
        status, body = await asker.decide({"q": noul()}, "1" * (400 - bare - 5))
        assert (status, body["error"]["param"]) == (400, None)
        assert body["error"]["message"] == (
            f"the prompt has {400 - 5} tokens and a canvas read adds {thought + 16}, more than max_model_len=400"
        )
        status, body = await asker.decide({"q": noul()}, "1" * 4000)
        assert (status, body["error"]["param"]) == (400, "input_tokens")


class TestModelsWithoutReads:
    async def test_labels_that_are_not_one_token_behind_the_template(self, tmp_path):
        """501, final, on every decision: what any other architecture answers."""
        template = tmp_path / "odd.jinja"
        template.write_text("<|im_start|>{{ messages[-1]['content'] }}{% if add_generation_prompt %}<|im_start|>assistant {% endif %}")
        asker = Asker(chat_template=template)
        status, body = await asker.decide({"q": noul()})
        assert (status, body["error"]["type"]) == (501, "NotImplementedError")
        assert body["error"]["message"] == "The model does not support the structured decision API"
        assert (await asker.post("/v1/completions", {"prompt": "x", "max_tokens": 1}))[0] == 200

    async def test_a_template_that_refuses_system_turns(self, tmp_path):
        template = tmp_path / "strict.jinja"
        template.write_text(
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
            "<|im_start|>{{ messages[-1].content }}<|im_end|>\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        )
        asker = Asker(chat_template=template)
        assert (await asker.decide({"q": noul()}))[0] == 200
        status, body = await asker.decide({"q": noul()}, instructions="x")
        assert (status, "no system turn" in body["error"]["message"]) == (400, True)


async def asked(version: str, body: dict[str, Any], path: str = "/v1/systemone") -> tuple[int, Any]:
    return await Asker(version=version).post(path, body)  # type: ignore[arg-type]


class TestVersions:
    BODY = {"state": "x", "questions": {"q": noul()}}  # noqa: RUF012

    async def test_031_has_no_decisions(self):
        """404 with the framework's envelope: before 0.32."""
        assert await asked("0.31", self.BODY) == (404, {"detail": "Not Found"})
        assert (await Asker(version="0.31").get("/version"))[1] == {"version": "0.31.0"}

    async def test_031_lets_every_browser_in(self):
        asker = Asker(version="0.31")
        headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
        reply = await asker.request("OPTIONS", "/v1/chat/completions", headers=headers)
        assert (reply.status, dict(reply.headers)["access-control-allow-origin"]) == (200, "*")

    async def test_033_refuses_unknown_fields(self):
        status, body = await asked("0.33", {**self.BODY, "x_trace": 1})
        assert (status, body["error"]["param"]) == (400, "body.x_trace")
        assert "Extra inputs are not permitted" in body["error"]["message"]
        status, body = await asked("0.33", {**self.BODY, "joint": False})
        assert (status, body["joint"]) == (200, None)
        assert (await asked("0.33", {**self.BODY, "joint": True}))[0] == 400

    async def test_033_decisions_come_in_order_with_cached_tokens(self):
        asker = Asker(version="0.33", block_size=4)
        body = {
            "model": "standin",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "write the files"}]}],
            "questions": [
                {"type": "predicate", "instructions": "Is it red?", "name": "red"},
                {"type": "choice", "instructions": "Which?", "choices": [{"value": "files"}, {"value": True, "description": "the web"}]},
                {"type": "score", "instructions": "Risk?", "levels": [{"label": "low"}, {"label": "high"}]},
            ],
        }
        status, first = await asker.post("/v1/decisions", body)
        assert status == 200, first
        red, which, risk = first["answers"]
        assert (red["type"], red["name"]) == ("predicate", "red")
        assert (which["choice"], which["name"], which["probabilities"][1]["value"]) == ("files", None, True)
        assert [level["value"] for level in risk["probabilities"]] == [0, 1]
        details = first["usage"]["input_tokens_details"]
        assert details["cached_tokens"] > 0  # siblings share the input
        assert first["usage"]["total_tokens"] == first["usage"]["input_tokens"] + 3
        second = (await asker.post("/v1/decisions", body))[1]["usage"]["input_tokens_details"]
        assert second["cached_tokens"] > details["cached_tokens"]
        assert second["cache_write_tokens"] < details["cache_write_tokens"]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"prompt_cache_key": "k"}, "Extra inputs are not permitted"),
            ({"model": None}, "body.model"),
            ({"questions": []}, "body.questions"),
            ({"questions": [{"type": "predicate", "instructions": "x"}] * 65}, "questions: at most 64 for this model"),
            ({"questions": [{"type": "noul", "instructions": "x"}]}, "union_tag_invalid"),
            (
                {"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": str(n)} for n in range(27)]}]},
                "This model supports at most 26 choices per question",
            ),
            ({"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": "a"}] * 2}]}, "choice values must be distinct"),
            ({"input": [{"role": "assistant", "content": "x"}]}, "body.input"),
        ],
    )
    async def test_033_decisions_refuse(self, change: dict[str, Any], told: str):
        body = {"model": "standin", "input": "x", "questions": [{"type": "predicate", "instructions": "x"}], **change}
        status, error = await asked("0.33", body, "/v1/decisions")
        assert status == 400
        assert told in str(error)

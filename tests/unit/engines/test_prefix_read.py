"""Reads on the agent's own prompt over ``/v1/completions``, against a stub with a tokenizer of our own (respx)."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
import respx

from tests.unit.engines.support import QUESTIONS, QUICK, WORKER, request
from warmgate.engines import AgentPrompt, Deadline, PrefixRead
from warmgate.engines.prefix_read import question_text
from warmgate.errors import MalformedAnswer, NotSupported, Overloaded, QuestionError
from warmgate.questions import Choice, Noul, Score

AFTER = "<end>\n<assistant>\n"
BEFORE = "<user>\n"


class Vllm:
    """``/tokenize``, ``/detokenize`` and ``/v1/completions`` of a server whose tokens are words, markup and single characters.

    ``split`` are labels that its tokenizer cuts in two. ``logprobs`` maps a label to its log-probability.
    """

    WORDS = ("<user>", "<end>", "<assistant>", "yes", "no", "Yes", "No")

    def __init__(self, logprobs: dict[str, float], split: str = "", sampled: str = "A") -> None:
        self.logprobs = logprobs
        self.split = split
        self.sampled = sampled
        self.vocabulary: dict[str, int] = {}
        self.completions: list[dict[str, Any]] = []
        self.tokenized: list[str] = []

    def ids(self, text: str) -> list[int]:
        found: list[int] = []
        while text:
            word = next((w for w in self.WORDS if text.startswith(w) and w not in self.split.split()), text[0])
            pieces = [word]
            if word in self.split.split():
                pieces = [word + "1", word + "2"]
            found += [self.vocabulary.setdefault(piece, len(self.vocabulary)) for piece in pieces]
            text = text[len(word) :]
        return found

    def __call__(self, sent: httpx.Request) -> httpx.Response:
        body = json.loads(sent.content)
        if sent.url.path == "/tokenize":
            if "messages" in body:
                text = "".join(f"<{m['role']}>\n{m['content']}<end>\n" for m in body["messages"]) + "<assistant>\n"
            else:
                assert body["add_special_tokens"] is False
                text = body["prompt"]
            self.tokenized.append(text)
            return httpx.Response(200, json={"tokens": self.ids(text), "count": 0, "max_model_len": 1})
        if sent.url.path == "/detokenize":
            names = {number: piece for piece, number in self.vocabulary.items()}
            return httpx.Response(200, json={"prompt": "".join(names[n] for n in body["tokens"])})
        self.completions.append(body)
        return httpx.Response(200, json=self.completion(body))

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        names = {number: piece for piece, number in self.vocabulary.items()}
        top = {f"token_id:{n}": self.logprobs.get(names[n], -9999.0) for n in body["logprob_token_ids"]}
        sampled = f"token_id:{self.vocabulary.get(self.sampled, 9999)}"
        return {
            "model": "m",
            "choices": [{"text": "?", "logprobs": {"tokens": [sampled], "token_logprobs": [-1.0], "top_logprobs": [top]}}],
            "usage": {"prompt_tokens": 40, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 32}},
        }


async def ask(server: Vllm, **changes: Any) -> Any:
    with respx.mock(assert_all_called=False) as router:
        router.post(url__startswith=WORKER).mock(side_effect=server)
        async with PrefixRead(WORKER, model="m", policy=QUICK) as engine:
            return await engine.ask(request(**changes), deadline=Deadline(5))


LOGPROBS = {"A": math.log(0.3), "B": math.log(0.1), "yes": math.log(0.5), "no": math.log(0.1), "0": math.log(0.2), "1": math.log(0.1), "2": math.log(0.1)}  # fmt: skip


async def test_the_prompt_is_the_agents_ids_then_the_question():
    """Anything else in front and the agent's prefix is not found in the cache."""
    server = Vllm(LOGPROBS)
    prompt = AgentPrompt(prefix=(501, 502, 503), before=BEFORE, after=AFTER)
    answers = await ask(server, prompt=prompt, cache_salt="s", priority=2)
    assert len(server.completions) == 3
    for sent, question, labels in zip(server.completions, QUESTIONS.values(), (("A", "B"), ("yes", "no"), ("0", "1", "2")), strict=True):
        assert sent["prompt"][:3] == [501, 502, 503]
        assert sent["prompt"][3:] == server.ids(BEFORE + question_text(question, labels) + AFTER)
        assert sent["logprob_token_ids"] == [server.ids(label)[0] for label in labels]
        assert (sent["max_tokens"], sent["temperature"], sent["logprobs"]) == (1, 0, 1)
        assert (sent["model"], sent["cache_salt"], sent["priority"]) == ("m", "s", 2)
    route = answers.answers["route"]
    assert route.probabilities == {"fs": pytest.approx(0.75), "web": pytest.approx(0.25)}
    assert route.label_mass == pytest.approx(0.4)
    assert (route.argmax_is_label, answers.answers["shell"].argmax_is_label) == (True, False)
    assert answers.answers["shell"].value == pytest.approx(0.5 / 0.6)
    assert answers.answers["risk"].value == pytest.approx((0.1 + 0.2) / 0.4)


async def test_every_read_reports_its_cached_tokens():
    answers = await ask(Vllm(LOGPROBS), prompt=AgentPrompt((1, 2), BEFORE, AFTER))
    assert [answer.usage.cached_tokens for answer in answers.answers.values() if answer.usage] == [32, 32, 32]
    assert (answers.usage.input_tokens, answers.usage.cached_tokens) == (120, 96)


async def test_a_text_prefix_stays_text_and_gets_no_second_begin_token():
    server = Vllm(LOGPROBS)
    await ask(server, prompt=AgentPrompt("<user>\nhi<end>\n", BEFORE, AFTER))
    assert all(sent["prompt"].startswith("<user>\nhi<end>\n<user>\nQuestion: ") for sent in server.completions)
    assert all(sent["add_special_tokens"] is False for sent in server.completions)


async def test_without_an_agents_prompt_the_servers_template_renders_the_state():
    server = Vllm(LOGPROBS)
    await ask(server, instructions="Be brief.")
    text = f"<system>\nBe brief.<end>\n<user>\nThe user asked to list files.\n\n{question_text(QUESTIONS['route'], ('A', 'B'))}<end>\n<assistant>\n"
    assert server.completions[0]["prompt"] == server.ids(text)


async def test_labels_that_are_not_one_token_are_replaced():
    server = Vllm({**LOGPROBS, "C": math.log(0.1), "Yes": math.log(0.4), "No": math.log(0.1)}, split="B yes")
    answers = await ask(server, prompt=AgentPrompt((1,), BEFORE, AFTER))
    sent = [body["logprob_token_ids"] for body in server.completions]
    assert [server.ids("A")[0], server.ids("C")[0]] in sent
    assert "C: web" in "".join(server.tokenized)
    assert [server.ids("Yes")[0], server.ids("No")[0]] in sent
    assert answers.answers["shell"].value == pytest.approx(0.8)


async def test_where_labels_run_out_the_reason_is_given():
    server = Vllm(LOGPROBS, split=" ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ12345678"))
    with pytest.raises(NotSupported, match="only 1 of 2 labels are one token"):
        await ask(server, prompt=AgentPrompt((1,), BEFORE, AFTER), questions={"q": QUESTIONS["route"]})


async def test_labels_and_questions_are_tokenized_once():
    """Each turn would otherwise pay dozens of small requests."""
    server = Vllm(LOGPROBS)
    with respx.mock(assert_all_called=False) as router:
        router.post(url__startswith=WORKER).mock(side_effect=server)
        async with PrefixRead(WORKER, model="m") as engine:
            for _ in range(2):
                before = len(server.tokenized)
                await engine.ask(request(prompt=AgentPrompt((1,), BEFORE, AFTER)), deadline=Deadline(5))
    assert len(server.tokenized) == before


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda reply: reply["choices"].clear(), MalformedAnswer),
        (lambda reply: reply["choices"][0].update(logprobs=None), MalformedAnswer),
        (lambda reply: reply["choices"][0]["logprobs"].update(top_logprobs=[None]), MalformedAnswer),
        (lambda reply: reply["choices"][0]["logprobs"].update(tokens=[]), MalformedAnswer),
        (lambda reply: reply["choices"][0]["logprobs"]["top_logprobs"][0].clear(), NotSupported),
        (lambda reply: reply["choices"][0]["logprobs"]["top_logprobs"][0].update({"token_id:1": "x"}), MalformedAnswer),
        (lambda reply: reply.pop("choices"), MalformedAnswer),
    ],
)
async def test_a_reply_without_the_labels_is_an_error(spoil: Any, kind: type[Exception]):
    server = Vllm(LOGPROBS)
    original = server.completion

    def spoiled(body: dict[str, Any]) -> dict[str, Any]:
        reply = original(body)
        spoil(reply)
        return reply

    server.completion = spoiled  # type: ignore[method-assign]
    with pytest.raises(kind):
        await ask(server, prompt=AgentPrompt((1,), BEFORE, AFTER))


async def test_logits_are_not_taken_for_log_probabilities():
    """Their softmax would look fine and their mass would be nonsense."""
    with pytest.raises(NotSupported, match="raw_logprobs"):
        await ask(Vllm({**LOGPROBS, "A": 12.5}), prompt=AgentPrompt((1,), BEFORE, AFTER))


async def test_labels_without_any_probability_are_no_uniform_answer():
    with pytest.raises(MalformedAnswer, match="none of the labels any probability"):
        await ask(Vllm({}), prompt=AgentPrompt((1,), BEFORE, AFTER))


async def test_one_read_that_fails_ends_them_all():
    with respx.mock(assert_all_called=False) as router:
        server = Vllm(LOGPROBS)
        router.post(f"{WORKER}/v1/completions").respond(503, json={"error": "full"})
        router.post(url__startswith=WORKER).mock(side_effect=server)
        async with PrefixRead(WORKER, policy=QUICK) as engine:
            with pytest.raises(Overloaded):
                await engine.ask(request(prompt=AgentPrompt((1,), BEFORE, AFTER)), deadline=Deadline(5))


async def test_more_options_than_labels_are_refused_before_sending():
    many = Choice(criteria={f"o{n}": None for n in range(36)})
    with pytest.raises(QuestionError, match="36 options, at most 35"):
        await ask(Vllm({}), questions={"q": many})


def test_the_text_of_a_question():
    choice = Choice(instructions="Which?", criteria={"fs": "files", "web": None})
    assert question_text(choice, ("A", "B")) == "Question: Which?\nA: fs - files\nB: web\nReply with the label of one option, nothing else."
    assert question_text(Noul(instructions="?"), ("yes", "no")) == "Question: ?\nyes\nno\nReply with yes or no, nothing else."
    assert question_text(Noul(criteria={"true": "it is"}), ("A", "B")) == "A: it is\nB: no\nReply with A or B, nothing else."  # type: ignore[arg-type]
    assert question_text(Score(criteria=("lo", "hi")), ("0", "1")) == "0: lo\n1: hi\nReply with the label of one level, nothing else."

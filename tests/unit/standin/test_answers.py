"""Scripted and lexical answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.standin.asking import Asker, noul
from warmgate.errors import InputError, OptionError
from warmgate.standin.answers import Answers, offered_labels
from warmgate.standin.script import Script

CHOICE = {"type": "choice", "instructions": "Which tools?", "criteria": {"fs": "read and write files", "web": "fetch a page", "none": None}}


async def ask(questions: dict[str, Any], state: Any = "x", script: Any = None, **more: Any) -> dict[str, Any]:
    status, body = await Asker(script=script).decide(questions, state, **more)
    assert status == 200, body
    return body


async def test_words_in_common_decide():
    """A demo or a test would show nothing if every answer were a toss."""
    assert (await ask({"q": CHOICE}, "please write this to the files"))["answers"]["q"]["choice"] == "fs"
    assert (await ask({"q": CHOICE}, "fetch that page for me"))["answers"]["q"]["choice"] == "web"
    body = await ask({"q": noul("Does the user ask to delete a branch?")}, "Delete the branch, please.")
    assert body["answers"]["q"]["noul"] > 0.8
    assert (await ask({"q": noul("Is it raining?")}, "Delete the branch."))["answers"]["q"]["noul"] == pytest.approx(0.5)


async def test_the_same_everywhere():
    """Order, ids and neighbours of a question must not move its answer."""
    alone = (await ask({"a": CHOICE}, "write files"))["answers"]["a"]
    among = await ask({"b": noul(), "zz": CHOICE}, "write files")
    assert among["answers"]["zz"] == alone


async def test_a_script_answers():
    script = {
        "decisions": [
            {"id": "sh*", "probabilities": {"yes": 0.9}},
            {"instructions": "WHICH tools", "state": "weather", "probabilities": {"web": 0.6}, "label_mass": 0.5},
            {"type": "score", "probabilities": {"high": 1}},
            {"type": "choice", "probabilities": {"unheard of": 1}},
        ]
    }
    score = {"type": "score", "instructions": "Risk?", "criteria": ["low", "high"]}
    body = await ask({"shell": noul(), "t": CHOICE, "r": score}, "The weather in Rome", script)
    assert body["answers"]["shell"]["probabilities"] == {"yes": pytest.approx(0.9), "no": pytest.approx(0.1)}
    assert body["answers"]["t"]["probabilities"] == {"fs": pytest.approx(0.2), "web": pytest.approx(0.6), "none": pytest.approx(0.2)}
    assert body["diagnostics"]["t"] == {"label_mass": 0.5, "argmax_is_label": False}
    assert body["answers"]["r"]["score"] == 1.0


async def test_a_rule_that_names_no_option_is_passed_over():
    body = await ask({"q": CHOICE}, "write files", {"decisions": [{"probabilities": {"other": 1}}, {"probabilities": {"none": 1}}]})
    assert body["answers"]["q"]["choice"] == "none"


async def test_a_model_that_does_not_want_to_answer():
    """The gate has to abstain on these; the stand-in must be able to produce them."""
    body = await ask({"q": noul()}, "x", {"decisions": [{"probabilities": {"yes": 0.5}, "label_mass": 0.01, "argmax_is_label": False}]})
    assert body["diagnostics"]["q"] == {"label_mass": 0.01, "argmax_is_label": False}
    assert body["answers"]["q"]["confidence"] == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"decision": []}, "decision: Extra inputs are not permitted"),
        ({"decisions": [{"probabilities": {}}]}, "decisions.0.probabilities"),
        ({"decisions": [{"probabilities": {"a": 0.9, "b": 0.9}}]}, "add up to more than 1"),
        ({"decisions": [{"probabilities": {"a": float("nan")}}]}, "decisions.0.probabilities.a"),
        ({"decisions": [{"id": 7, "probabilities": {"a": 1}}]}, "decisions.0.id"),
        ({"chat": [{"tool_calls": [{"arguments": {}}]}]}, "chat.0.tool_calls.0.name"),
        ({"chat": "hello"}, "chat"),
    ],
)
def test_a_script_with_a_mistake(script: dict[str, Any], told: str):
    """One line that names the place."""
    with pytest.raises(OptionError) as caught:
        Script.of(script)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_script(tmp_path, content: bytes):
    path = tmp_path / "script.json"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=r"script\.json"):
        Script.of(path)
    with pytest.raises(InputError, match="absent"):
        Script.of(tmp_path / "absent")


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.integers(1, 6))
def test_shares_always_add_up(values: list[float], named: int):
    names = [f"o{n}" for n in range(len(values))]
    scale = max(1.0, sum(values[:named]))
    rule = Script.of({"decisions": [{"probabilities": {n: v / scale for n, v in zip(names, values[:named], strict=False)}}]}).decisions[0]
    shares = rule.shares([(name,) for name in names])
    assert shares is not None
    assert sum(shares) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares)


class TestReadsOfBarePrompts:
    """A read over /v1/completions has no question object: it is found in the prompt's end."""

    ANSWERS = Answers(Script.of({"decisions": [{"instructions": "safe to run", "probabilities": {"no": 0.99}}]}))

    def test_lettered_options(self):
        prompt = "Write the file.\n\nQuestion: Which tools?\nA: web - fetch a page\nB: fs - read and write files\nAnswer with one letter.\n"
        assert self.ANSWERS.labels(["A", "B"], prompt).best == 1
        assert self.ANSWERS.labels(["B", "A"], prompt).best == 0

    def test_other_spellings_of_options(self):
        prompt = "Write the file.\nWhich?\n(A) fetch a page\n(B) read and write files\n\nReply with a letter:"
        assert self.ANSWERS.labels(["A", "B"], prompt).best == 1

    def test_yes_or_no(self):
        prompt = "Delete the branch.\n\nQuestion: Does the user ask to delete a branch?\nAnswer with yes or no only."
        assert self.ANSWERS.labels(["yes", "no"], prompt).best == 0

    def test_a_script_finds_the_question(self):
        prompt = "rm -rf /\n\nQuestion: Is this safe to run?\nyes: it is\nno: it is not\nAnswer with yes or no only."
        opinion = self.ANSWERS.labels(["yes", "no"], prompt)
        assert opinion.probabilities == (pytest.approx(0.01), pytest.approx(0.99))

    def test_labels_without_lines_stand_for_themselves(self):
        assert sum(self.ANSWERS.labels(["x", "y"], "").probabilities) == pytest.approx(1)

    @pytest.mark.parametrize(
        ("prompt", "labels"),
        [
            ("Question: red?\nyes\nno\nAnswer with yes or no only.", ["yes", "no"]),
            ("Which?\nA: x\nB: y\nC: z\n", ["A", "B", "C"]),
            ("How much?\n0: none\n1: some\n", ["0", "1"]),
            ("Hello there.", []),
            ("A: alone", []),
        ],
    )
    def test_what_a_prompt_offers(self, prompt: str, labels: list[str]):
        assert offered_labels(prompt) == labels


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/nonexistent"])
def test_a_file_without_end_or_beginning(path: str):
    """A device named by mistake would fill the memory."""
    with pytest.raises(InputError) as caught:
        Script.of(path)
    assert str(caught.value).startswith(f"{path}: ")

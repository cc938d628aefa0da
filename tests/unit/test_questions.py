"""Questions: what may be asked, and what is refused before it costs a request."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgate.errors import QuestionError, WarmgateError
from warmgate.questions import NAME_CHARS, Choice, Noul, Score, parse_questions


def test_the_file_shape_is_read_and_ids_and_options_keep_their_order():
    """A user whose options are reordered gets another answer: models prefer places."""
    text = """{"z": {"type": "choice", "instructions": "Which?", "criteria": {"web": "the web", "fs": null}},
               "a": {"type": "noul", "criteria": {"true": "yes it is"}},
               "m": {"type": "score", "criteria": ["none", "some", "high"]}}"""
    questions = parse_questions(text)
    assert list(questions) == ["z", "a", "m"]
    assert questions["z"].labels == ("web", "fs")
    assert questions["a"].labels == ("yes", "no")
    assert questions["m"].labels == ("none", "some", "high")


@pytest.mark.parametrize("word", ["noul", "predicate", "boolean", "yes_no"])
def test_every_servers_word_for_a_yes_or_no_is_read_as_noul(word: str):
    assert parse_questions({"q": {"type": word, "instructions": "Is it red?"}})["q"] == Noul(instructions="Is it red?")


def test_question_objects_may_stand_among_parsed_ones():
    noul = Noul(instructions="?")
    assert parse_questions({"q": noul})["q"] is noul


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a\rb",
        "a\tb",
        "a\x1b[31mb",
        "a\u2028b",
        "a\u202eb",
        "a\ud800",
        "<|im_end|>",
        "x<|im_start|>system",
        "</think>",
        "<tool_call>",
        "<start_of_turn>",
        "<｜User｜>",
        "<turn|>",
        "[INST]",
        "<s>",
        " padded",
        "padded ",
        "",
        "   ",
        "n" * (NAME_CHARS + 1),
    ],
)
def test_a_name_that_could_break_out_of_its_line_or_turn_is_refused(name: str):
    """Else a tool named by somebody else could end the user turn and speak as the system."""
    for broken in (
        lambda: Choice(criteria={name: None, "other": None}),
        lambda: Score(criteria=(name, "other")),
        lambda: parse_questions({name: {"type": "noul"}}),
    ):
        with pytest.raises(QuestionError) as caught:
            broken()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["fs", "kubectl get pods", "größe", "日本語", "a<b", "x|y", "<b>", "\U0001f469‍\U0001f4bb", "list[int]"])
def test_ordinary_names_of_any_script_are_taken(name: str):
    assert Choice(criteria={name: None}).labels == (name,)


@pytest.mark.parametrize("text", ["<|im_end|>", "ends here</think>", "\x00", "a\x1b[2J"])
def test_control_markup_in_descriptions_and_instructions_is_refused(text: str):
    for broken in (
        lambda: Choice(criteria={"a": text}),
        lambda: Noul(instructions=text),
        lambda: parse_questions({"q": {"type": "noul", "criteria": {"false": text}}}),
    ):
        with pytest.raises(QuestionError):
            broken()


def test_texts_may_have_several_lines():
    assert Noul(instructions="one\n\ttwo").instructions == "one\n\ttwo"


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("[]", "questions"),
        ("{}", "questions"),
        ("{", "questions"),
        ("nonsense", "questions"),
        ("[" * 200_000, "questions"),
        ('{"q": {"type": "noul"}, "q": {"type": "noul"}}', "questions"),
        ('{"q": {"type": "choice", "criteria": {"a": null, "a": "x"}}}', "questions"),
        ('{"q": 3}', "question 'q'"),
        ('{"q": {}}', "question 'q', type"),
        ('{"q": {"type": "rank"}}', "question 'q', type"),
        ('{"q": {"type": ["choice"]}}', "question 'q', type"),
        ('{"q": {"type": "choice"}}', "question 'q', criteria"),
        ('{"q": {"type": "choice", "criteria": {}}}', "question 'q', criteria"),
        ('{"q": {"type": "choice", "criteria": ["a"]}}', "question 'q', criteria"),
        ('{"q": {"type": "choice", "criteria": {"score": 3}}}', "question 'q', criteria.score"),
        ('{"q": {"type": "choice", "criteria": {"a": null}, "examples": []}}', "question 'q', examples"),
        ('{"q": {"type": "score", "criteria": ["one"]}}', "question 'q', criteria"),
        ('{"q": {"type": "score", "criteria": ["a", "a"]}}', "question 'q', criteria"),
        ('{"q": {"type": "score", "criteria": {"0": "a", "1": "b"}}}', "question 'q', criteria"),
        ('{"q": {"type": "noul", "criteria": {"yes": "x"}}}', "question 'q', criteria.yes"),
        ('{"q": {"type": "noul", "instructions": {"text": "x"}}}', "question 'q', instructions"),
    ],
)
def test_what_is_wrong_is_named_by_question_and_field(source: str, where: str):
    with pytest.raises(QuestionError) as caught:
        parse_questions(source)
    assert str(caught.value).startswith(where), str(caught.value)
    assert caught.value.exit_code == 2


def test_names_that_look_alike_are_refused():
    with pytest.raises(QuestionError, match="twice"):
        Choice(criteria={"\u00e9": None, "e\u0301": None})


def test_questions_cannot_be_changed_and_survive_pickling():
    choice = Choice(criteria={"a": None, "b": "bee"})
    with pytest.raises(ValueError, match="frozen"):
        choice.instructions = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(choice)) == choice


def test_errors_survive_pickling_with_their_fields():
    with pytest.raises(QuestionError) as caught:
        parse_questions({"q": {"type": "choice", "criteria": {"n" * 999: None}}})
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.question, again.field, again.limit) == (str(caught.value), "q", "criteria", NAME_CHARS)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=12
    )
)
def test_no_json_value_crashes_the_parser(value: object):
    """Bad input ends in one typed error, never in a traceback."""
    for source in (json.dumps(value), json.dumps({"q": value}), json.dumps({"q": {"type": "choice", "criteria": value}})):
        try:
            questions = parse_questions(source)
        except WarmgateError:
            continue
        assert questions

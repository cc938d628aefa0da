"""LangChain's questions and states on their way to a worker. If these fail, a question is asked otherwise than it was meant."""

from __future__ import annotations

import pytest
from langchain_core import decisions as lc
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from warmgate.answers import Source, calibrated, uncalibrated
from warmgate.errors import MalformedAnswer, OptionError, QuestionError
from warmgate_adapters.langchain import SystemOneDecisionModel
from warmgate_adapters.langchain.questions import ours, theirs
from warmgate_adapters.langchain.state import user_turn
from warmgate_adapters.langchain.states import conversation, plain

SOURCE = Source(engine="systemone", worker="http://w", model="m", dialect="vllm", request_id="r", latency_s=0.0)
NOUL = lc.Noul(instructions="Is it risky?", criteria=lc.NoulCriteria(true="It harms.", false={"kind": "harmless"}))
CHOICE = lc.Choice(instructions={"pick": "one"}, criteria={"fast": "easy", "slow": None})
SCORE = lc.Score(instructions="How bad?", criteria=["fine", "bad\nindeed", "x" * 300])


def test_questions_keep_their_words():
    asked = ours({"noul": NOUL, "choice": CHOICE})
    assert asked["noul"].instructions == "Is it risky?"
    assert asked["noul"].criteria.true == "It harms."
    assert asked["noul"].criteria.false == '{"kind": "harmless"}'
    assert asked["choice"].instructions == '{"pick": "one"}'
    assert asked["choice"].criteria == {"fast": "easy", "slow": None}


def test_levels_that_cannot_be_labels_are_numbered_and_told():
    """LangChain's levels are descriptions; a label of a worker's is a short line."""
    asked = ours({"score": SCORE})["score"]
    assert asked.criteria == ("0", "1", "2")
    assert "1: bad\nindeed" in asked.instructions
    answer = calibrated("score", asked, {"0": 0.5, "1": 0.5, "2": 0.0}, SOURCE)
    told = theirs("score", SCORE, answer, floor=0.1)
    assert told.score == 0.5
    assert told.legend[2] == "x" * 300
    assert told.probabilities == {0: 0.5, 1: 0.5, 2: 0.0}


def test_what_cannot_be_asked_names_its_question():
    for bad in (
        {"b": lc.Box(instructions="where?")},
        {"b": lc.Noul(instructions="<|im_end|>")},
        {"b": lc.Choice(instructions="", criteria={" ": 1})},
    ):
        with pytest.raises(QuestionError, match="b"):
            ours(bad)
    with pytest.raises(QuestionError, match="at least one"):
        ours({})


def test_doubt_is_an_error_and_no_number():
    """AutoModeMiddleware runs every call whose number is below one half, whatever the number is worth."""
    asked = ours({"n": NOUL})["n"]
    assert theirs("n", NOUL, calibrated("n", asked, {"yes": 0.2, "no": 0.8}, SOURCE, label_mass=0.9), floor=0.1).noul == 0.2
    with pytest.raises(MalformedAnswer, match="did not want"):
        theirs("n", NOUL, calibrated("n", asked, {"yes": 0.2, "no": 0.8}, SOURCE, label_mass=0.01), floor=0.1)
    with pytest.raises(MalformedAnswer, match="without probabilities"):
        theirs("n", NOUL, uncalibrated("n", asked, "no", SOURCE), floor=0.1)


def test_messages_are_found_in_a_state():
    said = [HumanMessage("go", id="1"), AIMessage("", id="2", tool_calls=[{"id": "c", "name": "shell", "args": {"command": "ls"}}])]
    assert conversation(said[0]).messages == [said[0]]
    assert conversation(said).messages == said
    told = conversation({"messages": said, "tool_call": {"id": "c"}})
    assert told.messages == said
    assert told.rest == {"tool_call": {"id": "c"}}
    for other in ("text", {"tool_call": {}}, [said[0], "text"], [], {"messages": {"messages": said}}):
        assert conversation(other) is None


def test_a_state_of_any_shape_is_json():
    state = {"a": [HumanMessage("go"), {"b": ToolMessage("done", tool_call_id="c")}], "n": 1.5, "t": True, "none": None}
    assert plain(state) == {
        "a": [{"role": "user", "content": "go"}, {"b": {"role": "tool", "tool_call_id": "c", "content": "done"}}],
        "n": 1.5,
        "t": True,
        "none": None,
    }
    with pytest.raises(QuestionError, match="image"):
        plain([HumanMessage([{"type": "image", "base64": "aGk=", "mime_type": "image/png"}])])


def test_a_model_is_of_one_place():
    for wrong in ({"model": "m"}, {"model": "m", "base_url": "http://w", "gate": object()}):
        with pytest.raises((OptionError, ValueError)):
            SystemOneDecisionModel(**wrong)
    made = SystemOneDecisionModel(model="m", base_url="http://w:8000/v1/", api_key="secret")
    assert made._engine.worker == "http://w:8000"
    assert "secret" not in repr(made)


def test_user_turns_never_go_back():
    """A summary, an announcement and a redacted message are no turns of the user."""
    first = user_turn([HumanMessage("a", id="1"), AIMessage("b"), HumanMessage("c", id="2")], None)
    assert first == {"id": "2", "number": 2}
    summary = HumanMessage("they spoke", id="9", additional_kwargs={"lc_source": "summarization"})
    assert user_turn([summary], first) == first
    assert user_turn([summary, HumanMessage("C", id="2")], first) == first
    assert user_turn([summary, HumanMessage("d", id="3")], first) == {"id": "3", "number": 3}
    announced = HumanMessage("tools", id="8", additional_kwargs={"warmgate_announces": ["web"]})
    assert user_turn([HumanMessage("c", id="2"), announced], first) == first
    assert user_turn([], None) == {"id": None, "number": 0}

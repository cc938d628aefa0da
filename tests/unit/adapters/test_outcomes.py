"""Outcomes and the texts models read. If these fail, a resumed graph runs what was refused, or a model is told nonsense."""

from __future__ import annotations

import json

import pytest

from warmgate.errors import OptionError
from warmgate.turn import ProposedCall
from warmgate_adapters.core import Ask, Execute, Record, Reject, outcome_from_json, outcome_to_json, words

CALL = ProposedCall("1", "shell", {"command": "make"})
RECORD = Record(binding="b", verdict="ask", reason="it builds", source="rules", rule="r", policy="p 1", decision="d")


@pytest.mark.parametrize(
    "outcome",
    [
        Execute(CALL, "b", RECORD),
        Ask(CALL, "b", RECORD),
        Reject(CALL, "no", "denied", RECORD),
        Reject(CALL, "no", "unmounted"),
    ],
)
def test_an_outcome_comes_back_from_a_checkpoint_as_it_was(outcome):
    assert outcome_from_json(json.loads(json.dumps(outcome_to_json(outcome))), CALL) == outcome


def test_a_damaged_outcome_never_becomes_a_call_that_runs():
    for value in ({}, {"kind": "run"}, None, {"kind": "execute", "record": {"verdict": "allow"}}):
        with pytest.raises(OptionError):
            outcome_from_json(value, CALL)
    assert isinstance(outcome_from_json({"kind": "execute"}, CALL), Reject)


def test_what_a_person_is_shown_is_json_and_whole():
    shown = json.loads(json.dumps(Ask(CALL, "b", RECORD).payload))
    assert shown["call"] == {"id": "1", "name": "shell", "arguments": {"command": "make"}}
    assert (shown["reason"], shown["rule"], shown["binding"], shown["decision"]) == ("it builds", "r", "b", "d")


def test_only_what_may_run_later_is_called_recoverable():
    assert Reject(CALL, "", "unmounted").recoverable
    assert Reject(CALL, "", "changed").recoverable
    assert not Reject(CALL, "", "denied").recoverable
    assert not Reject(CALL, "", "refused").recoverable


def test_texts_for_models_are_short_and_the_same_each_time():
    """They become part of the prompt: a clock or a random id in them would break it, a list of 1,000 tools would fill it."""
    many = [f"tool{n}" for n in range(1000)]
    text = words.unmounted("web", many)
    assert text == words.unmounted("web", many)
    assert len(text) < 500
    assert "980 more" in text
    assert "not mounted" in words.unmounted("web", ())
    assert words.denied("it\nremoves  files").count("\n") == 0
    assert words.refused("not here") != words.refused()
    assert words.announcement([{"type": "function", "function": {"name": "é"}}]).endswith('{"type": "function", "function": {"name": "é"}}')

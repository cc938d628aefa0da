"""The state in a checkpoint. If these fail, an upgrade loses a person's no, or one session sees another's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warmgate.errors import OptionError
from warmgate_adapters.core import GateState, Record, Refusal, merge

STORED = json.loads((Path(__file__).parents[2] / "data" / "gate_state" / "v1.json").read_text())


def state(session="s", **fields):
    return GateState(session=session, **fields)


def record(word="allow", **more):
    return Record(binding="b", verdict=word, reason="r", source="rules", **more)


def test_a_checkpoint_of_the_first_version_is_read_whole():
    kept = GateState.read(STORED, "thread-7")
    assert kept.mounts == ("read", "write", "shell")
    assert (kept.offered, kept.announced) == (("read", "write"), ("shell",))
    assert kept.verdicts["msg-1/call-b"].approved
    assert kept.verdicts["msg-1/call-a"].rule == "reads"
    assert kept.refused == {"cc": Refusal(user_turn=2, message="not on this machine")}
    assert GateState.read(STORED, "thread-7/helper").refused == {"dd": Refusal(user_turn=1)}


def test_what_is_written_is_what_is_read_through_json_text():
    kept = state(mounts=("a",), verdicts={"m/1": record("ask", approved=True)}, refused={"k": Refusal(user_turn=1)}).with_(
        worker="http://w"
    )
    assert GateState.read(json.loads(json.dumps(kept.to_json())), "s") == kept
    assert merge({}, GateState.read(STORED, "thread-7").to_json())["verdicts"] == STORED["verdicts"]


def test_no_session_reads_anothers_state():
    kept = merge(state("a", mounts=("x",)).to_json(), state("b", mounts=("y",)).to_json())
    assert kept["session"] == "b"
    assert GateState.read(kept, "a").mounts == ("x",)
    assert GateState.read(kept, "b").mounts == ("y",)
    assert GateState.read(kept, "c") == state("c")


def test_branches_add_up_and_neither_lifts_the_others_refusal():
    base = state(mounts=("x",), announced=("z",))
    left = base.with_(refused={"k": Refusal(user_turn=1)}, verdicts={"m/1": record()}, announce=("p",))
    right = base.with_(verdicts={"m/2": record("ask")}, announce=("q",)).with_(worker="http://w").to_json()
    for kept in (merge(left.to_json(), right), merge(right, left.to_json())):
        found = GateState.read(kept, "s")
        assert set(found.refused) == {"k"}
        assert set(found.verdicts) == {"m/1", "m/2"}
        assert found.worker == "http://w"
    beside = merge(left.to_json(), base.with_(announce=("q",)).to_json())
    assert beside["announce"] == ["p", "q"]


def test_nothing_is_guessed_of_a_later_or_broken_state():
    for value, word in (
        ({**STORED, "schema": "warmgate.gate/2"}, "warmgate.gate/2"),
        ({**STORED, "refused": ["cc"]}, "refused"),
        ({"mounts": []}, "not what warmgate writes"),
        ("junk", "not what warmgate writes"),
        ({"schema": "warmgate.gate/1"}, "names no session"),
    ):
        with pytest.raises(OptionError, match=word):
            GateState.read(value, "thread-7")


def test_a_long_session_does_not_grow_its_checkpoint_without_end():
    kept = state()
    for number in range(600):
        kept = kept.with_(verdicts={f"m{number}/1": record()})
    assert len(kept.verdicts) == 64
    assert "m599/1" in kept.verdicts
    channel = {}
    for number in range(600):
        channel = merge(channel, state(f"s{number}").to_json())
    assert len(channel["others"]) == 255
    assert channel["session"] == "s599"


def test_a_message_of_many_calls_keeps_every_verdict():
    """Else most of the calls that a person approved in one go are rejected as calls nobody judged."""
    kept = state(verdicts={f"m1/{number}": record() for number in range(60)})
    for number in range(200):
        kept = kept.with_(verdicts={f"m2/{number}": record("ask", approved=True)})
    assert list(kept.verdicts) == [f"m2/{number}" for number in range(200)]
    assert GateState.read(merge(kept.to_json(), kept.to_json()), "s").verdicts == kept.verdicts
    later = kept.with_(verdicts={"m3/1": record()})
    assert len(later.verdicts) == 64
    unnamed = state()
    for number in range(200):
        unnamed = unnamed.with_(verdicts={f"/{number}": record()})
    assert len(unnamed.verdicts) == 64


def test_an_empty_update_changes_nothing():
    assert merge({}, {}) == {}
    assert merge(None, None) == {}
    assert merge(STORED, {}) == {**STORED, "others": STORED["others"]}

"""If these fail, what an SDK hands back cannot be handed on, or a mistake in a turn shows as a fault deep inside the gate."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from warmgate.errors import OptionError
from warmgate.turn import ProposedCall, Turn

USER = {"role": "user", "content": "hi"}


class Reply(BaseModel):
    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None


@dataclass
class Plain:
    role: str
    content: str
    name: str | None = None


def test_messages_of_an_sdk_are_taken_for_what_they_are_sent_as():
    """``messages.append(reply.choices[0].message)`` is what most agent loops do."""
    turn = Turn("s", [USER, Reply(content="Hello."), Plain("user", "more")])
    assert list(turn.messages) == [USER, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "more"}]
    assert turn.user_turns == 2


def test_a_list_of_dictionaries_stays_the_same_object():
    """Copies would be compared message by message, at every turn."""
    messages, tools = [USER], [{"type": "function"}]
    turn = Turn("s", messages, tools)
    assert turn.messages is messages
    assert turn.tools is tools


def test_generators_and_nothing_are_taken():
    """A generator would be empty at the second look, ``tools=None`` is what a loop without tools hands over."""
    turn = Turn("s", (m for m in [USER]), None, None, None)
    assert (list(turn.messages), list(turn.tools), list(turn.proposed_calls), dict(turn.template_kwargs)) == ([USER], [], [], {})
    assert turn.user_turns == 1


def test_calls_may_be_dictionaries():
    """They are what a reply's calls are read from."""
    turn = Turn("s", [USER], proposed_calls=[{"id": "a", "name": "bash", "arguments": "{}"}])
    assert list(turn.proposed_calls) == [ProposedCall("a", "bash", "{}")]


class Broken:
    def model_dump(self, **_):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: Turn("s", [USER, object()]), "Turn.messages[1]"),
        (lambda: Turn("s", [USER, None]), "Turn.messages[1]"),
        (lambda: Turn("s", [Broken()]), "Turn.messages[0]"),
        (lambda: Turn("s", "hi"), "Turn.messages"),
        (lambda: Turn("s", USER), "Turn.messages"),
        (lambda: Turn("s", 5), "Turn.messages"),
        (lambda: Turn("s", [USER], [USER, "read"]), "Turn.tools[1]"),
        (lambda: Turn("s", [USER], proposed_calls=[{"id": "a"}]), "Turn.proposed_calls[0]"),
        (lambda: Turn("s", [USER], proposed_calls=[5]), "Turn.proposed_calls[0]"),
        (lambda: Turn("s", [USER], template_kwargs=[1]), "Turn.template_kwargs"),
        (lambda: Turn(None, [USER]), "Turn.session"),
        (lambda: Turn(7, [USER]), "Turn.session"),
        (lambda: ProposedCall(None, "bash", {}), "ProposedCall.id"),
        (lambda: ProposedCall("a", None, {}), "ProposedCall.name"),
    ],
)
def test_a_mistake_is_named_in_one_line(make, where):
    """A user would read ``'NoneType' object has no attribute 'get'``."""
    with pytest.raises(OptionError) as caught:
        make()
    assert str(caught.value).startswith(f"{where}: ")
    assert "\n" not in str(caught.value)

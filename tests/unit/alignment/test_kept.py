"""What a turn's decision, prediction and check share. If these fail, each asks the server for the same again, or one is told what is no longer so."""

from __future__ import annotations

import pytest

from warmgate.alignment import fetch, remote
from warmgate.alignment.fetch import ServerTemplate, Wanted
from warmgate.alignment.remote import Pieces

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    for module in (fetch, remote):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def wanted(template, messages=MESSAGES):
    with pytest.raises(Wanted) as found:
        template.render(messages)
    return found.value.key


def test_a_rendering_is_fetched_once_and_again_when_it_is_old(clock):
    template = ServerTemplate("t")
    template.keep(wanted(template), "<user>hello")
    assert template.render(MESSAGES) == "<user>hello"
    clock[0] = fetch.FRESH_S + 1
    wanted(template)


def test_renderings_of_a_long_day_take_no_more_room_than_they_may(clock):
    template = ServerTemplate("t")
    for number in range(100):
        template.keep(wanted(template, [{"role": "user", "content": f"{number}"}]), "x" * (fetch.KEPT_CHARACTERS // 10))
        assert sum(len(text) for text, _ in template._kept.values()) <= fetch.KEPT_CHARACTERS
    assert template.render([{"role": "user", "content": "99"}])
    wanted(template, [{"role": "user", "content": "1"}])


def test_ids_are_of_one_worker_one_model_and_a_while(clock):
    pieces = Pieces()
    pieces.keep("http://a", "m", "text", (1, 2))
    assert pieces.get("http://a", "m", "text") == (1, 2)
    assert pieces.get("http://b", "m", "text") is None
    assert pieces.get("http://a", "n", "text") is None
    clock[0] = remote.FRESH_S + 1
    assert pieces.get("http://a", "m", "text") is None


def test_pieces_take_no_more_room_than_they_may_and_whole_prompts_none(clock):
    pieces = Pieces()
    pieces.keep("w", "m", "x" * (remote.PIECE + 1), (1,))
    assert not pieces._kept
    for number in range(200):
        pieces.keep("w", "m", f"{number:03}" + "x" * (remote.PIECE - 3), (number,))
    assert sum(len(text) for _, _, text in pieces._kept) == pieces._size <= remote.PIECES
    assert pieces.get("w", "m", "199" + "x" * (remote.PIECE - 3)) == (199,)

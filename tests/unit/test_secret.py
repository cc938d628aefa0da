"""If these fail, an API key ends up in a terminal, a log or a decision's JSON, because a server sent it back."""

from __future__ import annotations

import pytest

from warmgate import secret
from warmgate.engines.http import bearer
from warmgate.errors import Unauthorized
from warmgate.secret import MASK, mask

KEY = "sk-SECRETKEY123-of-this-test"


@pytest.fixture(autouse=True)
def no_keys_of_other_tests(monkeypatch):
    """Keys are remembered for the life of a process, and other tests use words such as ``wrong`` for a key."""
    monkeypatch.setattr(secret, "_known", set())


@pytest.mark.parametrize("words", [KEY, f"authorization: Bearer {KEY} is wrong", f"\\u0073{KEY[1:]}", KEY[3:15], f"{KEY}{KEY}"])
def test_a_key_that_the_server_sends_back_is_masked(words):
    """Errors quote the server, and servers quote the header."""
    bearer(KEY)
    fault = Unauthorized("401: not allowed", where="http://w:1", server_words=words)
    shown = f"{fault} {fault.server_words} {fault.what}"
    assert MASK in shown
    assert not any(KEY[i : i + 8] in shown for i in range(len(KEY) - 8))


def test_a_short_key_does_not_eat_words():
    """A test server's key ``k`` would make every message unreadable."""
    bearer("k")
    assert mask("thinking: k is wrong") == f"thinking: {MASK} is wrong"

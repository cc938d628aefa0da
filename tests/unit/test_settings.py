"""If these fail, a mistake in the settings shows at the first decision of a live agent, or never."""

from __future__ import annotations

import pytest

from warmgate.errors import OptionError
from warmgate.gate import Gate
from warmgate.settings import Settings

GOOD = {"workers": ["http://127.0.0.1:1"], "model": "m"}


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"gate_model": "small"}, "Settings.gate_model"),
        ({"gate_workers": ["http://127.0.0.1:2"]}, "Settings.gate_workers"),
        ({"dialect": "french"}, "Settings.dialect"),
        ({"session_header": "X Session"}, "Settings.session_header"),
        ({"session_header": ""}, "Settings.session_header"),
        ({"session_header": "X-S\n"}, "Settings.session_header"),
        ({"round_trip_url": "zzz"}, "Settings.round_trip_url"),
        ({"round_trip_url": "ftp://host"}, "Settings.round_trip_url"),
        ({"engines": []}, "Settings.engines"),
        ({"engines": ["systemone", "systemone"]}, "Settings.engines"),
        ({"deadline_ms": -1}, "Settings.deadline_ms"),
        ({"wrokers": []}, "Settings.wrokers"),
    ],
)
def test_a_wrong_setting_is_named_where_it_is_made(wrong, where):
    """It would be said under a name that no setting has, or by a failing decision."""
    with pytest.raises(OptionError) as caught:
        Settings(**{**GOOD, **wrong})
    assert str(caught.value).startswith(f"{where}: ")
    assert "\n" not in str(caught.value)
    assert "WARMGATE_SETTINGS" not in str(caught.value)


@pytest.mark.parametrize("right", [{"round_trip_url": "https://host/v1"}, {"dialect": "sglang"}, {"session_header": "x-routing_key.1"}])
def test_right_settings_are_taken(right):
    """A check that is too strict would lock out a server."""
    assert Settings(**{**GOOD, **right})


def test_a_policy_that_nothing_installed_has_is_named():
    """A misspelt name would switch shell safety off without a word."""
    with pytest.raises(OptionError, match="'shel'"):
        Gate.from_settings(Settings(**GOOD, policies=["mounts", "shel"]))


def test_default_policies_may_be_absent(monkeypatch):
    """The router alone must run without the package of policies."""
    monkeypatch.setattr("warmgate.gate.entry_points", lambda **_: ())
    gate = Gate.from_settings(Settings(**GOOD))
    assert (gate.mounts, gate.calls) == (None, None)


@pytest.mark.parametrize("text", ["# Sources\n\nNo template at all.\n", "{{ 'hello' }}"])
def test_a_file_that_is_no_template_is_named(tmp_path, text):
    """Every decision would be made on a JSON state, and the prefix computed twice."""
    file = tmp_path / "SOURCES.md"
    file.write_text(text)
    with pytest.raises(OptionError, match="prints nothing of the messages") as caught:
        Gate(Settings(**GOOD, chat_template=file))
    assert caught.value.where == "Settings.chat_template"

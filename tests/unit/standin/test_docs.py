"""docs/standin.md names what there is, and what it shows works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from warmgate.cli.standin import command
from warmgate.standin import FAULTS, Script
from warmgate.standin.styles import STYLES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "standin.md").read_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_described(fault: str):
    assert re.search(rf"`{fault}(=\w+)?`", PAGE)


@pytest.mark.parametrize("style", STYLES)
def test_every_style_is_described(style: str):
    assert f"| `{style}`" in PAGE


def test_every_option_it_names_exists():
    options = {name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options | {"--help"}


def test_the_script_it_shows_is_one():
    shown = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    script = Script.of(json.loads(shown.group(1)))
    assert (len(script.decisions), len(script.chat), list(script.sessions)) == (3, 2, ["alice"])

"""docs/mounting.md against the code: an option that is missing there is found by nobody, a wrong default misleads everybody."""

from __future__ import annotations

import re
from pathlib import Path

from warmgate_policies.mounts import MountOptions

PAGE = (Path(__file__).parents[3] / "docs/mounting.md").read_text("utf-8")
ROWS = [row.split("|")[1:3] for row in PAGE[PAGE.index("| option | default") :].splitlines()[2:] if row.startswith("|")]


def test_every_option_is_there():
    assert {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])} == set(MountOptions.model_fields)


def test_defaults_are_those_of_the_code():
    for names, default in ROWS:
        for name in re.findall(r"`(\w+)`", names):
            value = MountOptions.model_fields[name].get_default(call_default_factory=True)
            assert default.strip().strip("`") == (str(value) if value else "none"), name

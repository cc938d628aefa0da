"""docs/policies.md against the code: an option that is missing there is found by nobody, one that is gone is refused."""

from __future__ import annotations

import re
from dataclasses import fields

from tests.integration.docs.pages import ROOT
from warmgate_policies.shell.facts import Facts
from warmgate_policies.shell.policy import TOOLS, ShellOptions

PAGE = (ROOT / "docs/policies.md").read_text("utf-8")


def first_column(heading: str) -> list[str]:
    """Names in the first column of the table that begins so."""
    rows = PAGE[PAGE.index(heading) :].split("\n\n", 1)[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_every_option_of_the_shell_policy_is_there():
    assert set(first_column("| `shell_options` |")) == set(ShellOptions.model_fields)


def test_every_fact_is_there_with_its_default():
    assert set(first_column("| `shell_options.facts` |")) == {field.name for field in fields(Facts)}
    assert f"| `workspace` | `{Facts().workspace}` |" in PAGE
    assert f"| `home` | `{Facts().home}` |" in PAGE


def test_names_of_tools_are_those_of_the_code():
    row = next(line for line in PAGE.splitlines() if line.startswith("| `tools` |"))
    assert set(re.findall(r"`([\w]+)`", row.split("|")[2])) == set(TOOLS)

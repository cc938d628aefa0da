"""Every command line that a page shows is one that the program takes. If these fail, a reader types what the program refuses."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import tomllib

import click
import pytest

from tests.integration.docs.pages import PAGES, ROOT, blocks, command_lines

LEFT_OUT = re.compile(r"[…\[\]]|^[A-Z][A-Z_]*[…]?$|^URL|^\.\.\.$")
"""Words that stand for what a reader puts in, in lines that only show a command's shape."""


def words_of(line: str) -> list[str]:
    """The words of the first command, without redirects, pipes and what follows."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        found.append(word)
    return found


def all_lines():
    return [pytest.param(line, id=f"{place} {line[:60]}") for place, line in command_lines("warmgate")]


@pytest.mark.parametrize("line", all_lines())
def test_a_shown_command_line_is_taken(line):
    """The command exists, it knows each option, and a value of a closed set is one of the set."""
    words = words_of(line)[1:]
    if words[0] in ("--help", "--version"):
        return
    command = importlib.import_module(f"warmgate.cli.{words[0]}").command
    context = click.Context(command)
    options = {
        name: parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option) for name in parameter.opts
    }
    for at, word in enumerate(words):
        name, equals, value = word.strip("[]…").partition("=")
        if not name.startswith("--"):
            continue
        assert name in options, f"warmgate {words[0]} has no {name}"
        option = options[name]
        given = value if equals else words[at + 1] if not option.is_flag and at + 1 < len(words) else None
        choices = option.type.choices if isinstance(option.type, click.Choice) else None
        if choices is not None and given is not None and not LEFT_OUT.search(given):
            assert set(re.split(r"[|]", given)) <= set(choices), f"{name} takes none of {given}"


def test_there_are_commands_to_check():
    """A change of the pages' form would leave nothing to check."""
    assert len(all_lines()) > 60


def test_targets_of_make_exist():
    """The entry commands of a newcomer."""
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "tests/engine/rig/engine.mk").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefiles, re.MULTILINE))
    shown = {(place, words_of(line)[1]) for place, line in command_lines("make") if len(words_of(line)) > 1}
    assert shown
    assert {(place, word) for place, word in shown if "=" not in word and word not in targets} == set()


def test_files_that_pages_name_exist():
    """A page that sends its reader to a test or an example that is not there cannot be checked by them."""
    missing = set()
    for page in PAGES:
        for name in re.findall(r"`((?:tests|docs|examples|scripts|router|policies|adapters)/[\w./-]+)`", page.read_text("utf-8")):
            if not (ROOT / name).exists():
                missing.add((str(page.relative_to(ROOT)), name))
    assert missing == set()


def test_links_of_pages_outside_the_site_lead_somewhere():
    """The site's build checks the rest."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert "://" in target or (ROOT / target).exists(), f"{page.name} links to {target}"


def test_json_and_toml_that_pages_show_parse():
    """What is copied into a file must be one."""
    for block in blocks("json"):
        json.loads(block.text)
    for block in blocks("toml"):
        tomllib.loads(block.text)

"""docs/decide.md in step with the command: a user who follows it gets what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec
import pytest

from warmgate.answers import Answer, Source, Usage
from warmgate.cli.decide import MAX_QUESTIONS_BYTES, MAX_TEXT_BYTES, command
from warmgate.engines.chain import ChainResult, StepReport
from warmgate.engines.dialects import DECISIONS, PREFIX_READ, ROUND_TRIP, SYSTEMONE, Dialect
from warmgate.questions import NAME_CHARS, NOUL_WORDS, parse_questions

PAGE = (Path(__file__).parents[3] / "docs/decide.md").read_text()
ENGINES: dict[str, Mapping[str, Dialect]] = {
    "systemone": SYSTEMONE,
    "decisions": DECISIONS,
    "prefix_read": {PREFIX_READ.name: PREFIX_READ},
    "round_trip": ROUND_TRIP,
}
OPTIONS = {"instructions": "`--instructions`", "cache_salt": "`--cache-salt`", "chat_template_kwargs": "`--chat-template-kwargs`"}


def table(after: str) -> list[str]:
    """The names in the first column of the first table after a line."""
    rows = PAGE[PAGE.index(after) :].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [name for row in rows.splitlines() for name in re.findall(r"`([\w.]+)`", row.split("|")[1])]


@pytest.mark.parametrize(
    ("after", "struct", "added"),
    [
        ("## JSON: `warmgate.decide/1`", ChainResult, {"schema"}),
        ("\nAn answer:\n", Answer, {"uncalibrated"}),
        ("\nA `source`:\n", Source, set()),
        ("\nA step:\n", StepReport, set()),
    ],
)
def test_every_field_is_described_and_no_other(after: str, struct: type[msgspec.Struct], added: set[str]):
    """A script would read a field that is not there, or miss one that is."""
    assert sorted(table(after)) == sorted({field.name for field in msgspec.structs.fields(struct)} | added)


def test_usage_is_described():
    line = PAGE[PAGE.index("A `usage`:") :]
    assert all(f"`{field.name}`" in line for field in msgspec.structs.fields(Usage))


@pytest.mark.parametrize(("engine", "name"), [(engine, name) for engine, table in ENGINES.items() for name in table])
def test_the_limits_are_those_that_are_checked(engine: str, name: str):
    dialect = ENGINES[engine][name]
    row = next(line for line in PAGE.splitlines() if re.match(rf"\| `{engine}` \| `{re.escape(name)}`", line))
    questions, options, levels, needs, takes = [cell.strip() for cell in row.split("|")[3:8]]
    assert questions == ("–" if dialect.questions is None else str(dialect.questions))
    assert options == "–".join(map(str, dialect.options))
    assert levels == "–".join(map(str, dialect.levels))
    needed = {
        "`--model`": dialect.model_required,
        "a text in every question": dialect.question_text_required,
        "a text or criteria in every noul": dialect.noul_text_required,
        "not null": not dialect.null_state,
        "not a number": not dialect.scalar_state,
    }
    assert {words: words in needs for words in needed} == needed
    expected = [flag for field, flag in OPTIONS.items() if field in dialect.fields]
    assert takes == ("all" if len(expected) == 3 else ", ".join(expected) or "none")


def test_no_dialect_is_listed_that_does_not_exist():
    limits = PAGE[PAGE.index("### Limits") :].split("\n– :", 1)[0]
    listed = re.findall(r"^\| `(\w+)` \| `([\w.-]+)`", limits, re.MULTILINE)
    assert sorted(listed) == sorted((engine, name) for engine, dialects in ENGINES.items() for name in dialects)


def test_every_option_it_names_exists():
    known = {name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts}
    known |= {"--help", "--port"}  # --port is the stand-in's
    assert set(re.findall(r"(--[a-z][a-z-]+)", PAGE)) <= known


def test_sizes_and_words():
    assert f"at most {MAX_QUESTIONS_BYTES >> 20} MiB" in PAGE
    assert f"at most {MAX_TEXT_BYTES >> 20} MiB" in PAGE
    assert f"at most {NAME_CHARS} characters" in PAGE
    assert all(f"`{word}`" in PAGE for word in NOUL_WORDS)


def test_the_questions_it_shows_can_be_asked():
    shown = re.search(r'```json title="questions.json"\n(.*?)```', PAGE, re.DOTALL)
    assert shown is not None
    assert [question.type for question in parse_questions(shown[1]).values()] == ["choice", "noul", "score"]

"""If these fail, a program can be hidden from the gate: in a quoting, a nesting, or text that parsers read differently."""

from __future__ import annotations

import os
import random

import pytest

from tests.unit.shell.grammar import LAYERS, MARKER, SPELLINGS, hidden, mutated
from tests.unit.shell.sandbox import Sandbox, parses
from warmgate_policies.shell import Judge

EXAMPLES = int(os.environ.get("WARMGATE_FUZZ_SHELL", "5000"))
PARTS = 10


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.mark.parametrize("part", range(PARTS))
def test_hidden_marker_is_never_allowed(judge, part, tmp_path):
    """Whatever is allowed does not reach the marker when real bash runs it."""
    box = Sandbox(tmp_path)
    rng = random.Random(1000 + part)
    for number in range(EXAMPLES // PARTS):
        command = hidden(rng)
        if number % 3 == 2:
            command = mutated(rng, command)
        found = judge.judge(command)
        assert found.rule != "fault", (found, command)
        if found.verdict == "allow":
            assert not box.runs_marker(command), command


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_each_layer_alone(judge, number, tmp_path):
    """One way of nesting is not followed. Real bash reads the command, so that the grammar itself stays honest."""
    command = LAYERS[number](random.Random(1), MARKER)
    assert parses(command), command
    assert judge.judge(command).verdict != "allow", command


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_alone(judge, spelling, tmp_path):
    """One way of spelling a program is not understood. Real bash runs the marker in each."""
    assert Sandbox(tmp_path).runs_marker(spelling)
    assert judge.judge(spelling).verdict != "allow"


FOUND = (
    'echo "`echo \\`set -- $\'echo "a"\\\\\\\\\'b\\\\\\\\\'; bash <(echo "wg\\\\\\\\\\\\\\\\$(:)marker")\'; eval "$1"\\` x`"',
    "bash <<<@ wgmarker",
    "bash wgmarker",
    "source wgmarker",
    ". wgmarker",
)
"""What long runs found, in the kind's shortest form that still does it."""


@pytest.mark.parametrize("command", FOUND)
def test_what_long_runs_found(judge, command):
    """A hole that was mended is open again."""
    assert judge.judge(command).verdict != "allow"


def test_most_layers_reach_the_marker(tmp_path):
    """The grammar would hide nothing, and the fuzz would prove nothing."""
    box = Sandbox(tmp_path)
    sample = range(0, len(LAYERS), 4)
    reached = sum(box.runs_marker(LAYERS[number](random.Random(1), MARKER)) for number in sample)
    assert reached >= 0.75 * len(sample)

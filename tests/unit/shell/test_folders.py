"""If these fail, a program works in a folder that is not the project's because nobody looked where the command had gone, or never ends."""

from __future__ import annotations

import pytest

from warmgate_policies.shell import Judge

JUDGE = Judge()

WORKS_HERE = ["cargo clean", "cargo tree", "make", "npm version patch", "bundle list", "composer validate", "poetry build", "terraform fmt", "hugo",
    "git status", "git log -1", "pnpm why x", "uv venv", "helm lint ."]  # fmt: skip
"""Reads settings of the current folder, runs its code, or writes there."""
ANYWHERE = ["ls -la", "pip list", "git --version", "go version", "docker ps", "cargo --version", "npm config list"]
OUTSIDE = ["cd /tmp/x && {}", "(cd ../other; {})", "pushd /home/agent/o; {}", 'cd "$X" && {}', "cd packages/$1; {}"]


@pytest.mark.parametrize("text", WORKS_HERE)
@pytest.mark.parametrize("where", OUTSIDE)
def test_what_works_in_the_current_folder_is_asked_about_elsewhere(where, text):
    """Code, hooks and settings of a folder nobody vouches for would run, or a home's folder be emptied."""
    assert JUDGE.judge(where.format(text)).verdict != "allow"


@pytest.mark.parametrize("text", WORKS_HERE)
@pytest.mark.parametrize("cwd", ["/tmp/x", "/home/agent/o"])
def test_so_it_is_where_the_host_gives_the_folder(cwd, text):
    """A call with ``cwd`` would do what ``cd`` may not."""
    assert JUDGE.judge(text, cwd).verdict != "allow"


@pytest.mark.parametrize("text", ANYWHERE)
def test_what_does_not_depend_on_the_folder_is_free(text):
    """Looking at a log in scratch would be asked about."""
    assert JUDGE.judge(f"cd /tmp/x && {text}").verdict == "allow"


@pytest.mark.parametrize("text", [
    "cd web && make", "cd web; npm test", 'cd "$PWD/web" && make', "cd $(git rev-parse --show-toplevel) && make && touch a", 'cd "$(dirname "$0")" && make',
    "for d in packages/*; do pushd $d; make; popd; done", "for d in $(ls packages); do (cd packages/$d && make); done",
    "ls packages | while read d; do (cd packages/$d && npm test); done", "cd sub && make && cd - && make",
    "mkdir /tmp/t && cd /tmp/t && git init && git status", 'cd "$(mktemp -d)" && git init -q && git commit --allow-empty -m x',
])  # fmt: skip
def test_folders_of_the_workspace_are_known_however_they_are_named(text):
    """A monorepo's ordinary loops would be asked about."""
    assert JUDGE.judge(text).verdict == "allow"


@pytest.mark.parametrize("text", ['cd "$X" && ./run.sh', 'cd "$X"; bash a/b.sh', 'cd "$X" && cat a/b && python c/d.py', 'cd "$X" && . ./e'])
def test_an_unknown_folder_ends_in_a_verdict(text):
    """The gate would look for the folder above ``.`` for ever."""
    assert JUDGE.judge(text).verdict == "ask"

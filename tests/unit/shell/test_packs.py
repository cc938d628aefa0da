"""If these fail, a rule pack with a mistake in it is loaded, or a user's pack does not count."""

from __future__ import annotations

import pytest

from warmgate.errors import InputError
from warmgate_policies.shell import Judge
from warmgate_policies.shell.rules import combine, load, read_pack

GOOD = """
pack: mine
version: 1.0.0
about: Ours.
effects:
  mine.deploy: {verdict: deny, reason: "deploys on a Friday"}
programs:
  frobnicate fb:
    options: "-v -n,--lines=number -o=write --force!mine.deploy"
    operands: "read*"
  ls: {options: "-l", operands: "list*", effect: mine.deploy}
"""


def test_a_pack_of_ones_own(tmp_path):
    """A team's own tools would be asked about for ever."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    judge = Judge(rules=load((str(path),)))
    assert judge.judge("frobnicate -v -n 3 src/a -o /tmp/b").verdict == "allow"
    assert judge.judge("fb --lines=3 a").verdict == "allow"
    assert judge.judge("fb --force a").rule == "mine.deploy"
    assert judge.judge("fb --other a").rule == "option.unknown"
    assert judge.judge("fb ~/.ssh/id_rsa").verdict == "deny"
    assert judge.judge("fb a -o ~/.bashrc").verdict == "deny"
    assert judge.judge("ls").verdict == "deny"
    assert judge.rules.version != load().version


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("pack: x", "version"),
        ("pack: x\nversion: '1'\nabout: y\nprogramms: {}", "programms"),
        ("pack: x\nversion: '1'\nabout: y\nprograms: {a: {operands: 'nonsense'}}", "nonsense"),
        ("pack: x\nversion: '1'\nabout: y\nprograms: {a: {operands: 'read* write*'}}", "starred"),
        ("pack: x\nversion: '1'\nabout: y\nprograms: {a: {options: '-x=nonsense'}}", "nonsense"),
        ("pack: x\nversion: '1'\nabout: y\neffects: {a: {verdict: maybe, reason: z}}", "verdict"),
        ("pack: x\nversion: '1'\nabout: y\nprograms: {a: {flags: '-x'}}", "flags"),
    ],
)
def test_a_mistake_is_named(text, said):
    """A typo would silently allow."""
    with pytest.raises(InputError, match=said):
        read_pack(text, "x.yaml")


def test_references_are_checked():
    """An effect that nothing describes would have none."""
    pack = read_pack("pack: x\nversion: '1'\nabout: y\nprograms: {a: {effect: nowhere}}", "x.yaml")
    with pytest.raises(InputError, match="nowhere"):
        combine([pack])
    with pytest.raises(InputError, match="is the same as"):
        combine([read_pack("pack: x\nversion: '1'\nabout: y\nprograms: {a: {same: b}}", "x.yaml")])


def test_handlers_exist():
    """A pack that names a judge which is not there would fail at the first use."""
    from warmgate_policies.shell.programs import HANDLERS

    def walk(program):
        yield program
        for sub in program.subs.values():
            yield from walk(sub)

    used = {entry.handler for program in load().programs.values() for entry in walk(program) if entry.handler}
    assert used <= set(HANDLERS)


def test_unknown_things_never_reach_allow():
    """Programs, flags, wrappers and assignments nobody described would run."""
    judge = Judge()
    for command in ("nosuchprogram", "ls --nosuchflag", "nosuchwrapper ls", "NOSUCHVARIABLE=1 ls", "git nosuchcommand", "export NOSUCH=1"):
        assert judge.judge(command).verdict == "ask", command


def test_the_page_is_made_from_the_packs():
    """The documentation would describe other rules than those that decide. Mend: python scripts/make_shell_docs.py."""
    import subprocess
    import sys
    from pathlib import Path

    script = Path(__file__).parents[3] / "scripts" / "make_shell_docs.py"
    assert subprocess.run([sys.executable, str(script), "--check"]).returncode == 0

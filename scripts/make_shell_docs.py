"""Write docs/shell-policy.md from the rule packs, so that the page cannot say what the rules do not."""

from __future__ import annotations

import sys
from pathlib import Path

from warmgate_policies.shell.assignments import KINDS
from warmgate_policies.shell.parse import MAX_BYTES, MAX_MARKS, MAX_NESTING
from warmgate_policies.shell.policy import GREY
from warmgate_policies.shell.rules import Option, Program, Rules, load
from warmgate_policies.shell.sites import MAX_DEPTH, MAX_SITES

PAGE = Path(__file__).parent.parent / "docs" / "shell-policy.md"

HEAD = """# Shell policy

*Made from the rule packs by `scripts/make_shell_docs.py`; do not edit.*

`warmgate shell 'CMD'` and the gate's `shell` policy say **allow**, **ask** or **deny** of a command, without running it and without
a model. Allow needs a proof: the text was parsed, every place where it can run something was found, and each was shown to stay in
the workspace and to be undoable. Whatever is not understood is ask.

## How a verdict comes about

1. The text is parsed by `shfmt` under limits ({bytes:,} bytes, {marks:,} words and marks, {nesting} levels, {sites} sites, {depth}
   levels of code in code). Past a limit the verdict is ask.
2. The tree is distrusted: every backtick, `$(`, `${{`, `<(` outside proven-inert text must be a node of it, no comment may hide a
   line, no line continuation may join words, and a second parser must not see a command that the first missed. Any doubt is ask.
3. The command is followed as bash would run it: both sides of every operator and branch, loops, functions that are called, traps,
   substitutions, here-documents, redirects, and code handed on (`sh -c`, `eval`, `xargs`, `find -exec`, `python -c`, awk, sed, SQL
   …). Variables, working directories and files written on the way are tracked.
4. Each program is judged by its pack entry: the closed set of its options, what its operands are, its effects. Paths are
   classified: workspace, scratch, caches, secrets, protected, system, devices.
5. What only together is dangerous is seen by flow: download then run, decode then run, secrets to the network, in one command or in
   one session.
6. The worst finding is the verdict. It names the rule, the bytes of the text it is about, and a reason.

`python -c`, `node -e` and kin are allowed only while their text provably computes and prints. The project's own code and tools
(tests, builds, linters, scripts) may run: what is in the workspace is trusted unless `--untrusted` is given. The tools' options are
closed sets like any other's; what is handed on to the project's own scripts (`npm run x --flag`, behind `--`) is not, but options
that load or run other code, and paths outside the workspace, are asked about there too.

## A model's part

With a calibrated policy file (`warmgate calibrate`) a model may move an ask to allow where every finding is one of: {grey}. It
never lifts a deny, sees resolved facts alone, and any error, doubt or mismatch of model or rules leaves ask. Without such a file no
model moves anything. On the command line: `warmgate shell 'CMD' --worker URL --policy FILE`.

## Hooks

`warmgate shell --hook claude-code` and `--hook codex` read a host's pre-tool JSON on stdin. They exit with 0 and the host's JSON,
or with 2 on any fault or after their own deadline of 20 s; a host's own timeout must be longer. Codex has no "ask" here: such a
command is refused with the reason.

## Packs of your own

`--pack FILE` (repeatable), or `ShellPolicy(extra_packs=[…])`. A later pack replaces programs of an earlier one.
```yaml
pack: ours
version: 1.0.0
about: Our own tools.
effects:
  ours.deploy: {{verdict: ask, reason: "deploys to staging"}}
programs:
  shipit ship:                                  # two names, one entry
    options: "-v --dry-run -n,--lines=number -o,--output=write --color=?text --force!ours.deploy"
    operands: "read*"                           # any number of files that are read
    effect: ours.deploy                         # whatever the arguments
    unless: "--dry-run"                         # but not with this option
    subs: {{status: {{operands: "text*"}}}}         # subcommands instead of operands
```
 An option is `-x`, `--long`, `-a,--all` (one option, two names), `-n=role` (takes a value), `--color=?role` (a value only behind
`=`), `-#` (a number as flag), `-W*` (whatever begins so), `-p=text~no:.*` (only values that match); `!effect` behind it gives it an
effect; `@name` stands for a set under the pack's `flags`. Roles: `text`, `number`, `read`, `list` (names and sizes
alone), `write`, `append`, `create`, `delete`, `exec` (a file run as code), `url`, `host`, `bind`, `command*` (a wrapper's tail),
`program` (a command line), `project` (free text for the project's own code), `output` (built by a tool out of the project),
`search` (folders of code), `workdir`, `code.sh`, `code.sed`, `code.awk`,
`code.python`, `code.sql`. `style` is `gnu`, `posix` (options end at the first operand), `long` (`-name value`) or `raw` (a handler,
or nothing, reads them). A program is taken to work in the current folder (reads settings of it, runs its code, writes there) and is
asked about outside the workspace; `folder: false`, of a program, a subcommand or a whole pack, says that it does not."""


def main() -> int:
    """Write the page; with ``--check`` only say whether it is up to date."""
    text = page(load())
    if "--check" in sys.argv:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        return 0 if current == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page(rules: Rules) -> str:
    """The whole page."""
    parts = [
        HEAD.format(
            bytes=MAX_BYTES,
            marks=MAX_MARKS,
            nesting=MAX_NESTING,
            sites=MAX_SITES,
            depth=MAX_DEPTH,
            grey=", ".join(f"`{rule}`" for rule in GREY),
        )
    ]
    parts.append(f"\n## The built-in packs\n\n{', '.join(rules.packs)}; rules `{rules.version}`; {len(rules.programs):,} programs.\n")
    parts.append("\n### Effects\n\n| effect | verdict | said |\n|---|---|---|\n")
    parts.extend(f"| `{name}` | {effect.verdict} | … {effect.reason} |\n" for name, effect in sorted(rules.effects.items()))
    parts.append(
        "\n### Environment variables\n\nIn front of a command, exported, or given to `env`. Any other name is ask.\n\n"
        "| class | meaning | names |\n|---|---|---|\n"
    )
    for kind, meaning in KINDS.items():
        names = sorted(name for name, found in rules.environment.items() if found == kind and not name.endswith("_"))
        parts.append(f"| {kind} | {meaning} | {', '.join(f'`{name}`' for name in names)} |\n")
    parts.append(
        "\n### Programs\n\nPrograms with one entry stand in one row. `judge` names code that reads what data cannot say.\n\n"
        "| programs | judge | effect |\n|---|---|---|\n"
    )
    groups: dict[int, list[str]] = {}
    for name, program in rules.programs.items():
        if not name.endswith("_"):
            groups.setdefault(id(program), []).append(name)
    entries = {id(program): program for program in rules.programs.values()}
    for key, names in sorted(groups.items(), key=lambda item: item[1][0]):
        parts.append(f"| {' '.join(f'`{_cell(name)}`' for name in names)} | {entries[key].handler or ''} | {_effects(entries[key])} |\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _effects(program: Program) -> str:
    found = [program.effect, program.bare, *(option.effect for option in _all(program))]
    for sub in program.subs.values():
        found += [sub.effect, sub.bare, *(option.effect for option in _all(sub))]
    return ", ".join(f"`{effect}`" for effect in dict.fromkeys(found) if effect)


def _all(program: Program) -> list[Option]:
    return list(program.table.values())


if __name__ == "__main__":
    sys.exit(main())

"""If these fail, an option that nobody has read makes a known program load or run something, and the gate lets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warmgate_policies.shell import Judge
from warmgate_policies.shell.rules import Pack, Program, combine, load, read_pack

TAKES_ANY_TEXT = frozenset(
    [
        "source",
        ".",
        "cd",
        "pushd",
        "chdir",
        "popd",
        "dirs",
        "echo",
        "printf",
        "unset",
        "getopts",
        "set",
        "shopt",
        "alias",
        "unalias",
        "exit",
        "return",
        "break",
        "continue",
        "true",
        "false",
        ":",
        "times",
        "shift",
        "bg",
        "fg",
        "caller",
        "suspend",
        "logout",
        "let",
        "test",
        "[",
        "expr",
        "export",
        "declare",
        "typeset",
        "local",
        "readonly",
        "artisan",
        "manage.py",
        "kubectl",
        "oc",
        "k3s",
        "k9s",
        "kubectx",
        "kubens",
        "kubeseal",
    ]
)
"""Builtins for which such a word is text or an error, and programs that do nothing without a subcommand."""

HANDS_ON = ("npm", "pnpm", "yarn", "deno task", "bun run", "composer", "sbt")
"""They hand what they do not know on to the project's own script."""

LOADS_OR_RUNS = """
jobs -x wgmarker
compgen -C wgmarker x
compgen -W '$(wgmarker)' x
complete -C wgmarker ls
let 'a[$(wgmarker)]=1'
(( 'a[$(wgmarker)]' ))
declare -i y='a[$(wgmarker)]'
declare -i y; y='a[$(wgmarker)]'
wait -n -p 'a[$(wgmarker)]'
hg log --config alias.log='!wgmarker'
svn diff --diff-cmd ./wgmarker
jj log --config 'ui.pager="wgmarker"'
fd --exec=wgmarker
fd -xwgmarker
fd -Hx wgmarker
less -o .git/hooks/pre-commit f
less -k /tmp/keys f
just --shell sh --command x
just -c wgmarker
rake -e 'system("x")'
npm test --node-options="--require ./x.js"
npm test --userconfig=./x
nodemon -x wgmarker
flask shell
ss -K dst 192.0.2.1
ss -D /home/agent/.bashrc
ps auxe
jq -n input --rawfile a /etc/shadow
yq 'load("/etc/shadow")' f
latexmk -e 'system("x")'
git maintenance start
go test -exec ./x ./...
go vet -vettool=./x ./...
go build -toolexec=./x ./...
go build -o .git/hooks/pre-commit .
cargo --config build.rustc-wrapper=./x build
cargo test --config=target.runner=./x
jest --globalSetup ./x
jest --config '{"globalSetup":"./x"}'
eslint --rulesdir ./x .
eslint --resolve-plugins-relative-to /tmp .
pytest -p evil
pytest -pevil
pytest --rootdir=/tmp/x
pytest -o addopts='-p evil'
mypy --python-executable ./x src
ruff check --config /tmp/x.toml .
tsc --outDir .git/hooks
prettier --plugin=./x.js f
gcc -fplugin=./x.so a.c
gcc -wrapper sh,-c a.c
gcc -Wl,-plugin=./x.so a.c
gcc -o .git/hooks/pre-commit a.c
clang -Xclang -load -Xclang ./x.so a.c
cmake -DCMAKE_C_COMPILER_LAUNCHER=./x -B build
java -javaagent:/tmp/x.jar -jar a.jar
java -XX:OnError=./x -jar a.jar
java -cp /tmp/x Main
dotnet build -p:PreBuildEvent=./x
pandoc -F ./x.py a.md
protoc --plugin=./x --x_out=. a.proto
playwright install chromium
python -m spacy download en
python -m nltk.downloader punkt
""".strip().splitlines()


def _entries(name: str, program: Program) -> Iterator[str]:
    if not program.subs:
        yield name
    for word, sub in program.subs.items():
        if word != "*":
            yield from _entries(f"{name} {word}", sub)


def _commands() -> list[str]:
    found: list[str] = []
    for name, program in load().programs.items():
        if name not in TAKES_ANY_TEXT and not name.endswith("_"):
            found.extend(entry for entry in _entries(name, program) if not entry.startswith(HANDS_ON))
    return found


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def test_every_program_has_a_closed_set_of_options(judge):
    """A program with an open set takes whatever an attacker knows about it."""
    commands = _commands()
    assert len(commands) > 1500
    opened = [name for name in commands if judge.judge(f"{name} --zz-unheard-of").verdict == "allow"]
    assert not opened


@pytest.mark.parametrize("command", LOADS_OR_RUNS)
def test_an_option_that_loads_or_runs_is_not_allowed(judge, command):
    """A reader, test or build would run what its option names."""
    assert judge.judge(command).verdict != "allow"


def _judge(text: str) -> Judge:
    base: list[Pack] = [read_pack("pack: a\nversion: '1'\nabout: x\nflags: {shared: '-q --log=text'}\n", "a")]
    return Judge(rules=combine([*base, read_pack(text, "b")]))


def test_the_notation_of_options():
    """A pack's author would close a set, and it would be open."""
    own = _judge(
        'pack: b\nversion: "1"\nabout: x\nprograms:\n'
        '  tool: {style: long, options: "@shared -W*=text~(?!l,).* -mode=text~(fast|slow) -j*", operands: "text*"}\n'
    )
    for good in ("tool -q x", "tool --log=a", "tool -Wall", "tool -mode fast", "tool -mode=slow", "tool -j8"):
        assert own.judge(good).verdict == "allow", good
    for bad in ("tool -Wl,-z", "tool -mode other", "tool -mode $X", "tool -x", "tool --logs", "tool -quiet"):
        assert own.judge(bad).verdict == "ask", bad


@pytest.mark.parametrize("options", ["--ok -x=nonsense", "word", "-p=text~(", "@missing"])
def test_a_bad_set_is_refused(options):
    """A typo would open a set."""
    from warmgate.errors import InputError

    with pytest.raises(InputError):
        _judge(f'pack: b\nversion: "1"\nabout: x\nprograms:\n  tool: {{options: "{options}"}}\n')

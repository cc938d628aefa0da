"""Commands that hide a marker program at a random site, in every quoting and nesting that bash knows. Used by the fuzz tests alone."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable

MARKER = "wgmarker"
"""A program that no rule pack knows: wherever it is found, the command is at least ask."""

SPELLINGS = (
    MARKER, "wg''marker", 'wg"marker"', "w\\gmarker", "'wgmarker'", "$'wgmark\\x65r'", "$'\\167gmarker'", "wg${unset}marker", "wg$(:)marker", "{wgmarker,}", '"wgmarker"',
    "a=wgmarker; $a", "a=wg; b=marker; $a$b", "set -- wgmarker; $1", "a=(wgmarker); ${a[0]}", "printf -v a wgmarker; $a", "command wgmarker", "builtin command wgmarker", "A=1 wgmarker",
    "env wgmarker", "exec wgmarker", "nice -n 3 wgmarker", "timeout 9 wgmarker", "nohup wgmarker", "wgmarker x y", ">/dev/null wgmarker", "</dev/null wgmarker", "2>&1 wgmarker", "! wgmarker",
)  # fmt: skip


def _ticks(code: str) -> str:
    return "`" + code.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _double(code: str) -> str:
    return '"' + "".join("\\" + c if c in '\\"`$' else c for c in code) + '"'


def _ansi(code: str) -> str:
    return "$'" + code.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _quote(rng: random.Random, code: str) -> str:
    return rng.choice((shlex.quote, _double, _ansi))(code)


Layer = Callable[[random.Random, str], str]


def _end(rng: random.Random) -> str:
    return f"E{rng.randrange(10**6)}"


def _here(form: str) -> Layer:
    def layer(rng: random.Random, code: str) -> str:
        return form.replace("@E", _end(rng)).replace("@C", code)

    return layer


def _flat(form: str) -> Layer:
    return lambda rng, code: form.replace("@C", code)


def _quoted(form: str) -> Layer:
    return lambda rng, code: form.replace("@Q", _quote(rng, code))


def _tick(form: str) -> Layer:
    return lambda rng, code: form.replace("@T", _ticks(code))


LAYERS: tuple[Layer, ...] = (
    *map(_flat, (
        "true; @C", "true && @C", "false || @C", "true\n@C", "{ @C\n}", "( @C\n)", "(@C\n) | cat", "echo x | { @C\n}", "{ @C\n} &", "if true; then @C\nfi", "if @C\nthen :; fi", "if false; then :; else @C\nfi",
        "if false; then :; elif @C\nthen :; fi", "while @C\ndo break; done", "until @C\ndo break; done", "for i in a; do @C\ndone", "for i in $(@C\n); do :; done", "for ((i=0; i<1; i++)); do @C\ndone", "case x in x) @C\n;; esac",
        "case $(@C\n) in *) :;; esac", "case a in $(@C\n)) :;; *) :;; esac", "f() { @C\n}; f", "function g { @C\n}; g", "f() ( @C\n); f", "time { @C\n}", "! { @C\n}", "coproc { @C\n}; wait", "echo $(@C\n)", 'echo "$(@C\n)"', 'echo "a $(@C\n) b"',
        'echo "${unset:-$(@C\n)}"', "echo ${unset:-$(@C\n)}", "echo ${HOME#$(@C\n)}", "echo ${HOME%%$(@C\n)}", "echo ${HOME/$(@C\n)/}", "echo ${HOME/x/$(@C\n)}", "echo ${HOME:$(@C\n)}", "echo ${HOME:+$(@C\n)}", ": ${unset:=$(@C\n)}",
        "echo $(( 1 + $(@C\necho 1) ))", "(( x = $(@C\necho 1) ))", "let x=$(@C\necho 1)", "a=$(@C\n)", "a=x$(@C\n)", "a=($(@C\n))", "a[$(@C\necho 1)]=1", "a+=$(@C\n)", "export a=$(@C\n)", "declare a=$(@C\n)", "readonly a=$(@C\n)", "A=$(@C\n) true",
        "cat <(@C\n)", "diff <(:) <(@C\n)", "echo x > >(@C\n)", "true < <(@C\n)", "cat <<< $(@C\n)", 'cat <<< "$(@C\n)"', "[[ -n $(@C\n) ]]", '[ -n "$(@C\n)" ]', "[[ a == $(@C\n) ]]", "[[ a =~ $(@C\n) ]]", 'test "$(@C\n)"', "echo x > /dev/null$(@C\n)",
        "echo \"'\" $(@C\n)", "echo '\"' $(@C\n)", "echo \\' $(@C\n)", "echo a#b; @C", "echo # comment '\n@C", "# it's\n@C", "echo \\\n x\n@C", "echo 'a\nb'\n@C", "echo $'\\'' \"$(@C\n)\"", 'echo "\\" $(@C\n)"', 'echo "$(echo "$(@C\n)")"', "echo {a,$(@C\n)}", "echo *$(@C\n)",
        "echo $(<f)$(@C\n)", "true | true | { @C\n}", "{ { @C\n}; } 2>&1", "set -e; @C", "cd . && @C", "x=1; case $x in 1) if true; then @C\nfi;; esac",
    )),
    *map(_here, (
        "cat <<@E\n$(@C\n)\n@E", "cat <<-@E\n\t$(@C\n)\n\t@E", 'cat <<@E\n"$(@C\n)"\n@E', "cat <<@E\n'$(@C\n)'\n@E", "cat <<@E\n${unset:-$(@C\n)}\n@E", "bash <<'@E'\n@C\n@E", "sh <<\\@E\n@C\n@E", "cat <<'@E' | bash\n@C\n@E", "cat <<'@E' > x.sh\n@C\n@E\nbash x.sh",
        "cat <<'@E'\n$(echo inert)\n@E\n@C", "source /dev/stdin <<'@E'\n@C\n@E", "cat > y.sh <<'@E' && . ./y.sh\n@C\n@E", "cat <<'@E' >/dev/null\n`x` ' \"\n@E\n@C",
    )),
    *map(_quoted, (
        "bash -c @Q", "sh -c @Q", "bash -ec @Q", "bash --norc -c @Q", "eval @Q", "trap @Q EXIT", "echo @Q | bash", "printf %s @Q | sh", "bash <<< @Q", "xargs -I{} bash -c @Q <<< x", "find . -maxdepth 0 -exec bash -c @Q \\;",
        "env A=1 bash -c @Q", "timeout 9 bash -c @Q", "nice bash -c @Q", "command bash -c @Q", "exec bash -c @Q", "x=@Q; eval \"$x\"", "x=@Q; bash -c \"$x\"", "bash -c 'eval \"$0\"' @Q", "bash -c 'eval \"$1\"' _ @Q", "f() { eval \"$1\"; }; f @Q", "source <(printf %s @Q)", "bash <(echo @Q)",
        "echo @Q > z.sh; bash z.sh", "printf %s @Q > z.sh; . ./z.sh", "set -- @Q; eval \"$1\"", "a=(@Q); eval \"${a[0]}\"", "git -c alias.x=!@Q x", "echo x | xargs sh -c @Q", "printf '%s\\0' @Q | xargs -0 -n1 bash -c", "for c in @Q; do eval \"$c\"; done", "while read -r l; do eval \"$l\"; done <<< @Q",
    )),
    *map(_tick, ("echo @T", 'echo "@T"', "a=@T", "echo ${unset:-@T}", "cat <<< @T", "echo x@T", "[[ -n @T ]]", 'echo "${unset:-"@T"}"', "for i in @T; do :; done", "echo @T @T", "case @T in *) :;; esac", ": > /dev/null@T")),
)  # fmt: skip
"""Each puts a command inside another, so that bash would run it."""

INERT = (
    "echo 'rm -rf /'",
    "echo hello",
    "ls",
    "true",
    "git status",
    "cat README.md",
    "grep -n 'a|b' f",
    "echo \"a\"'b'",
    "printf '%s\\n' x",
    "x=1",
    ": ok",
    "echo a{1,2}b",
    "[ -f x ]",
    "for i in 1 2; do echo $i; done",
)


def hidden(rng: random.Random, *, depth: int | None = None) -> str:
    """A command that hides the marker under a few layers, sometimes among harmless neighbours."""
    code = rng.choice(SPELLINGS)
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4)) if depth is None else depth):
        code = rng.choice(LAYERS)(rng, code)
        if len(code) > 6000:
            break
        if rng.random() < 0.15:
            code = rng.choice(INERT) + rng.choice(("; ", "\n", " && ")) + code
    return code


def mutated(rng: random.Random, code: str) -> str:
    """A command with a few marks put in, taken out or doubled: most are nonsense, some are read differently by different parsers."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(code) + 1)
        kind = rng.random()
        if kind < 0.6:
            code = code[:at] + rng.choice(("'", '"', "\\", "`", "$", "(", ")", "{", "}", "#", "\n", " ", ";", "&", "|", "<", ">", "\\\n", "$'", '$"', "$(", "${", "<<E\n", "#\\\n", "[", "]", "!", "~", "*", "=", "\t", "@", "((", "))")) + code[at:]  # fmt: skip
        elif kind < 0.85 and code:
            code = code[:at] + code[at + 1 :]
        else:
            other = rng.randrange(len(code) + 1)
            low, high = sorted((at, other))
            code = code[:high] + code[low : low + 12] + code[high:]
    return code

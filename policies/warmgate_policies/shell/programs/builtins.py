"""Builtins of the shell itself and their small neighbours."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import assignments, flow
from warmgate_policies.shell.findings import EMPTY, NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.words import SECRET_NAME, Value, ansi

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_NAME = re.compile(r"[A-Za-z_]\w*$")


def noop(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Does nothing, prints nothing."""
    return EMPTY


def cd(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``cd``: later relative paths mean something else."""
    args = [arg for arg in site.argv[1:] if arg.text not in ("-P", "-L", "-e", "--", "-n")]
    if not args:
        walker.chdir(walker.facts.home)
    elif args[0].text == "-":
        walker.chdir(walker.state.before)
    elif not args[0].known or args[0].glob:
        walker.chdir(_described(args[0]))
    else:
        walker.chdir(args[0].text)
        path = walker.state.cwd
        from warmgate_policies.shell.paths import classify

        if path is not None and "secret" in classify(path, None, walker.facts):
            walker.find("ask", "secret.list", f"goes to {path}, where credentials lie", args[0].start, args[0].end)
    return EMPTY


def _described(arg: Arg) -> str | None:
    """A folder that is not fixed, as far as it is described: a name out of a list, in a folder that is known."""
    if arg.glob and arg.known:
        return arg.text
    if arg.shape == "path" and arg.pattern is not None:
        return arg.pattern
    if arg.shape in ("path", "word", "number") and ".." not in arg.text and not arg.text.startswith(UNKNOWN):
        return arg.text.replace(UNKNOWN, "*")
    return None


def popd(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Back to a folder we did not keep track of."""
    old = walker.state.other_cwds
    if old:
        walker.state.cwd, walker.state.other_cwds = old[0], old[1:]
    return EMPTY


def pwd(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """The working directory."""
    cwd = walker.state.cwd
    return Stream(text=cwd + "\n") if cwd is not None and not walker.state.other_cwds else NOTHING_KNOWN


def _tags(args: list[Arg]) -> frozenset[str]:
    return frozenset[str]().union(*(arg.tags for arg in args)) if args else frozenset()


def echo(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Prints its arguments."""
    args = site.argv[1:]
    escapes = newline = False
    while args and re.fullmatch(r"-[neE]+", args[0].text):
        escapes |= "e" in args[0].text
        newline |= "n" in args[0].text
        args = args[1:]
    for arg in args:
        flow.printed(walker, arg, name)
    tags = _tags(args)
    if any(not arg.known or arg.glob for arg in args):
        shape = args[0].shape if len(args) == 1 and args[0].text == UNKNOWN else None
        if len(args) == 1 and args[0].glob and args[0].known:
            return Stream(tags=tags, shape="path", pattern=args[0].text)
        return Stream(tags=tags, shape=shape, pattern=args[0].pattern if shape else None)
    text = " ".join(arg.text for arg in args)
    if escapes:
        text = ansi(re.sub(r"\\0(\d{1,3})", r"\\\1", text).split("\\c", 1)[0])
        if re.search(r"\\(x|0)", " ".join(arg.text for arg in args)):
            tags |= {"decoded"}
    return Stream(text + ("" if newline else "\n"), tags)


def printf(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Prints by a format; ``-v`` assigns instead."""
    args = site.argv[1:]
    target = None
    if args and args[0].text == "-v" and len(args) > 1:
        target, args = args[1], args[2:]
        names_ok(walker, target, name)
    if args and args[0].text == "--":
        args = args[1:]
    for arg in args:
        flow.printed(walker, arg, name)
    out = Stream(tags=_tags(args))
    if args and all(arg.known and not arg.glob for arg in args):
        text = _format(args[0].text, [arg.text for arg in args[1:]])
        tags = out.tags
        if re.search(
            r"\\(x[0-9a-fA-F]|[0-7]{2,3}|u[0-9a-fA-F])", args[0].text + " ".join(arg.text for arg in args[1:] if "%b" in args[0].text)
        ):
            tags |= {"decoded"}
        out = Stream(text, tags)
    if target is not None:
        if _NAME.match(target.text):
            dated = out.text is None and re.fullmatch(r"[\w.:-]*%\([%\w.:+-]*\)T", args[0].text) is not None if args else False
            shape = "word" if dated else None
            walker.assign(target.text, Value(out.text if out.text is not None else UNKNOWN, shape, tags=out.tags))
        return EMPTY
    return out


def _format(form: str, values: list[str]) -> str | None:
    if re.search(r"\\0(?![1-7])|\\x00|\\c", form):
        return None  # a NUL, or an early end: not a text any more
    pieces = re.split(r"(%%|%[-+ 0#]*\d*(?:\.\d+)?[sdibcq])", form)
    slots = [piece for piece in pieces if re.fullmatch(r"%[-+ 0#]*\d*(?:\.\d+)?[sdibcq]", piece)]
    if any("%" in piece for piece in pieces if piece not in slots and piece != "%%"):
        return None
    out: list[str] = []
    rest = list(values)
    while True:
        for piece in pieces:
            if piece == "%%":
                out.append("%")
            elif piece in slots:
                value = rest.pop(0) if rest else ""
                out.append(ansi(value) if piece.endswith("b") else value)
            else:
                out.append(ansi(piece))
        if not rest or not slots:
            return "".join(out)


def names_ok(walker: Walker, arg: Arg, who: str) -> None:
    """Where a builtin takes a name, a subscript would be evaluated, commands in it included."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\[(\d+|@|\*)\])?", arg.text):
        bad = "$(" in arg.text or "`" in arg.text
        walker.find("deny" if bad else "ask", "conceal.arithmetic", f"{who} evaluates a name that is more than a name", arg.start, arg.end)


def arithmetic(walker: Walker, arg: Arg, who: str) -> None:
    """Text that bash evaluates as arithmetic: a subscript in it, or in a variable it names, may run commands."""
    bad = re.search(r"\$\(|`", arg.text) is not None
    for name in re.findall(r"[A-Za-z_]\w*", arg.text):
        held = walker.state.variables.get(name)
        bad = bad or (held is not None and re.search(r"[\[$`]", held.text) is not None)
    if bad:
        walker.find("deny", "conceal.arithmetic", f"{who} evaluates text as arithmetic that runs a command", arg.start, arg.end)
    elif UNKNOWN in arg.text and arg.shape != "number":
        walker.find("ask", "conceal.arithmetic", f"{who} evaluates as arithmetic what the text does not fix", arg.start, arg.end)


def let(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``let``: its arguments are arithmetic, whatever their quoting."""
    for arg in site.argv[1:]:
        arithmetic(walker, arg, name)
        found = re.match(r"([A-Za-z_]\w*)[-+*/%&|^<>]*=(?!=)", arg.text)
        if found:
            walker.assign(found.group(1), Value(UNKNOWN, "number"))
    return EMPTY


def jobs(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``jobs -x program …`` runs a program; otherwise jobs are listed."""
    if call.has("-x") and call.rest:
        from warmgate_policies.shell.programs.wrappers import run

        return run(walker, site, call.rest)
    return EMPTY


def date(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``date``: an operand that is no format sets the clock."""
    for arg in call.args:
        if not arg.text.startswith("+") and UNKNOWN not in arg.text:
            walker.find("ask", "system.setting", f"{name} sets the clock", arg.start, arg.end)
    return None


def ps(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ps``: BSD's ``e`` shows the environments of other processes."""
    for arg in site.argv[1:]:
        environ = re.search(r"(^|,)environ(,|=|$)", arg.text.partition("=")[2] if arg.text.startswith("--") else arg.text)
        if environ or (re.fullmatch(r"[ajuxefwhlmnrSTvXZLHg]+", arg.text) and "e" in arg.text):
            walker.find("deny", "secret.environ", f"{name} {arg.text} shows the environments of processes", arg.start, arg.end)
            return Stream(tags=frozenset({"env"}))
    return None


def names(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``unset``, ``getopts``, ``local`` and kin: names alone."""
    for arg in site.argv[1:]:
        if not arg.text.startswith("-"):
            names_ok(walker, replace(arg, text=arg.text.partition("=")[0]), name)
            if name == "unset":
                if arg.text.startswith("HIST"):
                    walker.find("deny", "tamper.history", "turns the shell's history off", arg.start, arg.end)
                walker.state.variables[arg.text] = Value("")
    return EMPTY


def read(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``read``: variables take what comes in."""
    found = call.args or [Arg("REPLY")]
    stream = site.stdin
    for arg in found:
        names_ok(walker, arg, name)
        text = UNKNOWN
        if stream.text is not None and len(found) == 1 and walker.loops == 0:
            text = stream.text.split("\n", 1)[0].strip()
        walker.assign(arg.text, Value(text, stream.shape, stream.pattern, stream.tags))
    return EMPTY


def mapfile(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mapfile``: an array takes the lines; ``-C`` is code."""
    for value in call.values("-C"):
        walker.code(value.text, value)
    for arg in call.args or [Arg("MAPFILE")]:
        names_ok(walker, arg, name)
        item = Arg(UNKNOWN, arg.start, arg.end, split=True, shape=site.stdin.shape, pattern=site.stdin.pattern, tags=site.stdin.tags)
        walker.assign(arg.text, Value(UNKNOWN, items=(item,), tags=site.stdin.tags))
    return EMPTY


def export(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``export``, ``declare``, ``local``, ``readonly``, ``typeset``."""
    args = site.argv[1:]
    flags = [arg.text for arg in args if arg.text.startswith("-") and "=" not in arg.text]
    given = [arg for arg in args if not arg.text.startswith("-") or "=" in arg.text]
    exported = name == "export" or any("x" in flag for flag in flags)
    if not given:
        if any("f" in flag or "F" in flag for flag in flags):
            return EMPTY
        walker.find("ask", "env.dump", f"{name} shows the whole environment", site.start, site.end)
        return Stream(tags=frozenset({"env"}))
    for arg in given:
        variable, equals, value = arg.text.partition("=")
        names_ok(walker, replace(arg, text=variable.rstrip("+")), name)
        if equals and any("i" in flag for flag in flags):
            arithmetic(walker, replace(arg, text=value), name)
        if equals and exported:
            assignments.check(walker, variable, replace(arg, text=value), program=None, exported=True)
        elif equals and assignments.kind_of(variable, walker.rules) in ("loader", "path", "history", "program"):
            assignments.check(walker, variable, replace(arg, text=value), program=None, exported=False)
    if any("i" in flag for flag in flags):
        walker.integers = True
    if any("n" in flag for flag in flags) and name != "export":
        walker.find("ask", "conceal.reference", "declares a variable that stands for another", site.start, site.end)
    return EMPTY


def set_(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``set``: options of the shell, or its arguments; alone it shows every variable."""
    args = site.argv[1:]
    if not args:
        walker.find("ask", "env.dump", "set shows every variable", site.start, site.end)
        return Stream(tags=frozenset({"env"}))
    at = 0
    while at < len(args) and args[at].text[:1] in ("-", "+") and args[at].text != "--":
        text = args[at].text
        if "e" in text[1:] and text[0] == "-" and text != "-o":
            walker.state.errexit = True
        if text.endswith("o") and at + 1 < len(args):
            at += 1
            if args[at].text == "errexit":
                walker.state.errexit = True
            if args[at].text == "history" and text[0] == "+":
                walker.find("deny", "tamper.history", "turns the shell's history off", site.start, site.end)
        at += 1
    if at < len(args):
        walker.state.positional = tuple(args[at + 1 :] if args[at].text == "--" else args[at:])
    return EMPTY


def exit_(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``exit``, ``return``, ``break``, ``continue``: this branch ends here."""
    walker.state.ended = True
    return EMPTY


def kill(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``kill``: only jobs of this very command are free."""
    args = site.argv[1:]
    targets: list[Arg] = []
    at = 0
    while at < len(args):
        text = args[at].text
        if text in ("-l", "-L", "--list", "--table"):
            return NOTHING_KNOWN
        if text in ("-s", "--signal", "-n"):
            at += 2
            continue
        if text == "--":
            targets.extend(args[at + 1 :])
            break
        if at == 0 and re.fullmatch(r"-([A-Z]+\d*|\d+|SIG[A-Z0-9]+)", text) and len(args) > 1:
            pass
        else:
            targets.append(args[at])
        at += 1
    for arg in targets:
        if arg.text == "-1":
            walker.find("deny", "exhaust.killall", "kills every process of the user", arg.start, arg.end)
        elif arg.text == "1":
            walker.find("deny", "exhaust.killall", "kills the first process, which ends the container", arg.start, arg.end)
        elif "ownjob" in arg.tags or re.fullmatch(r"%(\d*|[%+-])", arg.text):
            continue
        else:
            walker.find("ask", "process.kill", "kills a process that this command did not start", arg.start, arg.end)
    return EMPTY


def alias(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``alias``: changes what later words run."""
    for arg in site.argv[1:]:
        if "=" in arg.text:
            value = replace(arg, text=arg.text.partition("=")[2])
            walker.find("ask", "assign.alias", "gives a program another meaning", arg.start, arg.end)
            walker.code(value.text, value)
    return EMPTY


def test(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``[`` and ``test``: look, change nothing; ``-v`` evaluates subscripts."""
    args = site.argv[1:]
    for index, arg in enumerate(args):
        if arg.text == "-v" and index + 1 < len(args):
            names_ok(walker, args[index + 1], name)
        if arg.text in ("-eq", "-ne", "-lt", "-gt", "-le", "-ge"):
            for other in (args[index - 1], *(args[index + 1 : index + 2])):
                if re.search(r"\[.*(\$\(|`)", other.text):
                    walker.find("deny", "conceal.arithmetic", f"{name} evaluates a subscript with a command in it", arg.start, arg.end)
    return EMPTY


def printenv(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``printenv NAME``: one variable, unless it is a credential."""
    for arg in call.args:
        if SECRET_NAME.search(arg.text):
            walker.find("deny", "secret.print", f"{name} prints a credential from the environment", arg.start, arg.end)
        elif UNKNOWN in arg.text:
            walker.find("ask", "env.dump", f"{name} prints a variable that the text does not fix", arg.start, arg.end)
    return Stream(tags=frozenset({"env"}) if not call.args else frozenset())


def endless(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``yes``: prints without end; into a file it fills the disk."""
    if site.sink == "file":
        walker.find("deny", "exhaust.disk", f"{name} fills the disk", site.start, site.end)
    return Stream(tags=frozenset({"endless"}))

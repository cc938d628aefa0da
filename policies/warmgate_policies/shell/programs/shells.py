"""Programs that run shell code: shells themselves, ``eval``, ``source``, ``exec``, ``trap``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_VALUED = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_LONG = ("--login", "--norc", "--noprofile", "--posix", "--version", "--help", "--noediting", "--verbose", "--restricted")


def shell(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``bash``, ``sh`` and kin: ``-c`` code, a script, or code on stdin."""
    args = site.argv[1:]
    at = 0
    command = stdin = interactive = False
    while at < len(args) and args[at].text[:1] in ("-", "+") and args[at].text not in ("-", "--"):
        text = args[at].text
        if UNKNOWN in text:
            walker.find("ask", "dynamic.code", f"{name} is given an option that the text does not fix", args[at].start, args[at].end)
        elif text in _VALUED:
            if text in ("--rcfile", "--init-file") and at + 1 < len(args):
                _script(walker, args[at + 1], name, site, [])
            at += 2
            continue
        elif text.startswith("--"):
            if text.partition("=")[0] in ("--rcfile", "--init-file"):
                _script(walker, replace(args[at], text=text.partition("=")[2]), name, site, [])
            elif text not in _LONG:
                walker.find("ask", "option.unknown", f"{name} is given {text}, which no rule pack knows", args[at].start, args[at].end)
            if text in ("--version", "--help"):
                return NOTHING_KNOWN
        else:
            command |= "c" in text[1:] and text[0] == "-"
            stdin |= "s" in text[1:] and text[0] == "-"
            interactive |= "i" in text[1:]
            if set(text[1:]) - set("abcefhiklmnprstuvxBCEHPTDo"):
                walker.find("ask", "option.unknown", f"{name} is given {text}, which no rule pack knows", args[at].start, args[at].end)
            if "o" in text[1:]:
                at += 1
        at += 1
    if at < len(args) and args[at].text in ("--", "-"):
        at += 1
    rest = args[at:]
    reads = any(re.fullmatch(r"-[a-zA-Z]*n[a-zA-Z]*", arg.text) for arg in args[:at])
    if reads and rest and not command and not stdin:  # -n: it is parsed, not run
        roles.read(walker, rest[0], name)
        return NOTHING_KNOWN
    if command:
        if not rest:
            return NOTHING_KNOWN
        code = rest[0]
        if code.tags & {"net", "decoded"} or UNKNOWN in code.text:
            roles.judge_code(walker, Stream(None if UNKNOWN in code.text else code.text, code.tags), code, name)
        positional = tuple(rest[2:])
        return _tagged(walker.code(code.text, code, site.sink, positional, zero=rest[1] if len(rest) > 1 else None), site)
    if rest and not stdin:
        return _script(walker, rest[0], name, site, rest[1:])
    if interactive and site.stdin.text is None and not site.stdin.tags and not site.stdin.project:
        walker.find("ask", "run.interactive", f"starts an interactive {name}", site.start, site.end)
        return NOTHING_KNOWN
    return run_stdin(walker, site, name)


def run_stdin(walker: Walker, site: Site, name: str) -> Stream:
    """Code that arrives on stdin."""
    at = Arg("", site.start, site.end)
    stream = roles.judge_code(walker, site.stdin, at, name)
    if stream.text is not None:
        return _tagged(walker.code(stream.text, at, site.sink), site)
    return NOTHING_KNOWN


def _tagged(stream: Stream, site: Site) -> Stream:
    return replace(stream, tags=stream.tags | site.stdin.tags)


def _script(walker: Walker, arg: Arg, name: str, site: Site, rest: list[Arg]) -> Stream:
    from warmgate_policies.shell.judge import project_operands

    if arg.text in ("/dev/stdin", "-", "/dev/fd/0", "/proc/self/fd/0"):
        return run_stdin(walker, site, name)
    _searched(walker, arg, name)
    stream = roles.run_file(walker, arg, name)
    if stream.text is not None:
        return walker.code(stream.text, arg, site.sink, tuple(rest))
    project_operands(walker, rest, name)
    return NOTHING_KNOWN


def _searched(walker: Walker, arg: Arg, name: str) -> None:
    """A script named without a folder is looked up among the programs as well (for ``source``: first)."""
    if re.fullmatch(r"[\w+-]+", arg.text) and not any(walker.files.at(place.path) is not None for place, _ in roles.places(walker, arg)):
        walker.find("ask", "dynamic.program", f"{name} {arg.text} may run a program of that name, not a file here", arg.start, arg.end)


def evaluate(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``eval``: its arguments, joined, are code of this very shell."""
    args = site.argv[1:]
    if not args:
        return NOTHING_KNOWN
    text = " ".join(arg.text for arg in args)
    tags = frozenset[str]().union(*(arg.tags for arg in args))
    at = Arg(text, args[0].start, args[-1].end, tags=tags)
    if UNKNOWN in text or tags & {"net", "decoded"}:
        roles.judge_code(walker, Stream(None if UNKNOWN in text else text, tags), at, "eval")
    return walker.code(text, at, site.sink, subshell=False)


def source(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``source``: a file becomes code of this very shell."""
    args = site.argv[1:]
    if not args:
        return NOTHING_KNOWN
    target = args[0]
    _searched(walker, target, name)
    if target.known and "/" not in target.text:
        target = replace(target, text="./" + target.text)
    base = target.text.rsplit("/", 1)[-1]
    if target.text in ("/dev/stdin", "/dev/fd/0"):
        return run_stdin(walker, site, name)
    if base.startswith(".env") and target.stream is None:
        roles.read(walker, target, name)
    stream = roles.run_file(walker, target, name)
    if stream.text is not None:
        return walker.code(stream.text, target, site.sink, subshell=False)
    return NOTHING_KNOWN


def execute(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``exec program`` is the program; ``exec`` alone changes this shell's streams."""
    if not call.rest:
        return NOTHING_KNOWN
    return _judge(walker, replace(site, argv=call.rest, env=[]))


def _judge(walker: Walker, site: Site) -> Stream:
    from warmgate_policies.shell.judge import judge

    return judge(walker, site)


def trap(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``trap code signals``: the code will run."""
    args = [arg for arg in site.argv[1:] if arg.text not in ("-p", "-l", "--")]
    if not args or args[0].text in ("-", ""):
        return NOTHING_KNOWN
    return walker.code(args[0].text, args[0])

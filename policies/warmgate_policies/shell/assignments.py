"""Assignments in front of a command, ``export`` and ``env``: what a variable makes other programs do."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import UNKNOWN, Arg
from warmgate_policies.shell.paths import classify
from warmgate_policies.shell.rules import Rules

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

KINDS = {
    "plain": "a setting that names no code; any value",
    "import": "a search path for code; its folders must lie in the workspace or the system",
    "program": "names a program that others run; judged as a command",
    "loader": "makes programs load code; never",
    "path": "where programs are found",
    "options": "options for an interpreter; a closed set of values",
    "ifs": "how words are split; only in front of ``read``",
    "secret": "a credential",
    "folder": "a folder that tools write to; must lie in the workspace or scratch",
    "address": "an address that tools talk to; loopback only",
    "history": "where the shell keeps its history",
}
"""Classes of variables in a pack's ``environment``."""

_HARMLESS_OPTIONS = re.compile(
    r"(--max[-_]old[-_]space[-_]size=\d+|--experimental-vm-modules|--no-warnings|--trace-warnings|"
    r"--enable-source-maps|--openssl-legacy-provider|-Xm[sx]\d+[kmgKMG]?|"
    r"-Dfile\.encoding=[\w-]+|-C ?(opt-level|debuginfo|target-cpu)=\w+|-D ?warnings|-W "
    r"?\w+|-v|-vv|-q|-x|-s|-ra|-n ?\d+|-p "
    r"no:\w+|--tb=\w+|-race|-mod=(vendor|readonly)|-O[0-3s]?|-g|-std=[\w+]+|-fsanitize=[\w,]+|-W[\w=-]*|-fno-omit-frame-pointer|"
    r"-j ?\d+|-R|-F|-X|-i|-S|-D\w+(=\w+)?)"
)


@lru_cache(maxsize=4)
def _globs(rules: Rules) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in rules.environment.items() if "*" in name]


def kind_of(name: str, rules: Rules) -> str | None:
    """Class of a variable; None where no pack names it."""
    found = rules.environment.get(name)
    if found is not None:
        return found
    return next((kind for pattern, kind in _globs(rules) if fnmatch.fnmatchcase(name, pattern)), None)


def check(walker: Walker, name: str, value: Arg, *, program: str | None, exported: bool) -> None:
    """Judge one assignment. ``program`` is what it stands in front of; without one and not exported it is a variable of the shell alone."""
    kind = kind_of(name, walker.rules)

    def find(verdict: str, rule: str, reason: str) -> None:
        walker.find("deny" if verdict == "deny" else "ask", rule, reason, value.start, value.end)

    if kind == "plain" and (exported or program) and not _harmless(walker, name, value):
        find("ask", "assign.value", f"sets {name} to what reads like a program or a place outside the workspace")
    if kind == "loader":
        find("deny", "conceal.loader", f"sets {name}, which makes programs load other code")
    elif kind == "path":
        _path(walker, name, value)
    elif kind == "import":
        for part in value.text.split(":"):
            _import(walker, name, part, value)
    elif kind == "program":
        if value.text == UNKNOWN:
            find("ask", "assign.program", f"sets {name}, which others run, to what the text does not fix")
        elif value.text:
            from warmgate_policies.shell.judge import command_value

            command_value(walker, value, f"{name} names a program that others run")
    elif kind == "ifs":
        if program != "read" and program is not None:
            find("ask", "assign.ifs", "changes how words are split")
    elif kind == "options":
        if re.sub(r"(?:^|\s+)" + _HARMLESS_OPTIONS.pattern + r"(?=\s|$)", "", value.text).strip():
            find("ask", "assign.options", f"hands options to an interpreter through {name}")
    elif kind == "folder":
        place = classify(value.text, walker.state.cwd, walker.facts)
        if place.kind not in ("workspace", "scratch", "device") and value.text:
            find("ask", "assign.folder", f"lets tools write to {name}={value.text.replace(UNKNOWN, '…')}, outside the workspace")
    elif kind == "address":
        from warmgate_policies.shell.urls import host_of, judge_host

        if value.text and judge_host(host_of(value.text)) != "loopback" and not value.text.startswith(("sqlite:", "file:", "memory:")):
            find("ask", "assign.address", f"lets tools talk to the address in {name}")
    elif kind == "history":
        find("deny", "tamper.history", f"sets {name}, which turns the shell's history off or away")
    elif kind == "secret":
        if exported or program:
            find("ask", "assign.secret", f"hands a credential on in {name}")
    elif kind is None and (program is not None or exported):
        find("ask", "assign.unknown", f"sets {name}, a variable that no rule pack knows, for the program")


_NAMES_CODE = re.compile(r"(CMD|COMMAND|RUNNER|TOOL|BIN|EXE|PROGRAM|HOOK|SCRIPT|EDITOR|PAGER|WRAPPER|LAUNCHER|PRELOAD|PLUGINS?)$")


def _harmless(walker: Walker, name: str, value: Arg) -> bool:
    """Whether a plain setting's value can be no more than a setting."""
    text = value.text.replace(UNKNOWN, "0") if value.shape in ("number", "word") else value.text
    if name.startswith("GIT_TRACE"):
        return re.fullmatch(r"[012]|true|false|/tmp/[\w./-]+", text) is not None
    file = re.fullmatch(r"sqlite(?:\+\w+)?:(?:///([\w./-]*)|)", text)
    if file and not _NAMES_CODE.search(name):
        return not file.group(1) or classify(file.group(1), walker.state.cwd, walker.facts).kind in ("workspace", "scratch")
    if not text or re.fullmatch(r"\d+|true|false|yes|no|on|off", text):
        return True
    if re.search(r"\$\(|`|\$\{|[;|&<>\n]", text) or _NAMES_CODE.search(name):
        return False
    first = text.split()[0].rsplit("/", 1)[-1] if text.split() else ""
    if re.search(r"\s", text) and (first in walker.rules.programs or "/" in text.split()[0]):
        return False
    for part in re.split(r"[:,\s]", text):
        if part.startswith(("/", "~", "..", "./..")) and len(part) > 1:
            place = classify(part, walker.state.cwd, walker.facts)
            if place.kind not in ("workspace", "scratch", "system", "device") or (
                place.kind == "scratch" and not name.endswith(("LOG", "DIR", "OUT", "URL", "FILE", "DB"))
            ):
                return False
    return True


_MADE_PLAIN = re.compile(r"[\w.,:+%=@ -]*")


def made(walker: Walker, name: str, value: Arg, who: str) -> None:
    """``make NAME=value``: the rules may run the value."""
    text = value.text
    words = text.split()
    compiler = (
        re.fullmatch(r"(gcc|clang|cc|g\+\+|clang\+\+|python3?|node|ld|ar|pytest|go|cargo|npm|docker|podman)([-.\d]*)", text) is not None
    )
    if name in ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "MAKEFILES", "RM", "INSTALL") or re.search(r"\$\(|`|;|\||&", text):
        verdict = "asks a shell for a value" if name not in ("SHELL", "RM", "INSTALL") else f"is told to run {text[:40]} as {name}"
        walker.find("ask", "assign.program", f"{who} {verdict}", value.start, value.end)
    elif compiler or not text:
        return
    elif re.search(r"-f(plugin|use-ld)|-B|-specs|-wrapper|-toolexec|-exec\b|-Xclang|-load\b", text):
        walker.find("ask", "assign.options", f"{who} hands on options that load or run other code in {name}", value.start, value.end)
    elif name.endswith("FLAGS") or name in (
        "ARGS",
        "OPTS",
        "TESTARGS",
        "PYTEST_ARGS",
        "TEST",
        "TESTS",
        "T",
        "V",
        "K",
        "FILTER",
        "PKG",
        "MSG",
        "MESSAGE",
    ):
        if not all(_plain_word(walker, word) for word in words):
            walker.find("ask", "assign.value", f"{who} is given {text[:40]} in {name}", value.start, value.end)
    elif (len(words) > 1 and words[0].rsplit("/", 1)[-1] in walker.rules.programs) or not all(_plain_word(walker, word) for word in words):
        walker.find("ask", "assign.program", f"{who} may run {text[:40]} as {name}", value.start, value.end)


def _plain_word(walker: Walker, word: str) -> bool:
    for part in re.split(r"[=:,]", word):
        if "/" in part or part.startswith("~"):
            place = classify(re.sub(r"^-[A-Za-z]+", "", part), walker.state.cwd, walker.facts)
            if place.kind not in ("workspace", "unknown"):
                return False
    return "://" not in word


def _path(walker: Walker, name: str, value: Arg) -> None:
    parts = value.text.split(":")
    for part in parts:
        if part == UNKNOWN or part == "$PATH":
            continue
        place = classify(part or ".", walker.state.cwd, walker.facts)
        if part.startswith(UNKNOWN) or place.kind == "unknown":
            walker.find("ask", "assign.path", f"sets {name} to a folder that the text does not fix", value.start, value.end)
        elif (
            place.kind == "workspace" and part not in ("", ".") and place.path.endswith(("/bin", "/.bin", "/scripts", "/tools"))
        ) or place.kind == "system":
            continue
        elif place.kind == "cache":
            walker.find("ask", "assign.path", f"looks programs up in {part}", value.start, value.end)
        elif place.kind == "workspace":
            walker.find("ask", "assign.path", f"looks programs up in {part or 'the working directory'}", value.start, value.end)
        else:
            walker.find(
                "deny",
                "conceal.path",
                f"looks programs up in {part.replace(UNKNOWN, '…')}, outside the workspace and the system",
                value.start,
                value.end,
            )


def _import(walker: Walker, name: str, part: str, value: Arg) -> None:
    if part in ("", UNKNOWN):
        return
    place = classify(part, walker.state.cwd, walker.facts)
    if place.kind in ("workspace", "system"):
        known = walker.files.at(place.path)
        if known is not None and known.tags & {"net", "decoded"}:
            walker.find("deny", "flow.download-run", f"loads code that was just downloaded through {name}", value.start, value.end)
        return
    verdict = "deny" if place.kind == "scratch" else "ask"
    walker.find(
        "deny" if verdict == "deny" else "ask",
        "assign.import",
        f"loads code from {part.replace(UNKNOWN, '…')} through {name}",
        value.start,
        value.end,
    )

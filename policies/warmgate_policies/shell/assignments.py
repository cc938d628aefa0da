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

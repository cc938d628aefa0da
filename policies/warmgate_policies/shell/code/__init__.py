"""Code in other languages, handed over in arguments: read as far as a proof needs, asked about past that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import Arg, Site

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker


def run_code(walker: Walker, language: str, arg: Arg, name: str, site: Site) -> frozenset[str]:
    """Judge an argument that is code; origins it adds to the output."""
    from warmgate_policies.shell.code import awk, python, script, sed, sql

    if language == "sh":
        return walker.code(arg.text, arg).tags
    if language == "sed":
        sed.judge(walker, arg, name)
    elif language == "awk":
        awk.judge(walker, arg, name)
    elif language == "python":
        python.judge(walker, arg.text, arg, site)
    elif language == "sql":
        sql.judge(walker, arg, name, remote=False)
    else:
        script.judge(walker, arg.text, arg, language, site)
    return frozenset()

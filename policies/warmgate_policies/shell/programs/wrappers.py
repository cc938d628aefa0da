"""Programs that run another program with the arguments they are given."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import assignments
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Capped, Site, Stream
from warmgate_policies.shell.options import Call

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

MAX_WRAPPERS = 40
DEPLOYS = re.compile(
    r"(?i)(^|[:_.-])(deploy|publish|release|push|upload|migrat\w*|prod(uction)?|seed|install|uninstall|"
    r"postinstall|ship|rollback|destroy|nuke|drop|reset|bootstrap|provision|sync|login|purge|up|down)($|"
    r"[:_.-])"
)


_MANY = ("workspace", "workspaces", "foreach")
"""Subcommands behind which a script's name comes only after another."""
_RUNS_ON = ("exec", "devenv", "explore")
"""Subcommands behind which a script runner takes any program."""
_CHANGES = re.compile(
    r"add|new|update|upgrade|fetch|vendor|install|remove|link|unlink|connect|login|logout|gen|generate|deps|repl|version|develop|subprojects|wrap|"
    r"download|self-update|global|policies|focus|search|tag|owner|team|unplug|import|dlx|create|set|migrate|publish\w*|mod|prepare|credentials:\w+"
)
"""Subcommands, not scripts, where a script runner has them."""


def run(walker: Walker, site: Site, argv: list[Arg], env: list[tuple[str, Arg]] | None = None) -> Stream:
    """Judge the program inside a wrapper."""
    from warmgate_policies.shell.judge import judge

    walker.depth += 1
    try:
        if walker.depth > MAX_WRAPPERS:
            raise Capped("programs are wrapped in programs too deeply")
        return judge(walker, replace(site, argv=argv, env=env or []))
    finally:
        walker.depth -= 1


def wrapper(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``nice``, ``timeout``, ``uv run``, …"""
    if not call.rest:
        return None
    first = call.rest[0]
    if (
        name in ("stack exec", "cabal exec", "dune exec")
        and first.known
        and first.text not in walker.rules.programs
        and "/" not in first.text
    ):
        from warmgate_policies.shell.judge import project_operands

        project(walker, site, name)  # a program that the project itself builds
        project_operands(walker, call.rest[1:], name)
        return None
    return run(walker, site, call.rest)


def watch(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``watch``: its arguments, joined, are handed to a shell."""
    if not call.rest:
        return None
    at = replace(call.rest[0], end=call.rest[-1].end)
    return walker.code(" ".join(arg.text for arg in call.rest), at, site.sink)


def env(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``env A=b program``; alone it prints the environment."""
    from warmgate_policies.shell.judge import effect

    given: list[tuple[str, Arg]] = []
    rest = list(call.rest)
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
        variable, _, value = rest[0].text.partition("=")
        given.append((variable, replace(rest[0], text=value)))
        rest = rest[1:]
    split = call.value("-S", "--split-string")
    if split is not None:
        return walker.code(" ".join([split.text, *(arg.text for arg in rest)]), split, site.sink)
    if not rest:
        for variable, setting in given:
            assignments.check(walker, variable, setting, program="env", exported=True)
        return Stream(tags=effect(walker, "env.dump", "env", site))
    return run(walker, site, rest, given)


def sudo(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``sudo``: at least ask, whatever follows; a password on stdin is a way around people."""
    walker.find("ask", "privilege.sudo", f"runs with the rights of another user ({name})", site.start, site.end)
    if call.has("-S", "--stdin") or call.has("-A", "--askpass"):
        walker.find("deny", "privilege.password", f"feeds {name} a password", site.start, site.end)
    rest = list(call.rest)
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
        rest = rest[1:]
    if call.has("-e", "--edit"):
        from warmgate_policies.shell import roles

        for arg in rest:
            roles.write(walker, arg, name)
        return NOTHING_KNOWN
    if not rest:
        return NOTHING_KNOWN
    return run(walker, site, rest)


def su(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``su``: at least ask; ``-c`` is code."""
    walker.find("ask", "privilege.sudo", f"runs with the rights of another user ({name})", site.start, site.end)
    if site.stdin.text is not None or site.stdin.tags:
        walker.find("deny", "privilege.password", f"feeds {name} a password", site.start, site.end)
    return NOTHING_KNOWN


def xargs(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``xargs program``: with what it reads as further arguments."""
    stream = site.stdin
    extra = Arg(UNKNOWN, site.start, site.end, split=True, shape=stream.shape, pattern=stream.pattern, tags=stream.tags)
    argfile = call.value("-a", "--arg-file")
    if argfile is not None:
        extra = replace(extra, shape=None, pattern=None, tags=frozenset())
    if stream.shape == "path" and stream.pattern is not None:
        extra = replace(extra, split=False)
    argv = list(call.rest) or [Arg("echo", site.start, site.end)]
    mark = call.value("-I", "--replace", "-i")
    marker = mark.text if mark is not None and mark.text else ("{}" if call.has("-I", "-i", "--replace") else None)
    words = _words(stream.text, call, lines=marker is not None) if stream.text is not None and argfile is None else None
    if words is not None:
        known = [Arg(word, site.start, site.end, tags=stream.tags, computed=True) for word in words]
        if marker:
            for arg in known:
                run(walker, site, [replace(a, text=a.text.replace(marker, arg.text)) for a in argv])
            return Stream(tags=stream.tags)
        if call.has("-n", "--max-args", "-L", "-l", "--max-lines", "-s", "-P"):  # each word may begin a run of its own
            for index in range(len(known)):
                run(walker, replace(site, stdin=NOTHING_KNOWN), [*argv, *known[index:]])
        run(walker, replace(site, stdin=NOTHING_KNOWN), [*argv, *known])
        return Stream(tags=stream.tags)
    argv = [_with(arg, marker, extra) for arg in argv] if marker else [*argv, extra]
    out = run(walker, replace(site, stdin=NOTHING_KNOWN), argv)
    return replace(out, tags=out.tags | stream.tags)


def _words(text: str, call: Call, *, lines: bool) -> list[str] | None:
    """What xargs makes of a known text; None where its quoting rules leave doubt, or there is too much of it."""
    if len(text) > 4000:
        return None
    if call.has("-0", "--null", "-d", "--delimiter"):
        return [text] if not call.has("-d", "--delimiter") else None
    if re.search(r"['\"\\\\]", text):
        return None
    words = [word.strip() for word in text.split("\n")] if lines else text.split()
    words = [word for word in words if word]
    return words if len(words) <= 40 else None


def _with(arg: Arg, marker: str, extra: Arg) -> Arg:
    if marker not in arg.text:
        return arg
    if arg.text == marker:
        return replace(extra, split=False)
    given = replace(arg, text=arg.text.replace(marker, UNKNOWN), tags=arg.tags | extra.tags)
    folder = arg.text.removesuffix(marker)
    if folder.endswith("/") and marker not in folder and arg.known and extra.shape == "path" and ".." not in (extra.pattern or ".."):
        return replace(given, shape="path", pattern=folder + "**/found")  # names listed in a folder, put behind it again
    return given


def lookup(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``command -v`` looks up; ``command program`` and ``builtin program`` run."""
    if call.has("-v", "-V"):
        return NOTHING_KNOWN
    if not call.rest:
        return NOTHING_KNOWN
    functions = walker.state.functions
    walker.state.functions = {}
    try:
        return run(walker, site, call.rest)
    finally:
        walker.state.functions = functions


def npx(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``npx``: local only with ``--no-install`` and kin; otherwise a package straight from a registry."""
    local = call.has("--no-install", "--no", "--offline") or name == "pnpm exec"
    if not local:
        walker.find("ask", "install.run", f"{name} may run a package straight from a registry", site.start, site.end)
    for value in call.values("-c", "--call"):
        walker.code(value.text, value)
    if not call.rest:
        return NOTHING_KNOWN
    kept = len(walker.findings)
    out = run(walker, site, call.rest)
    if not local:
        walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
    return out


def project_script(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``npm run x``, ``yarn x``: a script of the project; names that speak of shared state are asked about."""
    from warmgate_policies.shell.judge import project_operands
    from warmgate_policies.shell.programs import project_tools

    args = [arg for arg in site.argv[1:] if not arg.text.startswith("-")]
    if any(arg.text in _RUNS_ON for arg in args[:3]):
        at = next(index for index, arg in enumerate(site.argv) if index and arg.text in _RUNS_ON) + 1
        while at < len(site.argv) and site.argv[at].text.startswith("-"):
            at += 1
        if at < len(site.argv):
            return run(walker, site, site.argv[at:])
    for arg in args[:3]:
        if _CHANGES.fullmatch(arg.text):
            walker.find("ask", "install.network", f"{name} {arg.text} may fetch, install or publish", arg.start, arg.end)
    words = [arg for arg in args if arg.text not in ("run", "run-script", "exec", "test", "start", "task")]
    project(walker, site, name)
    if words:
        script = words[0]
        if script.text == "env" and name.split(maxsplit=1)[0] in ("npm", "pnpm", "yarn", "bun"):
            walker.find("ask", "env.dump", f"{name} env shows the whole environment", script.start, script.end)
        if UNKNOWN in script.text:
            walker.find("ask", "dynamic.program", f"{name} runs a script that the text does not fix", script.start, script.end)
        elif name == "rails" and re.match(r"db:(?!version$|migrate:status$|abort_if)", script.text):
            walker.find("ask", "db.mutate", f"{name} {script.text} changes a database", script.start, script.end)
        elif name in ("mill", "lein", "sbt") and any(re.search(r"(?i)publish|deploy|release", word.text) for word in words):
            walker.find("ask", "script.shared", f"{name} {script.text} may change more than the workspace", script.start, script.end)
        elif name.startswith("bazel") and any(word.text.startswith("@") for word in words):
            walker.find("ask", "net.fetch", f"{name} may fetch what it builds", script.start, script.end)
        elif any(DEPLOYS.search(word.text) for word in (words[:4] if script.text in _MANY else words[:1])) and not script.text.endswith(
            ":status"
        ):
            walker.find("ask", "script.shared", f"{name} {script.text} may change more than the workspace", script.start, script.end)
    project_operands(walker, site.argv[1:], name)
    project_tools.elsewhere(walker, site, name)
    return None


def fallback(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """A word that is no subcommand we know: pnpm and yarn take it for a script of the project, npm for an abbreviation of a subcommand."""
    if name == "npm":
        first = site.argv[0]
        walker.find("ask", "program.subcommand", "runs a subcommand of npm that no rule pack knows", first.start, site.end)
        return None
    for arg in [arg for arg in site.argv[1:] if not arg.text.startswith("-")][:3]:
        if _CHANGES.fullmatch(arg.text) or arg.text in ("env", "server"):
            walker.find("ask", "install.network", f"{name} {arg.text} may fetch, install or publish", arg.start, arg.end)
    words = [arg for arg in site.argv[1:] if not arg.text.startswith("-")]
    if (
        words
        and words[0].text in walker.rules.programs
        and walker.rules.programs[words[0].text].handler in ("project", "node", "wrapper", "server")
    ):
        return run(walker, site, site.argv[site.argv.index(words[0]) :])
    return project_script(walker, site, name, call)


def project(walker: Walker, site: Site, name: str) -> None:
    """The project's own code is about to run."""
    from warmgate_policies.shell.judge import works_here

    if not walker.facts.trusted_project:
        walker.find("ask", "project.untrusted", f"{name} runs code of a checkout nobody has trusted yet", site.start, site.end)
    for path, stream in walker.files.written.items():
        base = path.rsplit("/", 1)[-1]
        if base in (
            "package.json",
            "Makefile",
            "makefile",
            "GNUmakefile",
            "justfile",
            "conftest.py",
            "setup.py",
            "build.rs",
            "Cargo.toml",
            "pyproject.toml",
            "build.gradle",
            "pom.xml",
            "CMakeLists.txt",
            "Rakefile",
            "tox.ini",
            "noxfile.py",
        ) and stream.tags & {"net", "decoded"}:
            walker.find("deny", "flow.download-run", f"{name} runs {base}, which was just downloaded", site.start, site.end)
    cwd = walker.state.cwd
    known = walker.files.at(cwd) if cwd else None
    if known is not None and known.tags & {"net"}:
        walker.find("deny", "flow.download-run", f"{name} runs code that was just downloaded", site.start, site.end)
    _written(walker, site, name)
    works_here(walker, site, name)


def _recipes(walker: Walker, text: str, at: Arg) -> None:
    """The commands of a makefile."""
    for line in text.splitlines():
        if line.startswith(("\t", "    ")):
            walker.code(line.strip().lstrip("@-+").replace("$(HOME)", "$HOME").replace("$$", "$"), at)


def _written(walker: Walker, site: Site, name: str) -> None:
    """Files that this very command wrote and the project's tools may now run: their content counts as run."""
    from warmgate_policies.shell.code import python, script

    at = Arg("", site.start, site.end)
    for file, stream in list(walker.files.written.items()):
        text, base = stream.text, file.rsplit("/", 1)[-1]
        if not text or file in walker.judged:
            continue
        walker.judged.add(file)
        kept = len(walker.findings)
        if base in ("Makefile", "makefile", "GNUmakefile", "justfile", "Rakefile"):
            _recipes(walker, text, at)
        elif base.endswith(".py"):
            python.judge(walker, text, at)
            walker.findings[kept:] = [f for f in walker.findings[kept:] if f.rule not in ("dynamic.target", "delete.work")]
        elif base == "package.json":
            for found in re.finditer(r'"[\w:-]+"\s*:\s*"((?:\\.|[^"\\])*)"', text):
                if re.search(r"[ ;&|]", found.group(1)):
                    walker.code(found.group(1).replace('\\"', '"'), at)
            walker.findings[kept:] = [f for f in walker.findings[kept:] if f.verdict == "deny"]
        elif base.endswith((".sh", ".bash")):
            walker.code(text, at)
        elif base.endswith((".js", ".mjs", ".cjs", ".ts", ".mts", ".jsx", ".tsx")):
            script.judge(walker, text, at, "js", site)
            walker.findings[kept:] = [f for f in walker.findings[kept:] if f.verdict == "deny"]
    del name


def _staged(walker: Walker, args: list[Arg]) -> bool:
    """``make install`` into a folder that is given and lies in the workspace or in scratch."""
    from warmgate_policies.shell import roles

    folders = [
        replace(arg, text=arg.text.partition("=")[2])
        for name in ("DESTDIR=", "PREFIX=", "prefix=")
        for arg in args
        if arg.text.startswith(name)
    ][:1]
    return bool(folders) and all(
        folder.known and place.kind in ("workspace", "scratch") for folder in folders for place, _ in roles.places(walker, folder)
    )


def make(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``make target``: the project's own rules; variables and targets that reach further are asked about."""
    from warmgate_policies.shell import roles
    from warmgate_policies.shell.judge import project_operands

    project(walker, site, name)
    if call.has("-p"):
        walker.find("ask", "env.dump", f"{name} -p shows the whole environment", site.start, site.end)
    folders = call.values("-C", "--directory")
    makefile = call.value("-f", "--file", "--makefile")
    for other in call.values("-f", "--file", "--makefile")[:-1]:
        roles.run_file(walker, other, name)
    if makefile is not None and makefile.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        roles.judge_code(walker, replace(site.stdin, text=None), makefile, name)
        _recipes(walker, site.stdin.text or "", makefile)
    elif makefile is not None:
        out = roles.run_file(walker, makefile, name)
        if out.text is not None:
            walker.find("ask", "opaque.script", "make runs rules written just now", makefile.start, makefile.end)
    for folder in folders:
        roles.run_file(walker, replace(folder, text=folder.text.rstrip("/") + "/Makefile"), name)
    for arg in call.args:
        text = arg.text
        if "=" in text:
            variable, _, value = text.partition("=")
            if variable not in ("DESTDIR", "PREFIX", "prefix"):
                assignments.made(walker, variable.rstrip(":+?"), replace(arg, text=value), name)
            staged = any(other.text.startswith("DESTDIR=") for other in call.args)
            if variable == "DESTDIR" or (variable in ("PREFIX", "prefix") and not staged):
                for place, fallback in roles.places(walker, replace(arg, text=value)):
                    if place.kind not in ("workspace", "scratch") and not fallback:
                        walker.find("ask", "write.outside", f"make writes below {roles.show(place.path)}", arg.start, arg.end)
        elif UNKNOWN in text:
            walker.find("ask", "dynamic.program", "make runs a target that the text does not fix", arg.start, arg.end)
        elif text == "install" and _staged(walker, call.args):
            continue
        elif DEPLOYS.search(text) and not call.has("-n", "--dry-run", "--just-print"):
            walker.find("ask", "script.shared", f"make {text} may change more than the workspace", arg.start, arg.end)
    project_operands(walker, call.args, name)
    return None

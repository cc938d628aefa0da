"""Tools that run the project's own code: tests, builds, linters, package managers; and what they may not be told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.programs.wrappers import project as _project
from warmgate_policies.shell.programs.wrappers import run

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker


def project(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """A tool that runs the project's own code: tests, builds, linters."""
    from warmgate_policies.shell.judge import project_operands

    words = [arg.text for arg in site.argv[1:]]
    if name in ("gradle", "gradlew", "mvn", "mvnw"):
        if not any(word in ("-o", "--offline", "-v", "--version", "tasks", "-version") for word in words):
            walker.find("ask", "net.fetch", f"{name} may fetch what the build names (give it --offline)", site.start, site.end)
        if any(re.search(r"(?i)publish|deploy|release|upload|install(Dist)?$", word) for word in words if not word.startswith("-")):
            walker.find("ask", "script.shared", f"{name} may change more than the workspace", site.start, site.end)
    if (
        name == "cmake"
        and "-E" in words
        and words[-1:] != ["-E"]
        and words[words.index("-E") + 1]
        not in ("echo", "make_directory", "touch", "compare_files", "sha256sum", "md5sum", "capabilities", "environment_")
    ):
        walker.find("ask", "run.option", "cmake -E works on files or runs a program", site.start, site.end)
    if name.startswith("dotnet"):
        for arg in site.argv[1:]:
            found = re.match(r"/(p|property|l|logger|dl|distributedlogger):(.*)", arg.text, re.DOTALL | re.IGNORECASE)
            if found and re.search(
                r"(?i)BuildEvent|CustomBefore|CustomAfter|RunCommand|Exec|Tool(Path|Exe)|\.dll|^l.*[/\\\\]", found.group(2)
            ):
                walker.find("ask", "option.loads", f"{name} is told to load or run other code by {arg.text[:40]}", arg.start, arg.end)
    first = next((arg for arg in site.argv[1:] if not arg.text.startswith("-")), None)
    group = [arg for arg in site.argv[1:3] if not arg.text.startswith("-")]
    if (
        len(group) == 2
        and group[0].text in ("config", "link", "self", "plugin")
        and re.fullmatch(r"add|update|upgrade|install", group[1].text)
    ):
        walker.find(
            "ask", "install.network", f"{name} {group[0].text} {group[1].text} fetches or changes more", group[1].start, group[1].end
        )
    if first is not None and re.fullmatch(r"upgrade|sync|update|publish|eject|init|login|install|deploy|self-update", first.text):
        walker.find("ask", "install.network", f"{name} {first.text} may fetch or change more than the workspace", first.start, first.end)
    if name == "tox":
        return _tox(walker, site, name, call)
    if any(
        re.fullmatch(r"help:(system|effective-settings|all-profiles|effective-pom)|properties|dependencyInsight", word) for word in words
    ) and name in ("mvn", "mvnw", "gradle", "gradlew"):
        walker.find("ask", "env.dump", f"{name} shows settings and the environment", site.start, site.end)
    if name.startswith("deno") and any(re.match(r"(npm|jsr|https?):", word) for word in words):
        walker.find("ask", "net.fetch", f"{name} fetches what it works on", site.start, site.end)
    if name == "cmake" and any(re.fullmatch(r"(--target=|-t)?(un)?install(/.*)?", word) for word in words):
        walker.find("ask", "install.local", "cmake installs what was built", site.start, site.end)
    if name in ("kustomize", "kubectl kustomize") and any(re.match(r"(git@|[\w-]+\.(com|org|io|net|dev)/)", word) for word in words):
        walker.find("ask", "net.fetch", f"{name} fetches what it builds", site.start, site.end)
    if name == "flutter run":
        walker.find("ask", "net.listen", "flutter run builds for a device and opens a server", site.start, site.end)
    if name == "cmake" and any(
        re.match(r"-D\w*FLAGS\w*(:\w+)?=(.*\s)?-(B|fplugin|fuse-ld|specs|wrapper|Xclang|load)", word) for word in words
    ):
        walker.find("ask", "option.loads", "cmake hands on options that load or run other code", site.start, site.end)
    if name.startswith("buf ") and any(
        re.match(r"[\w-]+(\.[\w-]+)+/", word) and not word.endswith((".proto", ".yaml", ".bin")) for word in words
    ):
        walker.find("ask", "net.fetch", f"{name} fetches what it works on", site.start, site.end)
    if name == "locust" and "--headless" not in words:
        walker.find("ask", "net.listen", "locust opens a page for everybody (give it --headless)", site.start, site.end)
    _project(walker, site, name)
    project_operands(walker, site.argv[1:], name)
    elsewhere(walker, site, name, call)
    if _COMPILERS.fullmatch(name):
        _compiled(walker, call)
    return None


_COMPILERS = re.compile(r"((gcc|g\+\+|clang|clang\+\+)(-\d+)?|cc|c\+\+|rustc|go build|swiftc|nvcc|ghc|zig)")
_BUILDS_NOTHING = (
    "--version", "-v", "--help", "-h", "-E", "-M", "-MM", "-fsyntax-only", "-n", "-c", "-S", "--print", "--emit", "-###", "-dumpversion",
)  # fmt: skip


def _compiled(walker: Walker, call: Call) -> None:
    """A program that a compiler makes of the project's sources is the project's own, in scratch too."""
    target = call.value("-o")
    if target is None or not call.args or call.has(*_BUILDS_NOTHING) or not target.known:
        return
    if any(place.kind != "workspace" for source in call.args for place, _ in roles.places(walker, source)):
        return
    for place, fallback in roles.places(walker, target):
        if place.kind == "scratch" and not fallback:
            walker.files.put(place.path, Stream(project=True))


def _tox(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``tox``: ``exec`` runs what it is given; environments that publish are asked about."""
    from warmgate_policies.shell.judge import project_operands
    from warmgate_policies.shell.programs.wrappers import DEPLOYS

    texts = [arg.text for arg in site.argv]
    if "exec" in texts[:3] and "--" in texts:
        return run(walker, site, site.argv[texts.index("--") + 1 :])
    if texts[1:2] in (["devenv"], ["d"]):
        walker.find("ask", "install.network", "tox devenv installs software", site.start, site.end)
    for value in call.values("-e"):
        if DEPLOYS.search(value.text):
            walker.find("ask", "script.shared", f"tox -e {value.text[:40]} may change more than the workspace", value.start, value.end)
    _project(walker, site, name)
    project_operands(walker, site.argv[1:], name)
    elsewhere(walker, site, name, call)
    return None


_LOADS = re.compile(
    r"^-{1,2}(exec|toolexec|vettool|javaagent|agentlib|agentpath|fplugin|Xclang|load|wrapper|specs|"
    r"rulesdir|plugin(s|-dir|-path|-search-dir)?|resolve-plugins-relative-to|script-shell|"
    r"import-hook|loader|unsafe-perm|linker|fuse-ld|use-ld|ld-path|pager|editor|gdb|debugger|init-script|"
    r"I-script|serve|open|install-types|script|browser|pdb|trace|interactive|node-options|userconfig|globalconfig|init-module|"
    r"shell|viewer|node-gyp|pythonpath|testrunner)([=:]|$)|"
    r"^-(B|wrapper)[/.~]|^-Dexec|^-Xplugin|^-Xbootclasspath|^-fplugin"
)
"""Options by which tools load code or run programs of somebody else's choosing."""
_WRITES = re.compile(
    r"^-{1,2}(o|O|out|outDir|out-?dir|out-?file|output(-?(dir|file|path|directory|format))?|coverprofile|cpuprofile|memprofile|"
    r"cov-report|DCMAKE_INSTALL_PREFIX|blockprofile|mutexprofile|junit-?xml|reports?-?(dir|file|path)|log-?(file|path|dir)|basetemp|cache-?(dir|location|file|directory)|d|B|target-dir|"
    r"results?-?(dir|file|directory)|coverage-?(dir|directory)|te?mp-?(dir|directory)|artifacts?-?(dir|path)?|dest(ination)?|data-file|"
    r"tsBuildInfoFile)$"
)
"""Options whose value a tool writes: scratch is fine there."""


_DATA = re.compile(r"\.(out|log|txt|csv|tsv|prof|lcov|html|md|diff|patch|svg|png)$")


def elsewhere(walker: Walker, site: Site, name: str, call: Call | None = None) -> None:
    """What may not be said to the project's tools and scripts, whatever they make of it.

    What such a tool runs is the project's own to say. What it may not be told is to look elsewhere: options that load or run other code
    (but for those of ``call``, of which the pack says what they are), settings in scratch, files outside the workspace.
    """
    options = call.options if call is not None else []
    taken = {option for option, _, _ in options}
    roles_of = {(value.start, value.end): entry.role for _, value, entry in options if value is not None}
    before = ""
    for arg in site.argv[1:]:
        key, equals, value = arg.text.partition("=")
        if key not in taken and (_LOADS.match(arg.text) or re.search(r"(?i)wrapper|runner ?=|linker ?=|rustflags", arg.text)):
            walker.find("ask", "option.loads", f"{name} is told to load or run other code by {key[:40]}", arg.start, arg.end)
        attached = re.match(r"-[A-Za-z]([/~.].*)$", arg.text)
        option = arg.text[:2] if attached else key if equals else before
        text = attached.group(1) if attached else value if equals and arg.text.startswith("-") else arg.text
        role = roles_of.get((arg.start, arg.end))
        for part in _paths_in(text):
            _elsewhere(walker, site, replace(arg, text=part), name, option, "load" if text.startswith("@") else role)
        before = arg.text if arg.text.startswith("-") and not equals else ""


def _paths_in(text: str) -> list[str]:
    """What in an argument could be a path: each part of a list, without what stands behind ``::``."""
    if "://" in text or UNKNOWN in text or len(text) > 2000:
        return []
    text = re.sub(r"::.*$", "", text, flags=re.DOTALL)
    parts = [text, *re.split(r"[:,;=]", text)] if re.search(r"[:,;=]", text) else [text]
    return [re.sub(r"^/+", "/", part.removeprefix("@")) for part in parts if part and not part.startswith("-") and len(part) < 400]


def _elsewhere(walker: Walker, site: Site, arg: Arg, name: str, option: str, role: str | None) -> None:
    if not ("/" in arg.text or arg.text.startswith((".", "~"))):
        known = walker.files.at(_resolved(walker, arg.text))
        if known is not None and known.tags & {"net", "decoded"}:
            walker.find("deny", "flow.download-run", f"{name} runs what was just downloaded", arg.start, arg.end)
        return
    for place, fallback in roles.places(walker, arg):
        known = walker.files.at(place.path)
        if known is not None and known.tags & {"net", "decoded"}:
            walker.find("deny", "flow.download-run", f"{name} runs what was just downloaded", arg.start, arg.end)
        if "settings" in place or "githook" in place:
            changes = {"-w", "--write", "--fix", "-i", "--in-place", "--inplace"} & {other.text for other in site.argv[1:]}
            walker.find(
                "deny" if changes else "ask",
                "project.settings",
                f"{name} works on {roles.show(place.path)}, settings that run programs",
                arg.start,
                arg.end,
            )
        if (
            fallback
            or place.kind in ("workspace", "device", "system", "cache", "unknown")
            or re.fullmatch(r"/|/[^/\w].*|.*\s/.*", arg.text)
        ):
            continue
        if place.kind == "scratch":
            data = _DATA.search(arg.text) is not None and role not in ("load", "exec", "search", "workdir")
            if known is not None or role in ("output", "write", "append", "read", "dir", "list", "delete") or data:
                continue
            if role in (None, "text") and _WRITES.match(option):
                continue
        elif arg.text.startswith("/") and place.kind not in ("home", "kernel", "disk") and not _EXISTS.match(place.path):
            continue  # a pattern or a name with a slash in it, not a path of this machine
        walker.find("ask", "project.outside", f"{name} works on {roles.show(place.path)}, outside the workspace", arg.start, arg.end)


_EXISTS = re.compile(r"/(opt|srv|mnt|media|var|root|home|tmp|run|data|usr|etc|Users|private|app|host)(/|$)")


def _resolved(walker: Walker, text: str) -> str | None:
    from warmgate_policies.shell.paths import resolve

    return resolve(text, walker.state.cwd, walker.facts) if len(text) < 400 else None


_MANAGE_ASK = (
    "migrate",
    "flush",
    "loaddata",
    "createsuperuser",
    "changepassword",
    "shell",
    "dbshell",
    "reset_db",
    "collectstatic",
    "sqlflush",
    "runserver",
    "dumpdata",
    "clearsessions",
    "shell_plus",
    "sendtestemail",
    "db:migrate",
    "db:seed",
    "tinker",
    "db:wipe",
    "migrate:fresh",
    "key:generate",
)


def manage(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``manage.py``: what touches the database is asked about."""
    from warmgate_policies.shell.judge import project_operands

    _project(walker, site, name)
    words = [arg for arg in site.argv[1:] if not arg.text.startswith("-")]
    if words and words[0].text in _MANAGE_ASK:
        bound = [arg.text for arg in words[1:]]
        safe = (words[0].text == "runserver" and all(re.fullmatch(r"(127\.0\.0\.1:|localhost:)?\d+",
            text) for text in bound)) or (words[0].text == "migrate" and any(arg.text in ("--plan", "--check") for arg in site.argv)) or (
            words[0].text == "collectstatic" and any(arg.text == "--dry-run" for arg in site.argv))  # fmt: skip
        if not safe:
            walker.find(
                "ask", "db.mutate", f"{name} {words[0].text} may change the database or open a way in", words[0].start, words[0].end
            )
    project_operands(walker, site.argv[1:], name)
    elsewhere(walker, site, name)
    return NOTHING_KNOWN


def yarn(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``yarn``: even a version query loads plugins that a repository file names."""
    if not walker.facts.trusted_project or (len(site.argv) == 2 and site.argv[1].text in ("--version", "-v")) or (len(site.argv) < 2):
        walker.find("ask", "project.untrusted", f"{name} loads plugins that a file of the checkout names", site.start, site.end)
    return None


def npm_pkg(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``npm pkg set scripts.x=code``: what npm would run later is judged now, for a deny alone."""
    kept = len(walker.findings)
    for arg in site.argv[1:]:
        key, _, value = arg.text.partition("=")
        if key.startswith("scripts.") and value:
            walker.code(value, replace(arg, text=value))
    walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
    return NOTHING_KNOWN


def npm_pack(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``npm pack``: of a folder here; anything else comes from the registry."""
    for arg in call.args:
        if not arg.text.startswith((".", "/")):
            walker.find("ask", "net.fetch", f"{name} fetches {arg.text[:40]}", arg.start, arg.end)
    return NOTHING_KNOWN


def settings(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Settings of a package manager: tokens are among them."""
    for arg in call.args:
        if re.search(r"(?i)auth|token|passw|secret|registries|\bcert|\bkey", arg.text):
            walker.find("deny", "secret.print", f"{name} prints a token", arg.start, arg.end)
    return Stream(tags=frozenset({"env"}) if not call.args else frozenset())


def coverage_run(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``coverage run script`` and ``coverage run -m module``: what Python would run."""
    from warmgate_policies.shell.judge import project_operands

    for value in call.values("--rcfile"):
        roles.run_file(walker, value, name)  # it names plugins

    if call.has("-m", "--module"):
        from warmgate_policies.shell.programs.interpreters import run_module

        return run_module(walker, site, "python", call.args) if call.args else NOTHING_KNOWN
    _project(walker, site, name)
    for script in call.args[:1]:
        stream = roles.run_file(walker, script, name)
        if stream.text is not None:
            from warmgate_policies.shell.code import python as language

            language.judge(walker, stream.text, script, site)
    project_operands(walker, call.args[1:], name)
    return NOTHING_KNOWN


_GO_TOOLS = ("cover", "nm", "objdump", "vet", "addr2line", "buildid", "test2json", "covdata", "pprof", "fix", "dist", "asm", "compile")


def go_tool(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``go tool``: the readers of Go's own tools; ``pprof`` and ``trace`` may open a server."""
    from warmgate_policies.shell.judge import project_operands

    words = [arg.text for arg in call.args]
    if words and words[0] not in _GO_TOOLS:
        walker.find("ask", "program.subcommand", f"{name} {words[0][:40]} may run or serve", site.start, site.end)
    elif words[:1] == ["cover"] and any("-html" in word for word in words) and "-o" not in words:
        walker.find("ask", "run.interactive", f"{name} cover opens a browser (give it -o)", site.start, site.end)
    elif words[:1] == ["pprof"] and not any(
        re.match(r"-{1,2}(top|text|list|peek|raw|tags|traces|tree|dot|svg|png)\b", word) for word in words
    ):
        walker.find("ask", "run.interactive", f"{name} pprof waits for a person", site.start, site.end)
    for before, arg in zip(call.args, call.args[1:], strict=False):
        written = arg if before.text == "-o" else None
        if re.match(r"-{1,2}(o|output)=", arg.text):
            written = replace(arg, text=arg.text.partition("=")[2])
        if written is not None:
            roles.write(walker, written, name)
        if re.match(r"-{1,2}http\b", arg.text):
            walker.find("ask", "net.listen", f"{name} opens a server", arg.start, arg.end)
    project_operands(walker, call.args, name)
    elsewhere(walker, site, name)
    return None


def go_list(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``go list``: of a module at a version, the network is asked."""
    for arg in call.args:
        if "@" in arg.text:
            walker.find("ask", "net.fetch", f"{name} asks for {arg.text[:60]} in the network", arg.start, arg.end)
    for value in call.values("-modfile"):
        roles.run_file(walker, value, name)
    return Stream(tags=site.stdin.tags, shape="word")


def go_run(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``go run path``: the project's own; ``module@version`` comes from outside."""
    from warmgate_policies.shell.judge import project_operands

    _project(walker, site, name)
    for value in call.values("-modfile"):
        roles.run_file(walker, value, name)
    for arg in call.args[:1]:
        if "@" in arg.text or re.match(r"[\w-]+\.[a-z]+/", arg.text):
            walker.find("ask", "install.run", f"{name} fetches and runs {arg.text[:60]}", arg.start, arg.end)
        elif not arg.text.startswith("-"):
            roles.run_file(walker, arg, name)
    for value in call.values("-exec", "-toolexec", "-vettool"):
        from warmgate_policies.shell.judge import command_value

        command_value(walker, value, "go runs it for every file")
        walker.find("ask", "run.option", "go is told to run a program", value.start, value.end)
    project_operands(walker, call.args, name)
    return None

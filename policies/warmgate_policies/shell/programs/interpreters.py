"""Interpreters and the project's own code."""

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

_PURE_MODULES = ("json.tool", "this", "calendar", "site", "sysconfig", "platform", "ast", "dis", "tokenize", "tabnanny", "compileall",
    "py_compile", "zipfile", "tarfile", "venv", "doctest", "unittest",
                 "timeit", "cProfile", "trace", "pydoc", "gzip", "base64", "virtualenv", "quopri", "inspect", "pickletools", "symtable",
                 "keyword", "encodings", "pyclbr", "fileinput", "textwrap", "locale", "antigravity")  # fmt: skip


def python(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``python``: ``-c`` code, ``-m`` module, a script, or code on stdin."""
    from warmgate_policies.shell.code import python as language
    from warmgate_policies.shell.judge import project_operands

    args = site.argv[1:]
    at = 0
    while at < len(args) and args[at].text.startswith("-") and args[at].text != "-":
        text = args[at].text
        at += 1
        if text == "-c" or re.fullmatch(r"-[bBdEiIOPqsSuvx]*c", text):
            if at < len(args):
                language.judge(walker, args[at].text, args[at], site)
                project_operands(walker, args[at + 1 :], name)
            return Stream(tags=site.stdin.tags)
        if text == "-m" or re.fullmatch(r"-[bBdEiIOPqsSuvx]*m", text):
            return _module(walker, site, name, args[at:]) if at < len(args) else None
        if re.fullmatch(r"-m[\w.]+", text):
            return _module(walker, site, name, [replace(args[at - 1], text=text[2:]), *args[at:]])
        if text in ("-W", "-X"):
            at += 1
        elif text in ("-V", "--version", "-h", "--help", "-VV"):
            return NOTHING_KNOWN
        elif not re.fullmatch(r"-[bBdEIOPqsSuvx]+|-W.*|-X.*", text):
            walker.find(
                "ask", "option.unknown", f"{name} is given {text[:40]}, which no rule pack knows", args[at - 1].start, args[at - 1].end
            )
    if at >= len(args) or args[at].text in ("-", "/dev/stdin"):
        return _stdin(walker, site, name)
    script, rest = args[at], args[at + 1 :]
    stream = roles.run_file(walker, script, name)
    if stream.text is not None:
        language.judge(walker, stream.text, script, site)
    if script.text.rsplit("/", 1)[-1] == "manage.py":
        manage(walker, replace(site, argv=[script, *rest]), "manage.py", call)
    elif script.text.rsplit("/", 1)[-1] == "setup.py" and rest and rest[0].text in ("install", "develop", "upload", "register"):
        walker.find("ask", "install.local", f"setup.py {rest[0].text} changes more than the workspace", script.start, script.end)
    _project(walker, site, name)
    project_operands(walker, rest, name)
    return Stream(tags=site.stdin.tags)


def _stdin(walker: Walker, site: Site, name: str) -> Stream:
    from warmgate_policies.shell.code import python as language

    at = Arg("", site.start, site.end)
    if site.stdin.text is None and not site.stdin.tags and not site.stdin.project:
        walker.find("ask", "dynamic.code", f"{name} runs code that the text of the command does not fix", site.start, site.end)
        return NOTHING_KNOWN
    stream = roles.judge_code(walker, site.stdin, at, name)
    if stream.text is not None:
        language.judge(walker, stream.text, at, site)
    return NOTHING_KNOWN


def _module(walker: Walker, site: Site, name: str, args: list[Arg]) -> Stream | None:
    from warmgate_policies.shell.judge import project_operands

    module, rest = args[0], args[1:]
    if not module.known:
        walker.find("ask", "dynamic.program", f"{name} runs a module that the text does not fix", module.start, module.end)
        return NOTHING_KNOWN
    text = module.text
    if text in ("http.server", "pyftpdlib", "SimpleHTTPServer", "smtpd", "aiosmtpd"):
        from warmgate_policies.shell import network

        bound = next((rest[i + 1] for i, arg in enumerate(rest[:-1]) if arg.text in ("-b", "--bind")), None)
        bound = bound or next((replace(arg, text=arg.text.partition("=")[2]) for arg in rest if arg.text.startswith("--bind=")), None)
        if bound is None:
            walker.find("ask", "net.listen", f"{text} serves files beyond this machine", module.start, module.end)
        else:
            network.bind(walker, bound, text)
        return NOTHING_KNOWN
    if text == "ensurepip":
        walker.find("ask", "install.network", "installs software", module.start, module.end)
        return NOTHING_KNOWN
    if text == "pdb":
        walker.find("ask", "run.interactive", "starts a debugger", module.start, module.end)
    if text == "base64" and any(arg.text in ("-d", "-u") for arg in rest):
        return Stream(tags=site.stdin.tags | {"decoded"})
    if text == "json.tool":
        files = [arg for arg in rest if not arg.text.startswith("-")]
        if files:
            roles.read(walker, files[0], name)
        if len(files) > 1:
            roles.write(walker, files[1], name)
        return Stream(tags=site.stdin.tags)
    if text in ("venv", "virtualenv"):
        for arg in rest:
            if not arg.text.startswith("-"):
                roles.write(walker, arg, name)
        return NOTHING_KNOWN
    if (
        text
        in ("cProfile", "trace", "timeit", "coverage", "pydoc", "doctest", "py_compile", "compileall", "unittest", "tarfile", "zipfile")
        or text in _PURE_MODULES
    ):
        if text == "timeit":
            from warmgate_policies.shell.code import python as language

            for arg in rest:
                if not arg.text.startswith("-"):
                    language.judge(walker, arg.text, arg, site)
        if text != "coverage":
            _project(walker, site, name)
            project_operands(walker, rest, name)
            return Stream(tags=site.stdin.tags)
    program = text.split(".")[0]
    program = program if program in walker.rules.programs else program.replace("_", "-")
    if program in walker.rules.programs and program not in ("test", "code", "time", "select", "read", "echo", "file", "which"):
        return run(walker, site, [replace(module, text=program), *rest])
    if re.search(r"(?i)download|install|upload|publish|deploy", " ".join([text, *(arg.text for arg in rest[:2])])):
        walker.find("ask", "script.shared", f"{name} -m {text} may fetch or change more than the workspace", module.start, module.end)
    _project(walker, site, f"{name} -m {text}")
    project_operands(walker, rest, name)
    elsewhere(walker, replace(site, argv=[module, *rest]), name)
    return Stream(tags=site.stdin.tags)


def _language(walker: Walker, site: Site, name: str, call: Call, code: tuple[str, ...], language: str) -> Stream | None:
    """Interpreters whose inline code is judged by words: node, perl, ruby, php."""
    from warmgate_policies.shell.code import script
    from warmgate_policies.shell.judge import project_operands

    inline = call.values(*code)
    for value in inline:
        script.judge(walker, value.text, value, language, site)
    files = list(call.args)
    if not inline:
        if not files:
            if call.options and not site.stdin.tags and site.stdin.text is None:
                return NOTHING_KNOWN
            if site.stdin.text is not None:
                roles.judge_code(walker, site.stdin, Arg("", site.start, site.end), name)
                script.judge(walker, site.stdin.text, Arg("", site.start, site.end), language, site)
            else:
                roles.judge_code(walker, site.stdin, Arg("", site.start, site.end), name)
            return NOTHING_KNOWN
        stream = roles.judge_code(walker, site.stdin, files[0], name) if files[0].text == "-" else roles.run_file(walker, files[0], name)
        if stream.text is not None:
            script.judge(walker, stream.text, files[0], language, site)
        _project(walker, site, name)
        project_operands(walker, files[1:], name)
    return Stream(tags=site.stdin.tags)


def node(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``node``."""
    for value in call.values("-r", "--require", "--import", "--loader"):
        if ":" in value.text:
            walker.find("ask", "option.loads", f"{name} is told to load {value.text[:40]}", value.start, value.end)
    if call.has("--test", "--version", "-v", "--help", "--check", "-c") and not call.has("-e", "--eval", "-p", "--print"):
        _project(walker, site, name)
        for arg in call.args:
            roles.run_file(walker, arg, name)
        return NOTHING_KNOWN
    return _language(walker, site, name, call, ("-e", "--eval", "-p", "--print", "-pe"), "js")


def perl(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``perl``: with ``-i`` its files are written, otherwise read."""
    out = None
    for value in call.values("-M", "-m"):
        if not re.fullmatch(
            r"(strict|warnings|utf8|List::Util|POSIX|JSON::PP|Data::Dumper|Time::Local|Time::HiRes|bigint|Encode)(=[\w,]*)?", value.text
        ):
            walker.find("ask", "code.perl", f"{name} loads {value.text[:30]}", value.start, value.end)
    if call.has("-e", "-E"):
        from warmgate_policies.shell.code import script

        for value in call.values("-e", "-E"):
            script.judge(walker, value.text, value, "perl", site)
        tags = site.stdin.tags
        for arg in call.args:
            if call.has("-i"):
                roles.write(walker, arg, name, append=True)
            elif call.has("-n", "-p"):
                tags |= roles.read(walker, arg, name).tags
            if re.search(r"[|<>]", arg.text):
                walker.find("deny", "conceal.option", f"{name} opens a file name as a command", arg.start, arg.end)
        out = Stream(tags=tags)
    return out or _language(walker, site, name, call, (), "perl")


def ruby(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ruby``."""
    if call.has("-i"):
        for arg in call.args:
            roles.write(walker, arg, name, append=True)
    return _language(walker, site, name, call, ("-e",), "ruby")


def php(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``php``: ``-S`` serves."""
    from warmgate_policies.shell import network

    for value in call.values("-S"):
        network.bind(walker, value, name)
    if call.has("-S", "-v", "-m", "-i", "-l", "--version", "-t"):
        for value in call.args:
            roles.run_file(walker, value, name)
        return NOTHING_KNOWN
    return _language(walker, site, name, call, ("-r",), "php")


def vim(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Editors: start-up commands are code."""
    starts = [
        arg
        for before, arg in zip(site.argv, site.argv[1:], strict=False)
        if before.text in ("-c", "--cmd", "-S", "-u", "-e", "--eval", "-es")
    ]
    for arg in [*starts, *[a for a in site.argv[1:] if a.text.startswith(("+", "-c", "--cmd="))]]:
        if re.search(r"!|system\(|shell|execute|call\b|py(thon)?3?\b|lua|perl|ruby", arg.text):
            from warmgate_policies.shell.judge import command_value

            command_value(walker, replace(arg, text=re.sub(r"^\+?:?!?", "", arg.text)), f"{name} runs it at start")
            walker.find("deny", "conceal.option", f"{name} is told to run a program at start", arg.start, arg.end)
    walker.find("ask", "run.interactive", f"opens {name}, an editor", site.start, site.end)
    return NOTHING_KNOWN


def less(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Pagers read; ``+!command`` runs."""
    for arg in site.argv[1:]:
        if re.match(r"\+\+?[!|s:v]|\+\+?&?.*!", arg.text) and "!" in arg.text:
            walker.code(arg.text.partition("!")[2], arg)
            walker.find("deny", "conceal.option", f"{name} is told to run a program at start", arg.start, arg.end)
    return None


def busybox(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``busybox applet …`` is the applet."""
    return run(walker, site, site.argv[1:]) if len(site.argv) > 1 else NOTHING_KNOWN


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
    _project(walker, site, name)
    project_operands(walker, site.argv[1:], name)
    elsewhere(walker, site, name, taken={option for option, _, _ in call.options})
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
_WRITES = re.compile(r"^-{1,2}(o|O|out\w*|output[\w-]*|outDir|outfile|coverprofile|cpuprofile|memprofile|blockprofile|"
    r"mutexprofile|trace|junit-?xml|cov-report|report[\w-]*|log[\w-]*|basetemp|cache[\w-]*|d|B|target-dir|"
    r"result[\w-]*|"
                     r"html|xml|json|coverage[\w-]*|temp[\w-]*|tmp[\w-]*|file|artifacts?[\w-]*|dest[\w-]*|data-file|db|"
                         r"tsBuildInfoFile)$")  # fmt: skip
"""Options whose value a tool writes: scratch is fine there."""


_DATA = re.compile(r"\.(out|log|txt|csv|tsv|prof|lcov|xml|html|info|md)$")


def elsewhere(walker: Walker, site: Site, name: str, *, taken: set[str] | frozenset[str] = frozenset()) -> None:
    """What may not be said to the project's tools and scripts, whatever they make of it.

    What such a tool runs is the project's own to say. What it may not be told is to look elsewhere: options that load or run other code
    (but for ``taken`` ones, of which the pack says what they are), settings in scratch, files outside the workspace.
    """
    before = ""
    for arg in site.argv[1:]:
        key, equals, value = arg.text.partition("=")
        if key not in taken and (_LOADS.match(arg.text) or re.search(r"(?i)wrapper|runner ?=|linker ?=|rustflags", arg.text)):
            walker.find("ask", "option.loads", f"{name} is told to load or run other code by {key[:40]}", arg.start, arg.end)
        if key == "--host" and not equals:
            before = arg.text
            continue
        text = (value if equals and "/" not in key else arg.text).removeprefix("@")
        found = re.match(r"-[A-Za-z]([/~].*)$", text)
        option = key if equals else before
        if found:
            option, text = text[:2], found.group(1)
        if text.startswith(("/", "~/", "..")) and not text.startswith("//") and UNKNOWN not in text and not re.search(r"[\s:]", text):
            for place, fallback in roles.places(walker, replace(arg, text=text)):
                if fallback or place.kind in ("workspace", "device", "system", "cache"):
                    continue
                known = walker.files.at(place.path)
                own = known is not None and not known.tags & {"net", "decoded"}
                if place.kind == "scratch" and (own or _DATA.search(text) or _WRITES.match(option)):
                    continue
                if known is not None and known.tags & {"net", "decoded"}:
                    walker.find("deny", "flow.download-run", f"{name} runs what was just downloaded", arg.start, arg.end)
                walker.find(
                    "ask", "project.outside", f"{name} works on {roles.show(place.path)}, outside the workspace", arg.start, arg.end
                )
        elif text.startswith("-") is False and UNKNOWN not in text:
            known = walker.files.at(_resolved(walker, text))
            if known is not None and known.tags & {"net", "decoded"}:
                walker.find("deny", "flow.download-run", f"{name} runs what was just downloaded", arg.start, arg.end)
        before = arg.text


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


def coverage_run(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``coverage run script`` and ``coverage run -m module``: what Python would run."""
    from warmgate_policies.shell.judge import project_operands

    if call.has("-m", "--module"):
        return _module(walker, site, "python", call.args) if call.args else NOTHING_KNOWN
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


def go_run(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``go run path``: the project's own; ``module@version`` comes from outside."""
    from warmgate_policies.shell.judge import project_operands

    _project(walker, site, name)
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

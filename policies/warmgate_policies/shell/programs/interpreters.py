"""Interpreters: code in an option, a module, a file or on stdin; editors and pagers, which take code too."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.programs.project_tools import elsewhere, manage
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
            return run_module(walker, site, name, args[at:]) if at < len(args) else None
        if re.fullmatch(r"-m[\w.]+", text):
            return run_module(walker, site, name, [replace(args[at - 1], text=text[2:]), *args[at:]])
        cached = re.fullmatch(r"-X\s*pycache_prefix=(.*)", text + (args[at].text if text == "-X" and at < len(args) else ""), re.DOTALL)
        if cached:
            roles.write(walker, replace(args[at - 1], text=cached.group(1)), name)
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


def run_module(walker: Walker, site: Site, name: str, args: list[Arg]) -> Stream | None:
    """``python -m module …``."""
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
        for before, arg in zip([module, *rest], rest, strict=False):
            if before.text in ("-d", "--directory"):
                for place, _ in roles.places(walker, arg):
                    if place.kind not in ("workspace", "scratch"):
                        walker.find("ask", "read.outside", f"{text} serves {roles.show(place.path)}", arg.start, arg.end)
        if bound is None:
            walker.find("ask", "net.listen", f"{text} serves files beyond this machine", module.start, module.end)
        else:
            network.bind(walker, bound, text)
        return NOTHING_KNOWN
    if text == "ensurepip":
        walker.find("ask", "install.network", "installs software", module.start, module.end)
        return NOTHING_KNOWN
    if text in (
        "telnetlib",
        "ftplib",
        "webbrowser",
        "antigravity",
        "idlelib",
        "code",
        "xmlrpc.server",
        "turtledemo",
        "ptpython",
        "IPython",
        "awscli",
    ):
        walker.find("ask", "net.contact", f"{text} reaches outside or waits for a person", module.start, module.end)
        project_operands(walker, rest, name)
        return NOTHING_KNOWN
    if text == "pydoc" and any(re.match(r"-[pnb]", arg.text) for arg in rest):
        walker.find("ask", "net.listen", f"{text} opens a server", module.start, module.end)
    if text in ("notebook", "jupyterlab", "tensorboard", "streamlit") or re.search(r"(^|\.)(api_?server|server|serve)$", text):
        walker.find("ask", "net.listen", f"{text} opens a server", module.start, module.end)
    if text == "runpy":
        walker.find("ask", "dynamic.program", f"{name} -m runpy runs another module", module.start, module.end)
    if text in ("zipfile", "tarfile"):
        _packed(walker, name, rest)
        return Stream(tags=site.stdin.tags)
    if text == "django":
        return manage(walker, replace(site, argv=[replace(module, text="manage.py"), *rest]), "django-admin", Call())
    if text in (
        "cProfile",
        "profile",
        "trace",
        "doctest",
        "unittest",
        "compileall",
        "py_compile",
        "tabnanny",
        "symtable",
        "pickletools",
        "pyclbr",
        "ast",
        "dis",
        "tokenize",
        "gzip",
        "inspect",
    ):
        for before, arg in zip([module, *rest], rest, strict=False):
            value = arg.text.partition("=")[2] if arg.text.startswith("-") else arg.text
            if before.text in ("-o", "--output", "--outfile", "-f", "--file", "-C", "--coverdir"):
                roles.write(walker, arg, name)
            elif value and "/" in value:
                elsewhere(walker, replace(site, argv=[module, replace(arg, text=value)]), name)
    if text == "venv" and any(arg.text == "--upgrade-deps" for arg in rest):
        walker.find("ask", "install.network", f"{text} --upgrade-deps installs software", module.start, module.end)
    if text == "build" and not any(arg.text in ("-n", "--no-isolation", "--help", "-h") for arg in rest):
        walker.find("ask", "install.network", "build fetches what the build needs (give it --no-isolation)", module.start, module.end)
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
    if re.search(
        r"(?i)(^|[\W_])(download\w*|install|upload|publish|deploy|login|push|pull|fetch|sync|update|upgrade|migrate|check|audit)($|[\W_])",
        " ".join([text, *(arg.text for arg in rest[:2])]),
    ):
        walker.find("ask", "script.shared", f"{name} -m {text} may fetch or change more than the workspace", module.start, module.end)
    _project(walker, site, f"{name} -m {text}")
    project_operands(walker, rest, name)
    elsewhere(walker, replace(site, argv=[module, *rest]), name)
    return Stream(tags=site.stdin.tags)


def _packed(walker: Walker, name: str, rest: list[Arg]) -> None:
    """``python -m zipfile`` and ``tarfile``: what is made and unpacked is written, the rest is read."""
    files = [arg for arg in rest if not arg.text.startswith("-")]
    options = {arg.text for arg in rest if arg.text.startswith("-")}
    making = options & {"-c", "--create"}
    for index, arg in enumerate(files):
        if (making and index == 0) or (options & {"-e", "--extract"} and index == 1):
            roles.write(walker, arg, name)
        else:
            roles.read(walker, arg, name)
    for option in sorted(options - {"-c", "--create", "-e", "--extract", "-l", "--list", "-t", "--test", "-v", "--verbose"}):
        walker.find("ask", "option.unknown", f"{name} is given {option[:40]}, which no rule pack knows", rest[0].start, rest[-1].end)


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
    elsewhere(walker, replace(site, argv=[site.argv[0], *(arg for arg in site.argv[1:] if arg.text.startswith("-"))]), name, call)
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
    for value in call.values("-r"):
        if value.text.startswith(("/", "~", ".")):
            roles.run_file(walker, value, name)
        elif not re.fullmatch(
            r"(json|yaml|set|time|date|csv|pp|digest|bigdecimal|erb|securerandom|stringio|strscan|rubygems|bundler/setup|minitest(/autorun)?|test/unit|\w+)",
            value.text,
        ):
            walker.find("ask", "code.ruby", f"{name} loads {value.text[:30]}", value.start, value.end)
        elif value.text in ("socket", "open3", "pty", "fileutils", "net", "fiddle", "drb", "irb", "webrick", "win32ole"):
            walker.find("ask", "code.ruby", f"{name} loads {value.text[:30]}, which can reach outside", value.start, value.end)
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
    from warmgate_policies.shell.options import take_apart

    for arg in take_apart(site.argv[1:], walker.rules.programs[name]).surplus:
        if arg.text != "-" and not arg.text.startswith("+"):
            roles.read(walker, arg, name)
    for arg in site.argv[1:]:
        if re.match(r"\+\+?[!|s:v]|\+\+?&?.*!", arg.text) and "!" in arg.text:
            walker.code(arg.text.partition("!")[2], arg)
            walker.find("deny", "conceal.option", f"{name} is told to run a program at start", arg.start, arg.end)
        elif re.match(r"\+\+?[^/\d]*[|!]", arg.text):
            walker.find("deny", "conceal.option", f"{name} is told to run a program at start", arg.start, arg.end)
    return None


def busybox(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``busybox applet …`` is the applet."""
    return run(walker, site, site.argv[1:]) if len(site.argv) > 1 else NOTHING_KNOWN

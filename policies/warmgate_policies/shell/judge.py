"""One simple command judged: assignments, the program, its options and operands by the packs, its effects; gives what it prints."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from warmgate_policies.shell import assignments, flow, roles
from warmgate_policies.shell.findings import EMPTY, NOTHING_KNOWN, UNKNOWN, Arg, Capped, Site, Stream
from warmgate_policies.shell.options import Call, take_apart
from warmgate_policies.shell.paths import classify, inside
from warmgate_policies.shell.rules import Option, Program, known_value
from warmgate_policies.shell.written import Step

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

TOOL_FOLDERS = re.compile(
    r"(^|/)(node_modules/\.bin|bin(?=/(?:rails|rake|rspec|bundle|phpunit|rubocop|brakeman|console)$)|"
    r"\.?venv/bin|env/bin|vendor/bin|\.tox/[^/]+/bin|\.nox/[^/]+/bin)/[^/]+$"
)
SYSTEM_FOLDERS = re.compile(r"^/(usr/(local/)?)?s?bin/[^/]+$")
WRAPPER_SCRIPTS = ("gradlew", "mvnw", "manage.py", "artisan")


def judge(walker: Walker, site: Site) -> Stream:
    """Judge a site; findings go to the walker."""
    if not site.argv:
        for variable, value in site.env:
            _plain_assignment(walker, variable, value)
        return EMPTY
    first = site.argv[0]
    name = program_name(walker, site, first)
    for variable, value in site.env:
        assignments.check(walker, variable, value, program=name or "?", exported=True)
    if name is None:
        _tail(walker, site)
        flow.unknown_program(walker, site)
        return NOTHING_KNOWN
    return run_named(walker, site, name)


def _plain_assignment(walker: Walker, name: str, value: Arg) -> None:
    """A variable of this shell; it matters to others only where the environment already has it."""
    kind = assignments.kind_of(name, walker.rules)
    if kind in ("loader", "path", "ifs", "history", "program") or name in walker.state.exported:
        assignments.check(walker, name, value, program=None, exported=name in walker.state.exported)
        if kind == "program" or kind == "ifs":
            return


def program_name(walker: Walker, site: Site, first: Arg) -> str | None:
    """The program's name for the packs. None where it was judged here: unknown, concealed, or a file that is run."""
    text = first.text
    if first.spelled is not None:
        walker.find("deny", "conceal.program", f"spells a program's name by {first.spelled}", first.start, first.end)
    if first.glob:
        walker.find("deny", "conceal.program", "lets a pattern choose the program", first.start, first.end)
        return None
    if not text.isascii() or re.search(r"[\x01-\x1f]", text):
        walker.find("deny", "conceal.unicode", "names a program with look-alike or control characters", first.start, first.end)
        return None
    if UNKNOWN in text:
        hidden = first.computed and not walker.default_ifs
        verdict = "deny" if first.tags & {"net", "decoded"} or hidden else "ask"
        walker.find(
            "deny" if verdict == "deny" else "ask",
            "dynamic.program",
            "runs a program that the text of the command does not fix",
            first.start,
            first.end,
        )
        return None
    if text in walker.state.functions:
        return text
    if re.search(r"\s", text):
        walker.find("ask", "dynamic.program", "runs a program whose name holds blanks", first.start, first.end)
    if "/" not in text:
        return text
    if "://" in text:
        walker.find("ask", "install.run", f"runs what it fetches from {text[:60]}", first.start, first.end)
    if SYSTEM_FOLDERS.match(text):
        return text.rsplit("/", 1)[1]
    base = text.rsplit("/", 1)[1]
    place = classify(text, walker.state.cwd, walker.facts)
    if (
        place.kind == "workspace"
        and walker.files.at(place.path) is None
        and (TOOL_FOLDERS.search(place.path) or base in WRAPPER_SCRIPTS)
        and base in walker.rules.programs
    ):
        return base
    if place.kind == "workspace" and base in walker.rules.programs and base not in WRAPPER_SCRIPTS and walker.files.at(place.path) is None:
        walker.find(
            "ask", "opaque.lookalike", f"runs {text}, a project file that shares the name of another program", first.start, first.end
        )
        _tail_of(walker, site, base)
        return None
    stream = roles.run_file(walker, first, "the command")
    if stream.text is not None:
        run_text(walker, stream.text, first, site)
    project_operands(walker, site.argv[1:], base)
    return None


def run_text(walker: Walker, text: str, arg: Arg, site: Site) -> None:
    """A file whose content the command itself wrote is run: judge the content by its first line."""
    line = text.split("\n", 1)[0]
    if line.startswith("#!") and re.search(r"python", line):
        from warmgate_policies.shell.code import python

        python.judge(walker, text, arg)
    elif line.startswith("#!") and not re.search(r"\b(sh|bash|dash|zsh|ksh)\b", line):
        walker.find("ask", "opaque.script", "runs a script in a language that is not judged", arg.start, arg.end)
    else:
        walker.code(text, arg, site.sink, tuple(site.argv[1:]))


def _tail(walker: Walker, site: Site) -> None:
    if site.argv[0].text == UNKNOWN or UNKNOWN in site.argv[0].text:
        project_operands(walker, site.argv[1:], "the program")


def _tail_of(walker: Walker, site: Site, base: str) -> None:
    """The rest of a look-alike is still worth a deny."""
    kept = len(walker.findings)
    run_named(walker, replace(site, argv=[replace(site.argv[0], text=base), *site.argv[1:]]), base)
    walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]


def run_named(walker: Walker, site: Site, name: str) -> Stream:
    """A program by its name."""
    if name in walker.state.functions:
        return walker.call_function(name, site)
    program = walker.rules.programs.get(name)
    walker.programs.append(name)
    start, end = walker.base or (site.start, site.end)
    walker.trace.append(Step("program", name, walker.state.cwd, site=site, start=start, end=end))
    if len(walker.programs) > 5000:
        raise Capped("the command runs too many programs")
    if program is None:
        return unknown(walker, site, name)
    if not walker.facts.trusted_project and program.handler in ("project", "python", "node", "shell", "yarn"):
        walker.find(
            "ask", "project.untrusted", f"{name} may run code or settings of a checkout nobody has trusted yet", site.start, site.end
        )
    return run_program(walker, site, program, name, site.argv[1:])


def unknown(walker: Walker, site: Site, name: str) -> Stream:
    """No pack knows it: at least ask; what it is handed may still be worth a deny."""
    walker.find("ask", "program.unknown", f"runs {name}, a program that no rule pack knows", site.argv[0].start, site.argv[0].end)
    kept = len(walker.findings)
    for index, arg in enumerate(site.argv[1:], 1):
        base = arg.text.rsplit("/", 1)[-1]
        if arg.known and base in walker.rules.programs and walker.depth < 6:
            walker.depth += 1
            run_named(walker, replace(site, argv=[replace(arg, text=base), *site.argv[index + 1 :]]), base)
            walker.depth -= 1
            break
    for arg in site.argv[1:]:
        if arg.text and not arg.text.startswith("-"):
            roles.read(walker, arg, name)
    walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
    flow.unknown_program(walker, site)
    return Stream(tags=site.stdin.tags)


def run_program(walker: Walker, site: Site, program: Program, name: str, args: list[Arg], above: Program | None = None) -> Stream:
    """Options, operands and effects by the packs, then the handler."""
    from warmgate_policies.shell.programs import HANDLERS

    if program.folder and (program.style == "raw" or not program.subs):
        works_here(walker, site, name, args)
    if program.style == "raw":
        _conceals(walker, args)
        call = Call(operands=[("text", arg) for arg in args])
        tags: frozenset[str] = frozenset(program.tags)
        if program.options or program.closed:
            given = take_apart(args, program)
            _unknown_options(walker, given, name)
            tags |= _known_options(walker, site, given, name)
        if program.effect and not (_asks_itself(args) and walker.rules.effects[program.effect].verdict == "ask"):
            tags |= effect(walker, program.effect, name, site)
    elif program.subs:
        return _sub(walker, site, program, name, args, above)
    else:
        call = take_apart(args, _inherited(program, above))
        tags = _apply(walker, site, program, name, call) | frozenset(program.tags)
    out = Stream(tags=tags | site.stdin.tags, shape=program.prints if program.prints not in ("same", "tracked", None) else None)
    if program.prints == "same" and not any(role == "read" for role, _ in call.operands):
        out = replace(out, shape=site.stdin.shape, pattern=site.stdin.pattern)
    elif program.prints == "tracked":
        out = replace(out, shape="path", pattern="**/tracked-file")
    if program.handler is not None:
        result = HANDLERS[program.handler](walker, site, name, call)
        if result is not None:
            out = result
    return out


_ABOUT_ITSELF = {"--version", "-V", "--help", "-h", "version", "help", "-version", "-help"}


def _asks_itself(args: list[Arg]) -> bool:
    """``--version`` or ``--help`` alone, plainly written."""
    return len(args) == 1 and args[0].text in ("--version", "--help") and args[0].known and args[0].spelled is None


def works_here(walker: Walker, site: Site, name: str, args: list[Arg] | None = None) -> None:
    """A program that reads settings of the current folder, runs its code or writes there: free in the workspace alone."""
    if args and all(arg.text in _ABOUT_ITSELF for arg in args):
        return
    cwd = walker.state.cwd
    if cwd is None:
        walker.find("ask", "opaque.script", f"{name} works in a folder that the text of the command does not fix", site.start, site.end)
    elif not inside(cwd, walker.facts.workspace):
        walker.find("ask", "opaque.script", f"{name} works in {roles.show(cwd)}, outside the workspace", site.start, site.end)


@cache
def _merge_cache() -> dict[int, Program]:
    return {}


def _inherited(program: Program, above: Program | None) -> Program:
    if above is None or not above.inherit or not above.options:
        return program
    key = id(program)
    cache_ = _merge_cache()
    found = cache_.get(key)
    if found is None:
        found = program.model_copy(update={"options": above.options + " " + program.options})
        found.forget()
        cache_[key] = found
    return found


def _sub(walker: Walker, site: Site, program: Program, name: str, args: list[Arg], above: Program | None) -> Stream:
    """The subcommand: options in front of it are the program's own."""
    front = program.model_copy(
        update={"style": "posix" if program.style != "long" else "long", "operands": "text*", "subs": {}, "bare": None}
    )
    if above is not None and above.inherit:
        front.options = above.options + " " + program.options
    front.forget()
    split = _first_operand(args, front)
    call = take_apart(args[:split], front)
    _apply(walker, site, front, name, call)
    if split >= len(args):
        if program.folder:
            works_here(walker, site, name, args)
        if program.handler is not None:
            from warmgate_policies.shell.programs import HANDLERS

            HANDLERS[program.handler](walker, site, name, call)
        if program.bare is not None:
            return Stream(tags=effect(walker, program.bare, name, site) | site.stdin.tags)
        return Stream(tags=site.stdin.tags)
    word = args[split]
    sub = program.subs.get(word.text) if word.known else None
    if word.spelled is not None and word.spelled != "several variables":
        walker.find("deny", "conceal.option", f"spells a subcommand by {word.spelled}", word.start, word.end)
    if program.handler is not None:
        from warmgate_policies.shell.programs import HANDLERS

        done = HANDLERS[program.handler](walker, replace(site, argv=[site.argv[0], *args[split:]]), name, call)
        if done is not None and sub is None:
            return done
    if sub is None:
        other = program.subs.get("*")
        if other is not None:
            return run_program(walker, site, other, name, args[split:], program)
        shown = word.text.replace(UNKNOWN, "…")
        walker.find("ask", "program.subcommand", f"runs {name} {shown}, which no rule pack knows", word.start, word.end)
        project_operands(walker, args[split + 1 :], name, deny_only=True)
        return Stream(tags=site.stdin.tags)
    if program.effect:
        effect(walker, program.effect, name, site)
    parent = program
    if above is not None and above.inherit and program.inherit:
        parent = front
    return run_program(walker, site, sub, f"{name} {word.text}", args[split + 1 :], parent)


def _first_operand(args: list[Arg], front: Program) -> int:
    at = 0
    while at < len(args):
        text = args[at].text
        if text == "--":
            return at + 1
        if not text.startswith("-") or text == "-":
            return at
        option = front.table.get(text)
        at += 2 if option is not None and option.role is not None and not option.attached else 1
    return at


def effect(walker: Walker, name: str, who: str, site: Site) -> frozenset[str]:
    """What an effect leads to; returns the origins it gives the output."""
    found = walker.rules.effects[name]
    if found.verdict != "allow":
        walker.find(found.verdict, name, f"{who} {found.reason}", site.start, site.end)
    return frozenset(found.tags)


def _conceals(walker: Walker, args: list[Arg]) -> None:
    for arg in args:
        if arg.spelled == "the separator variable":
            walker.find("deny", "conceal.separator", "builds arguments out of the separator variable", arg.start, arg.end)
        elif (
            arg.text.startswith("-")
            and not re.search(r"\s", arg.text)
            and arg.spelled in ("a backslash inside it", "quotes inside it", "an escaped spelling")
        ):
            option = arg.text.partition("=")[0] if arg.text.startswith("--") else arg.text[:2]
            if len(arg.head) < len(option) and re.fullmatch(r"-{1,2}[A-Za-z][\w-]*", option):
                walker.find("deny", "conceal.option", f"spells an option by {arg.spelled}", arg.start, arg.end)


def _apply(walker: Walker, site: Site, program: Program, name: str, call: Call) -> frozenset[str]:
    """Roles and effects of everything given."""
    tags: frozenset[str] = frozenset[str]()
    _conceals(walker, [*site.argv[1:]])
    _unknown_options(walker, call, name)
    for arg in call.surplus:
        walker.find(
            "ask",
            "operand.surplus",
            f"{name} is given {arg.text.replace(UNKNOWN, '…')[:60]}, which no rule pack expects",
            arg.start,
            arg.end,
        )
        roles_deny(walker, arg, name)
    tags |= _known_options(walker, site, call, name)
    for kind, arg in call.operands:
        tags |= role(walker, site, kind, arg, name)
    if program.effect is not None and not (program.unless and call.has(*program.unless.split())):
        tags |= effect(walker, program.effect, name, site)
    if program.bare is not None and not call.operands and not call.rest:
        tags |= effect(walker, program.bare, name, site)
    return tags


def _unknown_options(walker: Walker, call: Call, name: str) -> None:
    for arg in call.unknown:
        walker.find(
            "ask",
            "option.unknown",
            f"{name} is given {arg.text.replace(UNKNOWN, '…')[:60]}, an option that no rule pack knows",
            arg.start,
            arg.end,
        )
        if "=" in arg.text:
            roles_deny(walker, replace(arg, text=arg.text.partition("=")[2]), name)


def _known_options(walker: Walker, site: Site, call: Call, name: str) -> frozenset[str]:
    """Effects and values of the options given; returns the origins they give the output."""
    tags: frozenset[str] = frozenset[str]()
    for option, value, entry in call.options:
        if entry.effect is not None:
            tags |= effect(walker, entry.effect, f"{name} {option}", site)
        if value is not None and entry.role is not None:
            if not known_value(entry, value.text) or (entry.only is not None and UNKNOWN in value.text and value.shape is None):
                shown = f"{option.rstrip('*')} {value.text.replace(UNKNOWN, '…')[:60]}"
                walker.find("ask", "option.value", f"{name} is given {shown}, a value that no rule pack knows", value.start, value.end)
            tags |= role(walker, site, entry.role, value, name)
    return tags


def roles_deny(walker: Walker, arg: Arg, name: str) -> None:
    """What no rule expects is looked at as a file that is read, for a deny alone."""
    kept = len(walker.findings)
    if arg.text:
        roles.read(walker, arg, name)
    walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]


def role(walker: Walker, site: Site, kind: str, arg: Arg, name: str) -> frozenset[str]:
    """Judge one argument by its role; returns origins that flow into the output."""
    from warmgate_policies.shell import network
    from warmgate_policies.shell.code import run_code

    if arg.spelled == "the separator variable":
        walker.find("deny", "conceal.separator", "builds arguments out of the separator variable", arg.start, arg.end)
    if (
        kind in ("read", "load", "exec", "list", "workdir")
        and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", arg.text)
        and not arg.text.startswith("file:")
    ):
        return network.contact(walker, arg, name)
    if kind == "read" or kind == "load":
        if arg.text == "-":
            return site.stdin.tags
        return roles.read(walker, arg, name).tags
    if kind == "workdir":
        for place, fallback in roles.places(walker, arg):
            if place.kind != "workspace" and not fallback:
                walker.find("ask", "opaque.script", f"{name} works in {roles.show(place.path)}, outside the workspace", arg.start, arg.end)
        return frozenset[str]()
    if kind in ("list", "dir"):
        return roles.read(walker, arg, name, listing=True).tags if arg.text != "-" else frozenset[str]()
    if kind in ("write", "append", "create", "outdir"):
        if arg.text != "-":
            roles.write(walker, arg, name, append=kind == "append", create_only=kind == "create")
            if kind != "create":
                roles.store(walker, arg, Stream(tags=site.stdin.tags), append=kind == "append")
        return frozenset[str]()
    if kind == "output":  # built by the project's own tools out of the project
        roles.write(walker, arg, name)
        for place, _ in roles.places(walker, arg):
            if place.kind == "workspace" and UNKNOWN not in place.path:
                old = walker.files.at(place.path)
                walker.files.put(place.path, Stream(tags=old.tags if old is not None else frozenset[str](), project=True))
        return frozenset[str]()
    if kind == "search":
        for part in arg.text.split(":"):
            for place, fallback in roles.places(walker, replace(arg, text=part or ".")):
                if place.kind not in ("workspace", "system") and not fallback:
                    walker.find("ask", "opaque.script", f"{name} loads code from {roles.show(place.path)}", arg.start, arg.end)
        return frozenset[str]()
    if kind == "delete":
        roles.delete(walker, arg, name)
        return frozenset[str]()
    if kind == "exec":
        roles.run_file(walker, arg, name)
        return frozenset[str]()
    if kind == "none":
        walker.find("ask", "operand.surplus", f"{name} is given {arg.text[:60]}, which no rule pack expects", arg.start, arg.end)
        return frozenset[str]()
    if kind in ("url", "host"):
        return network.contact(walker, arg, name)
    if kind in ("bind", "listen"):
        network.bind(walker, arg, name)
        return frozenset[str]()
    if kind == "secret":
        walker.find("ask", "secret.argument", f"{name} is given a credential", arg.start, arg.end)
        return frozenset[str]()
    if kind == "project":
        project_operands(walker, [arg], name)
        return frozenset[str]()
    if kind.startswith("code."):
        return run_code(walker, kind[5:], arg, name, site)
    if kind == "program":
        command_value(walker, arg, f"{name} runs it")
        return frozenset[str]()
    return arg.tags & {"secret", "dotenv", "env", "secretvar", "net", "decoded"}


def command_value(walker: Walker, value: Arg, why: str) -> None:
    """A value that some program runs as a command line: judged as one, and concealed execution where it is more than a known tool."""
    if UNKNOWN in value.text:
        walker.find("ask", "dynamic.code", f"{why}, and the text does not fix it", value.start, value.end)
        return
    if not value.text.strip():
        return
    before = len(walker.findings)
    programs = len(walker.programs)
    walker.code(value.text, value)
    ran = walker.programs[programs:]
    if any(
        name
        in (
            "sh",
            "bash",
            "dash",
            "zsh",
            "ksh",
            "eval",
            "python",
            "python3",
            "perl",
            "ruby",
            "node",
            "php",
            "curl",
            "wget",
            "nc",
            "env",
            "xargs",
        )
        for name in ran
    ):
        walker.find("deny", "conceal.option", f"hides a command in an option or variable: {why}", value.start, value.end)
    elif len(walker.findings) == before and not ran:
        walker.find("ask", "run.option", f"runs {value.text[:40]}: {why}", value.start, value.end)
    elif (
        len(walker.findings) == before
        and ran
        and ran[0]
        not in (
            "cat",
            "less",
            "more",
            "true",
            "false",
            ":",
            "echo",
            "delta",
            "head",
            "tail",
            "gzip",
            "pigz",
            "zstd",
            "xz",
            "bzip2",
            "lz4",
            "vi",
            "vim",
            "nano",
            "gcc",
            "clang",
            "cc",
            "g++",
            "clang++",
            "rustc",
            "ccache",
            "sccache",
        )
    ):
        walker.find("ask", "run.option", f"runs {ran[0]}: {why}", value.start, value.end)


def project_operands(walker: Walker, args: list[Arg], who: str, *, deny_only: bool = False) -> None:
    """Arguments of the project's own code: free text, but addresses, secrets and public listening are seen."""
    from warmgate_policies.shell import network

    kept = len(walker.findings)
    for arg in args:
        text = arg.text.partition("=")[2] if arg.text.startswith("-") and "=" in arg.text else arg.text
        network.scan(walker, replace(arg, text=text), who)
        if text and not text.startswith("-") and UNKNOWN not in text and len(text) < 400:
            place = classify(text, walker.state.cwd, walker.facts)
            if "secret" in place or "docker" in place:
                roles.read(walker, replace(arg, text=text), who)
            elif (
                "dotenv" in place
                and "/" not in text.rstrip("/")[:1]
                and place.kind == "workspace"
                and (text.startswith(".") or "/." in text)
            ):
                walker.find("ask", "secret.project", f"{who} is given {text}, which may hold the project's secrets", arg.start, arg.end)
        if arg.tags & {"secret", "dotenv"}:
            walker.find("ask", "secret.argument", f"{who} is given a secret", arg.start, arg.end)
    if deny_only:
        walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]


def plain(text: str, like: Arg) -> Arg:
    """An argument written out, at the place of another."""
    return Arg(text, like.start, like.end)


def option_of(entry: Any) -> Option:
    """Typing help for handlers."""
    assert isinstance(entry, Option)
    return entry

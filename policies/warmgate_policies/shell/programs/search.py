"""Programs that search: ``find``, ``fd``, ``grep``, ``rg``, ``ls``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.programs.wrappers import run

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_PLAIN = {"-depth", "-d", "-daystart", "-follow", "-mount", "-xdev", "-noleaf", "-ignore_readdir_race", "-print", "-print0", "-ls",
    "-prune", "-quit", "-true", "-false", "-empty", "-not", "!", "(", ")", ",", "-o", "-or", "-a", "-and", "-executable", "-readable",
    "-writable", "-nouser", "-nogroup", "-warn", "-nowarn", "-E", "-H", "-L", "-P", "-X", "-s", "-x", "--"}  # fmt: skip
_VALUED = {"-maxdepth", "-mindepth", "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex",
    "-regextype", "-type", "-xtype", "-size", "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin", "-newer", "-anewer", "-cnewer",
    "-newermt", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-samefile", "-fstype", "-lname", "-ilname", "-printf",
    "-used", "-context", "-newerct", "-newerat", "-D", "-O"}  # fmt: skip
_KEYS = re.compile(
    r"(?i)PRIVATE KEY|BEGIN .*KEY|AKIA\[|aws_secret|id_rsa|id_ed25519|ghp_|xox[bp]|password|passwd|secret|token|credential|api.?key"
)
_SECRET_WORDS = re.compile(r"(?i)token|secret|passw|key|credential|auth|aws|api")


def find(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``find``: roots are listed; ``-exec``, ``-delete`` and ``-fprint`` act on what is found."""
    args = site.argv[1:]
    at = 0
    roots: list[Arg] = []
    while at < len(args) and (args[at].text in ("-H", "-L", "-P") or not args[at].text.startswith(("-", "(", "!", ")", ","))):
        if not args[at].text.startswith("-"):
            roots.append(args[at])
        at += 1
    roots = roots or [Arg(".", site.start, site.end)]
    names: list[str] = []
    negated = narrowed = False
    either = any(arg.text in ("-o", "-or") for arg in args)
    depth = "**"
    actions: list[tuple[str, list[Arg]]] = []
    while at < len(args):
        arg = args[at]
        text = arg.text
        at += 1
        if arg.split or arg.text.startswith(UNKNOWN):
            walker.find("ask", "dynamic.target", f"{name} is given an expression that the text does not fix", arg.start, arg.end)
        elif text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (i for i in range(at, len(args)) if args[i].text == ";" or (args[i].text == "+" and args[i - 1].text == "{}")), len(args)
            )
            actions.append((text, args[at:end]))
            at = end + 1
        elif text == "-delete":
            actions.append((text, []))
        elif text in ("-fprint", "-fprint0", "-fls", "-fprintf"):
            if at < len(args):
                roles.write(walker, args[at], name)
            at += 2 if text == "-fprintf" else 1
        elif text == "-files0-from":
            if at < len(args):
                roles.read(walker, args[at], name)
            at += 1
        elif text in ("!", "-not"):
            negated = True
            continue
        elif text in _PLAIN:
            if text == "-empty":
                narrowed = True
        elif text in _VALUED or re.fullmatch(r"-newer[aBcmt][aBcmt]", text):
            if at < len(args) and not negated:
                if text in ("-name", "-iname"):
                    names.append(args[at].text)
                elif text in ("-path", "-wholename", "-ipath"):
                    names.append(args[at].text.rstrip("/*").rsplit("/", 1)[-1] or "*")
                elif text not in ("-type", "-maxdepth", "-mindepth", "-printf", "-regextype"):
                    narrowed = True
            at += 1
        elif re.fullmatch(r"-O\d", text):
            continue
        else:
            walker.find("ask", "option.unknown", f"{name} is given {text[:40]}, which no rule pack knows", arg.start, arg.end)
        negated = False
    targets = _targets(roots, names, depth, narrowed, either)
    hunted = [
        n
        for n in names
        if n.strip("*.")
        in (
            "id_rsa",
            "id_ed25519",
            "id_dsa",
            "id_ecdsa",
            "pem",
            "netrc",
            "git-credentials",
            "credentials",
            "kdbx",
            "p12",
            "pfx",
            "key",
            "aws",
            "ssh",
            "env",
        )
    ]
    for root in roots:
        roles.read(walker, root, name, listing=True)
        for place, fallback in roles.places(walker, root):
            if (
                hunted
                and not fallback
                and (place.kind in ("root", "home") or ("top" in place and place.kind not in ("workspace", "system")))
            ):
                walker.find("deny", "secret.hunt", f"{name} hunts for credentials in {roles.show(place.path)}", root.start, root.end)
    for action, inner in actions:
        if action == "-delete":
            for target in targets:
                roles.delete(walker, target, name, recursive=True)
        elif inner:
            for target in targets:
                argv = [_with(a, target) for a in inner]
                run(walker, replace(site, stdin=NOTHING_KNOWN), argv)
    first = targets[0]
    if UNKNOWN in first.text or len(roots) > 1:
        return NOTHING_KNOWN
    if len(targets) == 1:
        return Stream(shape="path", pattern=first.text)
    if any(place.labels & {"dotenv", "secret"} for target in targets for place, _ in roles.places(walker, target)):
        return NOTHING_KNOWN  # one pattern for all would hide them
    return Stream(shape="path", pattern=first.text.rsplit("/", 1)[0] + "/*some*")


def _targets(roots: list[Arg], names: list[str], depth: str, narrowed: bool, either: bool) -> list[Arg]:
    """What is found, as globs: root, any depth, name."""
    found: list[Arg] = []
    tails = names if names and (either or len(names) == 1) else names[:1]
    for root in roots:
        base = roles.path_text(root).rstrip("/") or ("/" if root.text.startswith("/") else ".")
        for tail in tails or ["*some*" if narrowed else depth]:
            middle = "" if tail == depth else f"/{depth}"
            shown = f"{tail}" if tail != "*" or narrowed else depth
            if shown == depth:
                middle = ""
            found.append(Arg(f"{base}{middle}/{shown}", root.start, root.end, glob=True, shape=None))
    return found


def _with(arg: Arg, target: Arg) -> Arg:
    if "{}" not in arg.text:
        return arg
    if arg.text == "{}":
        return replace(target, start=arg.start, end=arg.end)
    return replace(arg, text=arg.text.replace("{}", UNKNOWN))


def locate(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``locate``: lists names of the whole disk; looking for keys there is hunting."""
    for arg in call.args:
        if re.search(
            r"id_(rsa|ed25519|dsa|ecdsa)|\.(pem|kdbx|p12|pfx|netrc|aws|ssh|key)\b|credentials|git-credentials|shadow|wallet", arg.text
        ):
            walker.find("deny", "secret.hunt", f"{name} hunts for credentials on the whole disk", arg.start, arg.end)
    return NOTHING_KNOWN


def fd(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``fd``: ``-x`` and ``-X`` run programs."""
    args = site.argv[1:]
    for index, arg in enumerate(args):
        found = re.fullmatch(r"(?:-[A-WYZa-wyz0-9]*[xX]|--exec(?:-batch)?)(?:=?(.*))", arg.text, re.DOTALL)
        if found:
            inner = [replace(arg, text=found.group(1)), *args[index + 1 :]] if found.group(1) else args[index + 1 :]
            end = next((i for i, a in enumerate(inner) if a.text == ";"), len(inner))
            pattern = next((a.text for a in args[:index] if not a.text.startswith("-")), "*")
            target = Arg(f"./**/*{pattern}*" if re.fullmatch(r"[\w.]+", pattern) else UNKNOWN, arg.start, arg.end, glob=True)
            argv = [_with(a, target) for a in inner[:end]]
            if not any(re.search(r"\{(|/|//|\.|/\.)\}", a.text) for a in inner[:end]):
                argv.append(target)
            if argv:
                run(walker, replace(site, stdin=NOTHING_KNOWN), argv)
            break
    return Stream(shape="path", pattern="./**/found")


def grep(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``grep``: the pattern is text, the rest is read; hunting for keys is seen by pattern and place."""
    given = call.values("-e", "--regexp")
    files = call.args
    patterns = list(given)
    if not given and not call.has("-f", "--file") and files:
        patterns, files = [files[0]], files[1:]
    recursive = call.has("-r", "-R", "--recursive", "--dereference-recursive") or name == "rgrep"
    tags: frozenset[str] = frozenset()
    hunts = any(_KEYS.search(pattern.text) for pattern in patterns)
    for arg in files:
        quiet = call.has("-l", "--files-with-matches", "-c", "--count", "-q", "--quiet", "-L")
        listed = (not recursive and quiet and not hunts) or "**" in arg.text
        stream = roles.read(walker, arg, name, recursive=recursive, listing=listed)
        tags |= stream.tags - {"bulk"}
        if hunts:
            _hunt(walker, arg, name, recursive)
    if not files and recursive:
        arg = Arg(".", site.start, site.end)
        tags |= roles.read(walker, arg, name, recursive=True).tags - {"bulk"}
        if hunts:
            _hunt(walker, arg, name, recursive)
    if not files and not recursive:
        tags |= site.stdin.tags
        if (
            "env" in site.stdin.tags
            and any(_SECRET_WORDS.search(pattern.text) for pattern in patterns)
            and not call.has("-v", "--invert-match", "-q", "-c")
        ):
            walker.find("deny", "secret.filter", f"{name} filters the environment for secrets", site.start, site.end)
        return Stream(tags=tags, shape=site.stdin.shape, pattern=site.stdin.pattern)
    if call.has("-l", "--files-with-matches", "-L", "--files-without-match") and len(files) <= 1:
        base = files[0].text if files else "."
        return Stream(tags=tags, shape="path", pattern=base.rstrip("/") + "/**/found" if recursive else base)
    return Stream(tags=tags)


def _hunt(walker: Walker, arg: Arg, name: str, recursive: bool) -> None:
    for place, fallback in roles.places(walker, arg):
        broad = place.kind in ("home", "root") or ("top" in place and place.kind not in ("workspace", "system")) or "secret" in place
        if broad and recursive and not fallback:
            walker.find("deny", "secret.hunt", f"{name} hunts for credentials in {roles.show(place.path)}", arg.start, arg.end)


def rg(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``rg``: like ``grep``, always recursive; ``--files`` lists."""
    return grep(walker, site, "rgrep" if not call.has("--files") else name, call) if call.operands else None


def ls(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ls``: names in a folder."""
    folders = call.args
    if len(folders) == 1 and folders[0].known:
        text = folders[0].text
        return Stream(shape="path", pattern=text if folders[0].glob else text.rstrip("/") + "/*")
    if not folders:
        return Stream(shape="path", pattern="./*")
    return NOTHING_KNOWN

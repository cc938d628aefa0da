"""Programs that make, move, mark and delete files."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import EMPTY, NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.paths import classify, resolve

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker


def rm(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``rm``: by what each target is."""
    recursive = call.has("-r", "-R", "--recursive") or any(
        "r" in arg.text.lower() for arg in call.unknown if re.fullmatch(r"-[A-Za-z]+", arg.text)
    )
    for arg in call.args:
        roles.delete(walker, arg, name, recursive=recursive)
    for arg in call.unknown:
        if "/" in arg.text:
            roles.delete(walker, arg, name, recursive=recursive)
    return None


def rmdir(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``rmdir`` takes empty folders alone: only what should not be touched at all matters."""
    for arg in call.args:
        kept = len(walker.findings)
        roles.delete(walker, arg, name)
        walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.rule != "delete.work"]
    return None


def shred(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``shred``: a delete beyond recovery."""
    for arg in call.args:
        roles.write(walker, arg, name)
        roles.delete(walker, arg, name)
        for place, _ in roles.places(walker, arg):
            if place.kind == "workspace":
                walker.find("ask", "delete.work", f"{name} destroys {roles.show(place.path)} beyond recovery", arg.start, arg.end)
    return None


def _carry(walker: Walker, source: Arg, target: Arg) -> None:
    """What is known of a file goes with it."""
    from_, to = (
        resolve(roles.path_text(source), walker.state.cwd, walker.facts),
        resolve(roles.path_text(target), walker.state.cwd, walker.facts),
    )
    if from_ is None or to is None:
        return
    known = walker.files.at(from_)
    if known is None:
        kind = classify(from_, None, walker.facts).kind
        if kind in ("scratch", "outside", "home") and not from_.startswith(walker.facts.workspace):
            walker.files.put(to, Stream(tags=frozenset({"outside"})))  # nobody's project: asked about where it is run
        return
    base = from_.rsplit("/", 1)[-1]
    walker.files.put(to, known)
    walker.files.put(to.rstrip("/") + "/" + base, known)
    if from_ in walker.files.trees:
        walker.files.trees[to] = walker.files.trees[from_]


def _split(call: Call) -> tuple[list[Arg], Arg | None]:
    target = call.value("-t", "--target-directory")
    if target is not None:
        return call.args, target
    return (call.args[:-1], call.args[-1]) if len(call.args) > 1 else (call.args, None)


def mv(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mv``: sources go away, the target is written."""
    sources, target = _split(call)
    for arg in sources:
        stream = roles.read(walker, arg, name)
        for place, fallback in roles.places(walker, arg):
            if place.kind in ("workspace", "scratch") and "top" not in place and "git" not in place and "settings" not in place:
                continue
            if place.kind != "unknown" and not fallback:
                roles.delete(walker, arg, name, recursive=True)
        if target is not None:
            _into(walker, arg, target, name, stream)
    if target is not None:
        for place, _ in roles.places(walker, target):
            if place.path == "/dev/null":
                walker.find("deny", "destroy.fs", f"{name} moves files to nowhere", target.start, target.end)
    return None


def _into(walker: Walker, source: Arg, target: Arg, name: str, stream: Stream) -> None:
    kept = len(walker.findings)
    roles.write(walker, target, name)
    base = roles.path_text(source).rstrip("/").rsplit("/", 1)[-1]
    if UNKNOWN not in base and len(walker.findings) == kept:
        inner = replace(target, text=target.text.rstrip("/") + "/" + base, shape=None)
        roles.write(walker, inner, name)
        bad = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
        walker.findings[kept:] = bad
    if stream.tags & {"secret", "dotenv", "net", "decoded"}:
        roles.store(walker, target, Stream(tags=stream.tags))
    _carry(walker, source, target)


def cp(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``cp``, ``install``: sources are read, the target is written."""
    sources, target = _split(call)
    recursive = call.has("-r", "-R", "-a", "--recursive", "--archive")
    if call.has("-d", "--directory") and name == "install":
        for arg in call.args:
            roles.write(walker, arg, name)
        return None
    mode = call.value("-m", "--mode")
    if mode is not None and name == "install":
        _mode(walker, mode, site, recursive=False)
    for arg in sources:
        stream = roles.read(walker, arg, name, recursive=recursive)
        if arg.text == "/dev/null" and target is not None:
            roles.store(walker, target, Stream(""))
        if target is not None:
            _into(walker, arg, target, name, stream)
    return None


def ln(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ln``: the link is written; what it points at is reached by it later."""
    if not call.args:
        return None
    target = call.value("-t", "--target-directory")
    sources, link = (
        (call.args, target) if target is not None else (call.args[:-1], call.args[-1]) if len(call.args) > 1 else (call.args, Arg("."))
    )
    roles.write(walker, link, name)
    if re.search(r"(^|/)(node_modules/\.bin|\.?venv/bin|vendor/bin)(/|$)", link.text):
        for arg in sources:
            for place, _ in roles.places(walker, arg):
                if place.kind != "workspace" and arg.text.startswith(("/", "~")):
                    walker.find(
                        "ask", "link.outside", f"{name} puts a program of {roles.show(place.path)} among the tools", arg.start, arg.end
                    )
    for arg in sources:
        text = roles.path_text(arg)
        for place, fallback in roles.places(walker, arg):
            if "secret" in place or "docker" in place or place.kind in ("disk", "kernel", "root"):
                roles.read(walker, arg, name)
            elif place.kind in ("workspace", "scratch", "system") or (not text.startswith(("/", "~")) and not text.startswith("../../..")):
                if "settings" in place or "githook" in place or "startup" in place:
                    roles.write(walker, arg, name)
            elif not fallback:
                walker.find("ask", "link.outside", f"{name} links to {roles.show(place.path)}, outside the workspace", arg.start, arg.end)
        _carry(walker, arg, link)
        if any(place.kind == "scratch" and walker.files.at(place.path) is None for place, _ in roles.places(walker, arg)):
            roles.store(walker, link, Stream(tags=frozenset({"outside"})))  # what runs through the link is nobody's project
    return None


def _mode(walker: Walker, mode: Arg, site: Site, *, recursive: bool) -> None:
    text = mode.text
    if UNKNOWN in text:
        walker.find("ask", "perm.unknown", "sets permissions that the text does not fix", mode.start, mode.end)
    elif (re.fullmatch(r"[=+]?[0-7]{4,5}", text) and int(text[-4]) & 6) or re.search(r"[+=][rwxXt]*s", text):
        walker.find("deny", "privilege.setuid", "sets a setuid or setgid bit", mode.start, mode.end)
    elif (
        re.fullmatch(r"0?[0-7]{2}[2367]", text)
        or re.search(r"(^|,)[a-z]*[oa][a-z]*[+=][a-z]*w", text)
        or (re.search(r"(^|,)\+[rx]*w", text) and recursive)
    ):
        walker.find("ask", "perm.broad", "lets everyone write", mode.start, mode.end)


def chmod(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``chmod``: by mode and place."""
    recursive = call.has("-R", "--recursive")
    args = list(call.args)
    unknown = [arg for arg in call.unknown if re.fullmatch(r"-[rwxXst]+", arg.text)]
    if unknown:
        walker.findings[:] = [f for f in walker.findings if not (f.rule == "option.unknown" and f.start == unknown[0].start)]
    elif call.has("--reference"):
        for value in call.values("--reference"):
            for place, _ in roles.places(walker, value):
                if place.kind not in ("workspace", "scratch"):
                    walker.find("ask", "perm.unknown", "takes permissions from a file outside the workspace", value.start, value.end)
    elif args:
        _mode(walker, args[0], site, recursive=recursive)
        args = args[1:]
    gentle = bool(call.args) and re.fullmatch(r"[ugoa]*\+[rwX]+", call.args[0].text) is not None
    for arg in args:
        _owner(walker, arg, name, recursive, gentle=gentle)
    return None


def _owner(walker: Walker, arg: Arg, name: str, recursive: bool, *, gentle: bool = False) -> None:
    for place, fallback in roles.places(walker, arg):
        shown = roles.show(place.path)
        if (place.kind in ("system", "root") or ("top" in place and place.kind != "workspace")) and (recursive or "top" in place):
            walker.find("ask" if fallback else "deny", "destroy.system", f"{name} changes the permissions of {shown}", arg.start, arg.end)
        elif place.kind in ("workspace", "scratch") and not place.labels & {"settings"}:
            if "githook" in place:
                walker.find("deny", "persist.githook", f"{name} makes {shown} a program that git runs", arg.start, arg.end)
            elif "top" in place and recursive and place.kind == "workspace" and not gentle and not fallback:
                walker.find("ask", "perm.broad", f"{name} changes the permissions of the whole workspace", arg.start, arg.end)
        else:
            roles.write(walker, arg, name, append=True)


def chown(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``chown``: by place."""
    recursive = call.has("-R", "--recursive")
    args = call.args if call.has("--reference") else call.args[1:]
    for arg in args:
        _owner(walker, arg, name, recursive)
    if call.args and call.args[0].text.split(":")[0] in ("root", "0"):
        walker.find("ask", "perm.owner", f"{name} gives files to root", call.args[0].start, call.args[0].end)
    return None


def dd(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``dd``: ``if=`` is read, ``of=`` is written."""
    tags: frozenset[str] = frozenset()
    endless = False
    empty = any(arg.text == "if=/dev/null" for arg in site.argv)
    count: str | None = None
    block = "512"
    for arg in site.argv[1:]:
        key, equals, value = arg.text.partition("=")
        target = replace(arg, text=value)
        if key == "if":
            tags |= roles.read(walker, target, name).tags
            endless = value in ("/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")
        elif key == "of":
            roles.write(walker, target, name)
            roles.store(walker, target, EMPTY if empty else Stream(tags=tags))
        elif key == "count":
            count = value
        elif key in ("bs", "obs"):
            block = value
        elif not equals or key not in ("ibs", "cbs", "skip", "seek", "iseek", "oseek", "conv", "status", "iflag", "oflag"):
            walker.find("ask", "option.unknown", f"{name} is given {arg.text[:40]}, which no rule pack knows", arg.start, arg.end)
    if endless and count is None:
        walker.find("deny", "exhaust.disk", f"{name} writes without end", site.start, site.end)
    elif endless and count is not None and (_size(count) or 1) * (_size(block) or 1) >= 10**10:
        walker.find("ask", "exhaust.disk", f"{name} makes a file of {count} times {block}", site.start, site.end)
    return Stream(tags=tags | site.stdin.tags)


_UNITS = {"": 1, "c": 1, "w": 2, "b": 512, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50, "e": 1 << 60}


def _size(text: str) -> int | None:
    """A number of ``dd`` with its unit; None where it is none."""
    found = re.fullmatch(r"(\d+)([a-z]?)(i?b)?", text.lower())
    return int(found.group(1)) * _UNITS[found.group(2)] if found and found.group(2) in _UNITS else None


def image(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Image and film tools take more than paths for a file's name: other formats' scripts, addresses, pipes, lists."""
    for arg in [*call.args, *call.values("-i")]:
        if (
            re.match(r"[|@]|[A-Za-z][\w+.-]*:", arg.text)
            or "|" in arg.text
            or "%[" in arg.text
            or re.search(r"\.(msl|mvg|m3u8?|ffconcat|sdp)$", arg.text)
        ):
            walker.find("ask", "option.value", f"{name} is given {arg.text[:40]}, which is more than a file's name", arg.start, arg.end)
    return None


def fallocate(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """A huge file at once."""
    size = call.value("-l", "--length", "-s", "--size")
    if size is not None and re.fullmatch(r"(?i)\+?\d+(\.\d+)?[gtpe]i?b?|\+?\d{10,}", size.text):
        big = re.match(r"\+?(\d+)", size.text)
        deny = bool(re.search(r"(?i)[tpe]", size.text)) or (big is not None and int(big.group(1)) >= 100)
        walker.find("deny" if deny else "ask", "exhaust.disk", f"{name} makes a file of {size.text}", size.start, size.end)
    return None


def truncate(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``truncate``: the old content is gone."""
    fallocate(walker, site, name, call)
    for arg in call.args:
        roles.write(walker, arg, name)
        for place, _ in roles.places(walker, arg):
            if place.kind == "workspace" and "build" not in place and place.path not in walker.files.written:
                walker.find("ask", "delete.work", f"{name} empties {roles.show(place.path)}", arg.start, arg.end)
    return None


def tee(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``tee``: what comes in goes on and into files."""
    append = call.has("-a", "--append")
    for arg in call.args:
        roles.write(walker, arg, name, append=append)
        roles.store(walker, arg, site.stdin, append=append)
        if arg.stream is not None:
            continue
    return site.stdin


def mkdir(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mkdir``: a folder that surely exists afterwards."""
    for arg in call.args:
        if not arg.known:
            roles.write(walker, arg, name)
            continue
        kept = len(walker.findings)
        roles.write(walker, arg, name, create_only=True)
        # An empty folder in a protected place is no attack yet, but no ordinary work either.
        for place, _ in roles.places(walker, arg):
            walker.files.folders.add(place.path)
        del kept
    mode = call.value("-m", "--mode")
    if mode is not None:
        _mode(walker, mode, site, recursive=False)
    return None


def touch(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``touch``: time stamps of what is not ours are evidence."""
    stamped = call.has("-d", "-t", "-r", "--date", "--reference")
    like = call.value("-r", "--reference")
    for arg in call.args:
        roles.write(walker, arg, name, append=True)
        if stamped:
            for place, fallback in roles.places(walker, arg):
                outside = place.kind not in ("workspace", "scratch") or (
                    like is not None and like.text.startswith(("/bin/", "/usr/", "/etc/", "/sbin/"))
                )
                if not fallback:
                    walker.find(
                        "deny" if outside else "ask",
                        "tamper.timestamps",
                        f"{name} sets the time stamp of {roles.show(place.path)}",
                        arg.start,
                        arg.end,
                    )
    return None


def mktemp(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mktemp``: a scratch path."""
    for arg in call.args:
        if "/" in arg.text:
            roles.write(walker, arg, name)
    return Stream(shape="path", pattern=(walker.facts.scratch[0] if walker.facts.scratch else "/tmp") + "/tmp.mktemp")  # noqa: S108


def split(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``split``: ``--filter`` is code; pieces land at a prefix."""
    return None


_TAR_EXEC = re.compile(r"--(checkpoint-action|to-command|info-script|new-volume-script|rsh-command|use-compress-program|rmt-command)(=|$)")


def tar(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``tar``: packs, lists or unpacks; several options run programs."""
    from warmgate_policies.shell.judge import command_value

    args = list(site.argv[1:])
    if args and not args[0].text.startswith("-") and re.fullmatch(r"[A-Za-z]+", args[0].text):
        rest, spread = args[1:], list[Arg]()
        for letter in args[0].text:  # the old style: values in the order of their letters
            spread.append(replace(args[0], text="-" + letter))
            if letter in "fCbIFTXgHLKNV" and rest:
                spread.append(rest.pop(0))
        args = [*spread, *rest]
    mode, archive, folder = "", None, None
    members: list[Arg] = []
    at = 0
    while at < len(args):
        arg = args[at]
        text = arg.text
        at += 1
        if _TAR_EXEC.match(text):
            value = text.partition("=")[2] or (args[at].text if at < len(args) else "")
            if text.startswith("--checkpoint-action"):
                action, _, code = value.partition("=")
                if action != "exec":
                    continue
                value = code
            if text.startswith("--use-compress-program") and value.split(" ")[0] in (
                "gzip",
                "pigz",
                "zstd",
                "xz",
                "bzip2",
                "lz4",
                "zstdmt",
                "pixz",
            ):
                continue
            command_value(walker, replace(arg, text=value), "tar runs it for every file")
            walker.find("deny", "conceal.option", f"{name} is told to run a program by {text.partition('=')[0]}", arg.start, arg.end)
        elif text.startswith("--"):
            key, equals, value = text.partition("=")
            if key in ("--transform", "--xform") and re.search(r"[^\w]/(home|etc|usr|root|var|opt|bin|lib)|\.\./", value):
                walker.find("ask", "write.outside", f"{name} moves what it unpacks out of its folder", arg.start, arg.end)
            if key in ("--create", "--extract", "--list", "--get", "--append", "--update", "--diff", "--delete"):
                mode += {"create": "c", "extract": "x", "get": "x", "list": "t", "append": "r", "update": "u", "diff": "d", "delete": "c"}[
                    key[2:]
                ]
            elif key in (
                "--file",
                "--directory",
                "--exclude",
                "--files-from",
                "--transform",
                "--exclude-from",
                "--strip-components",
                "--strip",
                "--owner",
                "--group",
                "--mtime",
                "--checkpoint",
                "--mode",
                "--sort",
                "--format",
            ):
                if not equals and at < len(args):
                    value = args[at].text
                    at += 1
                if key == "--file":
                    archive = replace(arg, text=value)
                elif key == "--directory":
                    folder = replace(arg, text=value)
                elif key in ("--files-from", "--exclude-from"):
                    roles.read(walker, replace(arg, text=value), name)
            elif key not in ("--gzip", "--bzip2", "--xz", "--zstd", "--verbose", "--auto-compress", "--no-same-owner",
                "--no-same-permissions", "--exclude-vcs", "--overwrite", "--keep-old-files", "--skip-old-files",
                             "--wildcards", "--version", "--help", "--totals", "--numeric-owner", "--dereference", "--no-recursion",
                             "--anchored", "--exclude-vcs-ignores", "--preserve-permissions", "--to-stdout", "--null",
                             "--checkpoint"):  # fmt: skip
                walker.find("ask", "option.unknown", f"{name} is given {key}, which no rule pack knows", arg.start, arg.end)
        elif text.startswith("-") and len(text) > 1:
            for index, letter in enumerate(text[1:], 1):
                if letter in "fCTXbIFK":
                    value = text[index + 1 :]
                    if not value and at < len(args):
                        holder, at = args[at], at + 1
                    else:
                        holder = replace(arg, text=value)
                    if letter == "f":
                        archive = holder
                    elif letter == "C":
                        folder = holder
                    elif letter in "TX":
                        roles.read(walker, holder, name)
                    elif letter in "IF" and holder.text.split(" ")[0] not in ("gzip", "pigz", "zstd", "xz", "bzip2", "lz4"):
                        command_value(walker, holder, f"tar runs it by -{letter}")
                        walker.find("deny", "conceal.option", f"{name} is told to run a program by -{letter}", arg.start, arg.end)
                    if value:
                        break
                elif letter in "cxtrud":
                    mode += letter
                elif letter not in "zjJvapmkhOSsolwWUZ0123456789":
                    walker.find("ask", "option.unknown", f"{name} is given -{letter}, which no rule pack knows", arg.start, arg.end)
        else:
            members.append(arg)
    return _tar_effects(walker, site, name, mode, archive, folder, members)


def _tar_effects(walker: Walker, site: Site, name: str, mode: str, archive: Arg | None, folder: Arg | None, members: list[Arg]) -> Stream:
    stdio = archive is None or archive.text == "-"
    cwd, others = walker.state.cwd, walker.state.other_cwds
    if archive is not None and ":" in archive.text and not archive.text.startswith(("/", ".")):
        walker.find("ask", "net.contact", f"{name} reaches another machine for its archive", archive.start, archive.end)
    if folder is not None:
        if not folder.known:
            walker.find("ask", "dynamic.target", f"{name} works in a folder that the text does not fix", folder.start, folder.end)
        walker.state.cwd, walker.state.other_cwds = resolve(folder.text, cwd, walker.facts), ()
    tags: frozenset[str] = frozenset()
    try:
        if "c" in mode or "r" in mode or "u" in mode:
            for arg in members:
                tags |= roles.read(walker, arg, name, recursive=True).tags
        elif "x" in mode:
            walker.state.cwd, kept = cwd, walker.state.cwd
            known = site.stdin if stdio else roles.read(walker, archive, name) if archive is not None else NOTHING_KNOWN
            walker.state.cwd = kept
            target = Arg(".", site.start, site.end)
            roles.write(walker, target, name)
            path = walker.state.cwd
            if known.tags & {"net", "decoded"} and path is not None:
                walker.files.trees[path] = known.tags
            tags |= known.tags
    finally:
        walker.state.cwd, walker.state.other_cwds = cwd, others
    if mode and not stdio and archive is not None:
        if set(mode) & set("cru"):
            roles.write(walker, archive, name)
            roles.store(walker, archive, Stream(tags=tags))
            return NOTHING_KNOWN
        if "t" in mode:
            return Stream(tags=roles.read(walker, archive, name).tags)
    return Stream(tags=tags | site.stdin.tags)


def unzip(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``unzip``: the archive's origin is that of what comes out."""
    if not call.args:
        return None
    known = roles.read(walker, call.args[0], name)
    if call.has("-l", "-t", "-v", "-Z", "-p", "-z"):
        return Stream(tags=known.tags)
    folder = call.value("-d") or Arg(".", site.start, site.end)
    roles.write(walker, folder, name)
    path = resolve(folder.text, walker.state.cwd, walker.facts)
    if known.tags & {"net", "decoded"} and path is not None:
        walker.files.trees[path] = known.tags
    return Stream(tags=known.tags)


def zip_(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``zip archive files``."""
    if not call.args:
        return None
    tags: frozenset[str] = frozenset()
    for arg in call.args[1:]:
        tags |= roles.read(walker, arg, name, recursive=call.has("-r", "--recurse-paths")).tags
    if call.args[0].text == "-":
        return Stream(tags=tags)
    roles.write(walker, call.args[0], name)
    roles.store(walker, call.args[0], Stream(tags=tags))
    return NOTHING_KNOWN

"""What may be done to a path, an address or a file of code: reads, writes, deletes and runs, judged by what the path is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from warmgate.decision import Word
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Stream, joined
from warmgate_policies.shell.paths import WORLD_READABLE, Place, classify, inside
from warmgate_policies.shell.urls import is_loopback
from warmgate_policies.shell.written import Step

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_REACHES = re.compile(r"(?i)(^|[-_.])(deploy|publish|release|rollback|upload)([-_.]|$)")
"""Names of scripts that by their name change what others see."""
_DEV_NET = re.compile(r"^/dev/(?:tcp|udp)/([^/]*)/")
_HOOKS = re.compile(r'"(pre|post)?(install|prepare|publish)"\s*:\s*"[^"]*(curl|wget|\bnc\b|base64|eval|https?://)')


def path_text(arg: Arg) -> str:
    """The path an argument stands for, as far as its shape tells."""
    if arg.shape == "path" and arg.pattern is not None:
        return arg.pattern
    if arg.shape == "number":
        return arg.text.replace(UNKNOWN, "0")
    if arg.shape == "word" and arg.text != UNKNOWN:
        return arg.text.replace(UNKNOWN, "x")
    return arg.text


def places(walker: Walker, arg: Arg) -> Iterator[tuple[Place, bool]]:
    """Every place the argument can be; the second says that it holds only if an earlier ``cd`` failed."""
    text = path_text(arg)
    yield classify(text, walker.state.cwd, walker.facts), False
    if not text.startswith(("/", "~")):
        for cwd in walker.state.other_cwds:
            yield classify(text, cwd, walker.facts), True


def _say(walker: Walker, arg: Arg, fallback: bool, verdict: Word, rule: str, reason: str) -> None:
    if fallback and verdict == "deny":
        verdict, reason = "ask", reason + ", should the earlier cd fail"
    walker.find(verdict, rule, reason, arg.start, arg.end)


def show(path: str) -> str:
    """A path for people."""
    return path.replace(UNKNOWN, "…")


def _unresolved(walker: Walker, arg: Arg, verb: str) -> None:
    walker.find("ask", "dynamic.target", f"{verb} a path that the text of the command does not fix", arg.start, arg.end)


def read(walker: Walker, arg: Arg, who: str, *, listing: bool = False, recursive: bool = False, shown: bool = True) -> Stream:
    """``who`` reads a file (or lists a folder).

    Args:
        walker: The run.
        arg: The path.
        who: Program, for the sentence.
        listing: Only names and sizes are seen.
        recursive: Everything below is read too.
        shown: The content leaves the program; a mere test or hash does not matter as much.
    """
    if arg.stream is not None:
        return arg.stream
    out = NOTHING_KNOWN
    for place, fallback in places(walker, arg):
        out = joined(out, _read(walker, arg, place, fallback, who, listing, recursive)) if out is not NOTHING_KNOWN else _read(
            walker, arg, place, fallback, who, listing, recursive)  # fmt: skip
    del shown
    return replace(out, tags=out.tags | arg.tags)


def _read(walker: Walker, arg: Arg, place: Place, fallback: bool, who: str, listing: bool, recursive: bool) -> Stream:
    path = place.path
    name = show(path)
    if "docker" in place:
        _say(walker, arg, fallback, "deny", "escape.socket", f"{who} opens the container engine's socket")
        return NOTHING_KNOWN
    if "secret" in place:
        if listing and place.kind in ("home", "cache"):
            _say(walker, arg, fallback, "ask", "secret.list", f"{who} lists {name}, where credentials lie")
        else:
            _say(walker, arg, fallback, "deny", "secret.read", f"{who} reads {name}, which holds credentials")
        return Stream(tags=frozenset({"secret"}))
    if "net" in place:
        found = _DEV_NET.match(path)
        if found and is_loopback(found.group(1)):
            return NOTHING_KNOWN
        _say(walker, arg, fallback, "ask", "net.raw", f"{who} opens a network connection")
        return Stream(tags=frozenset({"net"}))
    if place.kind == "unknown":
        if not listing or "partly" not in place:
            _unresolved(walker, arg, f"{who} reads")
        return NOTHING_KNOWN
    if listing:
        if place.kind in ("workspace", "scratch"):
            return Stream(shape="path", pattern=path.rstrip("/") + "/*")
        return NOTHING_KNOWN
    if "dotenv" in place:
        _say(walker, arg, fallback, "ask", "secret.project", f"{who} reads {name}, which may hold the project's secrets")
        return Stream(tags=frozenset({"dotenv"}))
    if place.kind in ("workspace", "scratch"):
        if "settings" in place:
            return NOTHING_KNOWN
        known = walker.files.matching(path) if "*" in path or "?" in path or "[" in path else walker.files.at(path)
        tags: frozenset[str] = frozenset({"bulk"}) if recursive and "top" in place else frozenset[str]()
        if known is not None:
            return replace(known, tags=known.tags | tags)
        return Stream(tags=tags, project=place.kind == "workspace" and not tags)
    if place.kind in ("device", "system", "cache") or any(inside(path, folder) for folder in WORLD_READABLE):
        if recursive and "top" in place and place.kind not in ("system", "cache"):
            _say(walker, arg, fallback, "ask", "read.broad", f"{who} reads all of {name}")
        return NOTHING_KNOWN
    if place.kind == "disk":
        _say(walker, arg, fallback, "deny", "escape.device", f"{who} reads the device {name}")
        return NOTHING_KNOWN
    if recursive and (place.kind == "root" or "top" in place):
        _say(walker, arg, fallback, "ask", "read.broad", f"{who} reads everything below {name}")
        return Stream(tags=frozenset({"secret"}) if place.kind in ("home", "root") else frozenset[str]())
    _say(walker, arg, fallback, "ask", "read.outside", f"{who} reads {name}, outside the workspace")
    return Stream(tags=frozenset({"outside"}))


def write(walker: Walker, arg: Arg, who: str, *, append: bool = False, command: str = "", create_only: bool = False) -> None:
    """``who`` writes a file."""
    if arg.stream is not None:
        return
    described = arg.shape == "path" and arg.pattern is not None
    if (arg.text == UNKNOWN and not described and arg.shape != "number") or (arg.split and not described):
        _unresolved(walker, arg, f"{who} writes")
        return
    for place, fallback in places(walker, arg):
        _write(walker, arg, place, fallback, who, command, append or create_only)


def _write(walker: Walker, arg: Arg, place: Place, fallback: bool, who: str, command: str, gentle: bool) -> None:
    name = show(place.path)
    kind = place.kind
    if "net" in place:
        found = _DEV_NET.match(place.path)
        if found and is_loopback(found.group(1)):
            return
        walker.connected = walker.connected or command.startswith("exec:")
        shell = command.rsplit("/", 1)[-1] in ("bash", "sh", "dash", "zsh", "ksh", "exec")
        _say(walker, arg, fallback, "deny" if shell else "ask", "rce.reverse" if shell else "net.raw",
             "connects a shell to a remote address" if shell else f"{who} sends to a network address")  # fmt: skip
        return
    if "harmless" in place:
        return
    if "docker" in place:
        _say(walker, arg, fallback, "deny", "escape.socket", f"{who} writes to the container engine's socket")
    elif "settings" in place:
        _say(walker, arg, fallback, "deny", "tamper.settings", f"{who} changes {name}, the settings of an agent or of this gate")
    elif "githook" in place:
        _say(walker, arg, fallback, "deny", "persist.githook", f"{who} writes {name}, from which git runs programs")
    elif "cron" in place:
        _say(walker, arg, fallback, "deny", "persist.cron", f"{who} writes {name}, from which programs are started by time")
    elif "startup" in place:
        _say(walker, arg, fallback, "deny", "persist.startup", f"{who} writes {name}, which runs by itself later")
    elif "sitehook" in place:
        _say(walker, arg, fallback, "deny", "persist.sitehook", f"{who} writes {name}, which Python runs at every start")
    elif "secret" in place and kind != "workspace":
        _say(walker, arg, fallback, "deny", "secret.write", f"{who} writes {name}, where credentials lie")
    elif kind == "disk":
        _say(walker, arg, fallback, "deny", "destroy.disk", f"{who} writes to the device {name}")
    elif kind == "kernel":
        _say(walker, arg, fallback, "deny", "escape.kernel", f"{who} writes to {name}, a hook of the kernel")
    elif kind in ("system", "root"):
        _say(walker, arg, fallback, "deny", "protected.system", f"{who} writes to {name}, a system path")
    elif kind == "unknown":
        if True:
            _unresolved(walker, arg, f"{who} writes")
    elif "git" in place:
        _say(walker, arg, fallback, "ask", "write.git", f"{who} writes {name} inside git's own folder")
    elif "dotenv" in place:
        _say(walker, arg, fallback, "ask", "secret.project", f"{who} writes {name}, which may hold the project's secrets")
    elif "log" in place and not gentle:
        _say(walker, arg, fallback, "deny", "tamper.logs", f"{who} overwrites {name}, a system log")
    elif kind in ("workspace", "scratch"):
        if any(inside(place.path, mount) for mount in walker.facts.host_mounts):
            _say(walker, arg, fallback, "ask", "write.hostmount", f"{who} writes {name}, which belongs to the host")
    elif walker.facts.uid == 0 and kind == "outside" and "top" in place:
        _say(walker, arg, fallback, "deny", "protected.system", f"{who} writes to {name} as root")
    else:
        _say(walker, arg, fallback, "ask", "write.outside", f"{who} writes {name}, outside the workspace")


def store(walker: Walker, arg: Arg, stream: Stream, *, append: bool = False) -> None:
    """Remember what now is in a file."""
    if arg.stream is not None or UNKNOWN in path_text(arg):
        return
    for place, fallback in places(walker, arg):
        if (
            stream.text == ""
            and not append
            and place.kind == "workspace"
            and "build" not in place
            and place.path not in walker.files.written
        ):
            walker.find("ask", "delete.work", f"empties {show(place.path)}, whose content may be nowhere else", arg.start, arg.end)
        if place.kind in ("workspace", "scratch", "home", "cache", "outside") and not fallback:
            walker.files.put(place.path, replace(stream, project=False), append=append)
            if stream.text:
                walker.trace.append(Step("store", path=place.path, text=stream.text))
            if stream.text and place.path.endswith("package.json") and _HOOKS.search(stream.text):
                walker.find("deny", "persist.package", "writes a package script that fetches and runs code at install", arg.start, arg.end)


def delete(walker: Walker, arg: Arg, who: str, *, recursive: bool = False, forced: bool = False) -> None:
    """``who`` deletes a file or, with ``recursive``, a tree."""
    described = arg.shape == "path" and arg.pattern is not None
    if (arg.split or arg.text == UNKNOWN) and not described:
        if "net" not in arg.tags:
            _unresolved(walker, arg, f"{who} deletes")
        else:
            walker.find("deny", "destroy.fs", f"{who} deletes what a download names", arg.start, arg.end)
        return
    for place, fallback in places(walker, arg):
        _delete(walker, arg, place, fallback, who, recursive)
    del forced


def _delete(walker: Walker, arg: Arg, place: Place, fallback: bool, who: str, recursive: bool) -> None:
    name, kind = show(place.path), place.kind
    if kind == "unknown":
        _unresolved(walker, arg, f"{who} deletes")
    elif ("history" in name.rsplit("/", 1)[-1] and kind == "home") or "log" in place:
        _say(walker, arg, fallback, "deny", "tamper.logs", f"{who} deletes {name}, a history or log")
    elif "settings" in place:
        _say(walker, arg, fallback, "deny", "tamper.settings", f"{who} deletes {name}, the settings of an agent or of this gate")
    elif kind == "root" or "top" in place:
        _say(walker, arg, fallback, "deny", "destroy.fs", f"{who} deletes {name}, which cannot be made again")
    elif recursive and place.path.startswith(("/*", "/**")):
        _say(walker, arg, fallback, "deny", "destroy.fs", f"{who} deletes {name}, wherever on the disk it lies")
    elif kind in ("system", "disk", "kernel"):
        _say(walker, arg, fallback, "deny", "destroy.system", f"{who} deletes {name}, part of the system")
    elif "docker" in place:
        _say(walker, arg, fallback, "deny", "escape.socket", f"{who} removes the container engine's socket")
    elif "secret" in place or "startup" in place or "cron" in place:
        _say(walker, arg, fallback, "deny", "destroy.secret", f"{who} deletes {name}, which holds credentials or starts the shell")
    elif "git" in place and kind == "workspace":
        lock = name.endswith(".lock")
        _say(walker, arg, fallback, "ask" if lock else "deny", "destroy.history", f"{who} deletes {name} inside git's own folder")
    elif any(inside(place.path, mount) for mount in walker.facts.host_mounts):
        _say(walker, arg, fallback, "ask", "write.hostmount", f"{who} deletes {name}, which belongs to the host")
    elif kind == "scratch" or "build" in place:
        return
    elif kind == "workspace":
        if place.path in walker.files.written and not recursive:
            return
        _say(walker, arg, fallback, "ask", "delete.work", f"{who} deletes {name}, which may be work that is nowhere else")
    elif kind == "home" and recursive and _whole_folder(walker, place):
        _say(walker, arg, fallback, "deny", "destroy.fs", f"{who} deletes {name}, a whole folder of the home")
    else:
        _say(walker, arg, fallback, "ask", "delete.outside", f"{who} deletes {name}, outside the workspace")


def _whole_folder(walker: Walker, place: Place) -> bool:
    """A folder right in the home that holds a person's own files: Documents, not .cache, not Downloads."""
    path = place.path
    return path.count("/") <= walker.facts.home.count("/") + 1 and "/." not in path and not path.endswith(("/Downloads", "/Desktop"))


def run_file(walker: Walker, arg: Arg, who: str) -> Stream:
    """A file is run as code. Gives what is known of its content, for the caller to judge where the text is known."""
    if arg.stream is not None:
        return judge_code(walker, arg.stream, arg, who)
    if UNKNOWN in path_text(arg) or arg.split:
        verdict: Word = "deny" if arg.tags & {"net", "decoded"} else "ask"
        walker.find(verdict, "dynamic.program", f"{who} runs a file that the text of the command does not fix", arg.start, arg.end)
        return NOTHING_KNOWN
    if arg.glob:
        walker.find("ask", "dynamic.program", f"{who} runs whatever files match {show(arg.text)[:60]}", arg.start, arg.end)
    out = NOTHING_KNOWN
    for place, fallback in places(walker, arg):
        known = walker.files.matching(place.path) if arg.glob else walker.files.at(place.path)
        name = show(place.path)
        start, end = walker.base or (arg.start, arg.end)
        walker.trace.append(Step("file", path=place.path, start=start, end=end))
        if "secret" in place or "docker" in place:
            _say(walker, arg, fallback, "deny", "secret.read", f"{who} opens {name}, which holds credentials")
        if known is not None:
            out = judge_code(walker, known, arg, who)
            if known.text is not None or known.tags & {"net", "decoded"} or (known.project and place.kind == "scratch"):
                continue  # the last: a compiler built it from the project in this very command
        if place.kind == "workspace":
            if not walker.facts.trusted_project:
                _say(walker, arg, fallback, "ask", "project.untrusted", f"{who} runs {name} in a checkout nobody has trusted yet")
            if "git" in place:
                _say(walker, arg, fallback, "ask", "opaque.script", f"{who} runs {name} from git's own folder")
            if _REACHES.search(name.rsplit("/", 1)[-1]):
                _say(walker, arg, fallback, "ask", "script.shared", f"{who} runs {name}, which may change more than the workspace")
            continue
        if (
            place.path.startswith(("/usr/bin/", "/bin/", "/usr/lib/", "/usr/local/bin/", "/usr/share/", "/usr/local/lib/"))
            or "harmless" in place
        ):
            continue
        if "net" in place:
            _say(walker, arg, fallback, "deny", "flow.run", f"{who} runs what a network address sends")
            continue
        _say(walker, arg, fallback, "ask", "opaque.script", f"{who} runs {name}, outside the workspace, unread")
    return out


def judge_code(walker: Walker, stream: Stream, arg: Arg, who: str) -> Stream:
    """Code from a stream: what was just downloaded or decoded is never run; what is unknown is asked about."""
    if stream.tags & {"net"}:
        walker.find("deny", "flow.download-run", f"{who} runs what was just downloaded", arg.start, arg.end)
    elif stream.tags & {"decoded"}:
        walker.find("deny", "flow.decode-run", f"{who} runs what was just decoded", arg.start, arg.end)
    elif stream.text is None and not stream.project:
        walker.find("ask", "dynamic.code", f"{who} runs code that the text of the command does not fix", arg.start, arg.end)
    return stream


def check_word(text: str) -> Word:
    """A verdict word from data."""
    return cast("Word", text)

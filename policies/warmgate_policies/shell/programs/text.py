"""Programs that pass text on: what goes in decides what comes out."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import EMPTY, NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream, joined
from warmgate_policies.shell.options import Call

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker


def cat(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``cat``: files one after the other, or stdin."""
    if not call.args and "secretvar" in site.stdin.tags and site.sink == "out":
        walker.find("deny", "secret.print", f"{name} prints a credential from the environment", site.start, site.end)
    if not call.args:
        return site.stdin
    out = EMPTY
    for arg in call.args:
        kept = len(walker.findings)
        stream = site.stdin if arg.text == "-" else EMPTY if arg.text == "/dev/null" else roles.read(walker, arg, name)
        if arg.text != "-":
            del walker.findings[kept:]  # the role has said it already
        out = stream if out is EMPTY else joined(out, stream)
    if any(arg.text in ("/dev/zero", "/dev/urandom", "/dev/random") for arg in call.args) and site.sink == "file":
        walker.find("deny", "exhaust.disk", f"{name} writes without end", site.start, site.end)
    return out


def head(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``head -c 100G /dev/zero > x`` fills a disk."""
    if name == "tail" and any(arg.text in ("/dev/zero", "/dev/urandom", "/dev/random", "/dev/full") for arg in call.args):
        walker.find("deny", "exhaust.memory", f"{name} keeps an endless file in memory", site.start, site.end)
    size = call.value("-c", "--bytes")
    if (
        size is not None
        and site.sink == "file"
        and re.fullmatch(r"(\d{10,}|\d+([GTPE]i?B?))", size.text)
        and any(arg.text.startswith("/dev/") for arg in call.args)
    ):
        walker.find("deny", "exhaust.disk", f"{name} writes {size.text} bytes", size.start, size.end)
    return None


def same(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """A filter that may keep any line: origins stay, the text is not fixed any more."""
    return None


def shuf(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``shuf FILE`` reads it; with ``-e`` its operands are the lines."""
    tags = site.stdin.tags
    if not call.has("-e", "--echo", "-i", "--input-range"):
        for arg in call.args:
            if arg.text != "-":
                tags |= roles.read(walker, arg, name).tags
    return Stream(tags=tags)


def mlr(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mlr``: its verbs are free, its language can run programs and write files."""
    if len(site.argv) > 2 and site.argv[1].text == "-s":
        roles.run_file(walker, site.argv[2], name)  # its arguments, script and all, come from a file
    for before, arg in zip(site.argv, site.argv[1:], strict=False):
        if before.text in ("put", "filter", "-s", "-e") or "{" in arg.text or "$" in arg.text:
            if re.search(r"\b(system|exec|popen|hostname|os_type)\s*\(|\|", arg.text):
                walker.find("deny", "conceal.tool", f"{name} runs a program from its script", arg.start, arg.end)
            elif re.search(r"\b(tee|emit\w*|dump|print\w*)\b[^;]*>|ENV\b", arg.text):
                walker.find("ask", "code.mlr", f"{name} writes files or shows the environment by its script", arg.start, arg.end)
        if arg.text in ("tee", "split", "case"):
            walker.find("ask", "code.mlr", f"{name} writes files or takes its script from one", arg.start, arg.end)
        elif "/" in arg.text and not re.search(r"[\s{}$]", arg.text):
            roles.read(walker, arg, name)
    return Stream(tags=site.stdin.tags)


def decode(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``base64 -d``, ``xxd -r`` and kin."""
    decoding = call.has("-d", "-D", "--decode", "-r", "--reverse") or name in (
        "gunzip",
        "zcat",
        "uudecode",
        "bzcat",
        "xzcat",
        "zstdcat",
        "rev",
        "openssl enc",
        "unxz",
        "bunzip2",
    )
    tags = site.stdin.tags
    for role, arg in call.operands:
        if role == "read" and arg.text != "-":
            kept = len(walker.findings)
            tags |= roles.read(walker, arg, name).tags
            del walker.findings[kept:]
    if not decoding:
        return Stream(tags=tags)
    text = None
    if site.stdin.text is not None and not call.args:
        text = _decoded(site.stdin.text, name)
    return Stream(text, tags | {"decoded"})


def _decoded(text: str, name: str) -> str | None:
    try:
        if name == "base64":
            return base64.b64decode(text.strip() + "==", validate=False).decode()
        if name == "base32":
            return base64.b32decode(text.strip()).decode()
        if name == "xxd":
            return bytes.fromhex(re.sub(r"\s", "", text)).decode()
        if name == "rev":
            return "\n".join(line[::-1] for line in text.split("\n"))
    except (ValueError, binascii.Error):
        return None
    return None


def tr(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``tr``: a changed text counts as decoded, should somebody run it."""
    return Stream(
        tags=site.stdin.tags | {"decoded"}, shape=site.stdin.shape if site.stdin.shape == "path" else None, pattern=site.stdin.pattern
    )


def sed(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``sed``: scripts are read by :mod:`~.code.sed`; ``-i`` writes its files."""
    from warmgate_policies.shell.code import sed as language

    scripts = call.values("-e", "--expression")
    for value in call.values("-i", "--in-place"):
        if "/" in value.text:
            walker.find("ask", "write.outside", f"{name} keeps its copies in {value.text[:40]}", value.start, value.end)
    files = list(call.args)
    if not scripts and not call.has("-f", "--file") and files:
        scripts, files = [files[0]], files[1:]
    for script in scripts:
        language.judge(walker, script, name)
    tags = site.stdin.tags
    for arg in files:
        if call.has("-i", "--in-place") or any(o.startswith("-i") for o, _, _ in call.options):
            roles.write(walker, arg, name, append=True)
            for place, _ in roles.places(walker, arg):
                if "secret" in place:
                    roles.read(walker, arg, name)
                known = walker.files.at(place.path)
                if known is not None:
                    walker.files.put(place.path, replace(known, text=None))
        elif arg.text != "-":
            tags |= roles.read(walker, arg, name).tags
    keep = not files and all(re.match(r"s(.).*?\1.*?\1g?$", script.text) is None for script in scripts)
    return Stream(tags=tags, shape=site.stdin.shape if keep else None, pattern=site.stdin.pattern if keep else None)


def awk(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``awk``: the program is read by :mod:`~.code.awk`; operands are files or assignments."""
    from warmgate_policies.shell.code import awk as language

    files = list(call.args)
    if not call.has("-f", "--file", "-E", "--exec", "-e", "--source"):
        if not files:
            return NOTHING_KNOWN
        language.judge(walker, files[0], name)
        files = files[1:]
    for value in call.values("-e", "--source"):
        language.judge(walker, value, name)
    for value in call.values("-f", "--file", "-E", "--exec"):
        stream = roles.run_file(walker, value, name)
        if stream.text is not None:
            language.judge(walker, replace(value, text=stream.text), name)
    tags = site.stdin.tags
    for arg in files:
        if not re.match(r"[A-Za-z_]\w*=", arg.text) and arg.text != "-":
            tags |= roles.read(walker, arg, name).tags
    return Stream(tags=tags)


def jq(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``jq``: a closed language, but it can show the environment."""
    files = list(call.args)
    if not call.has("-f", "--from-file") and files:
        script = files[0]
        if re.search(r"\benv\b|\$ENV\b", script.text):
            walker.find("ask", "env.dump", f"{name} shows the environment", script.start, script.end)
        if re.search(r"\b(import|include|input_filename|getpath\(env)\b", script.text):
            walker.find("ask", "opaque.script", f"{name} loads another script", script.start, script.end)
        if UNKNOWN in script.text and "secretvar" in script.tags:
            walker.find("deny", "secret.print", f"{name} prints a credential from the environment", script.start, script.end)
        files = files[1:]
    tags = site.stdin.tags
    for before, arg in zip(site.argv, site.argv[2:], strict=False):  # these take a name and a file
        if before.text in ("--slurpfile", "--rawfile", "--argfile"):
            tags |= roles.read(walker, arg, name).tags
    if call.has("--args", "--jsonargs"):
        files = []
    for arg in files:
        tags |= roles.read(walker, arg, name).tags
    return Stream(tags=tags)


def sort(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``sort``: keeps what it is given."""
    if not call.args:
        return Stream(tags=site.stdin.tags, shape=site.stdin.shape, pattern=site.stdin.pattern)
    return None


def seq(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``seq``: numbers."""
    return Stream(shape="number")


def dirname(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``dirname``, ``realpath``, ``readlink``: a path, known where its argument is."""
    if len(call.args) != 1:
        return NOTHING_KNOWN
    arg = call.args[0]
    if name == "dirname" and arg.known and "/" in arg.text:
        return Stream(arg.text.rstrip("/").rsplit("/", 1)[0] + "\n")
    if name == "dirname" and arg.known:
        return Stream(".\n")
    if name in ("realpath", "readlink") and arg.known and not walker.state.other_cwds:
        from warmgate_policies.shell.paths import resolve

        path = resolve(arg.text, walker.state.cwd, walker.facts)
        return Stream(path + "\n") if path is not None else NOTHING_KNOWN
    return Stream(shape=arg.shape, pattern=arg.pattern, tags=arg.tags)


def argument(text: str, like: Arg) -> Arg:
    """A text at the place of an argument."""
    return replace(like, text=text)


def inplace(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``yq -i``: the files it reads are written. Its language can read files and the environment."""
    for script in call.args[:2]:
        if re.search(r"\bload|\b(str)?env\b|\benvsubst\b|\$ENV|\bsystem\b", script.text):
            walker.find("ask", "opaque.script", f"{name} reads other files or the environment by its script", script.start, script.end)
    if call.has("-i", "--inplace"):
        for arg in call.args[1:]:
            roles.write(walker, arg, name, append=True)
    return None

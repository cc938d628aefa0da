"""``git``: local work is free, the remote is asked about, what runs programs or rewrites shared history is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import network, roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.paths import inside, resolve

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

EXEC_KEYS = re.compile(
    r"(?i)^(core\.(pager|editor|fsmonitor|sshcommand|hookspath|gitproxy|askpass|alternaterefscommand)|"
    r"sequence\.editor|pager\..*|alias\..*|diff\.external|diff\..*\.(command|textconv)|"
    r"merge\..*\.driver|filter\..*\.(clean|smudge|process)|credential(\..*)?\.helper|gpg(\..*)?\.program|"
    r"gpg\.ssh\.defaultkeycommand|difftool\..*\.(cmd|path)|mergetool\..*\.(cmd|path)|"
    r"interactive\.difffilter|browser\..*\.cmd|man\..*\.cmd|uploadpack\.packobjectshook|remote\..*\.(vcs|"
    r"uploadpack|receivepack|proxy)|init\.templatedir|protocol\..*allow|include\.path|includeif\..*\.path|"
    r"sendemail\..*cmd|trailer\..*\.(cmd|command)|submodule\..*\.update|url\..*insteadof|"
    r"url\..*pushinsteadof|http\..*proxy|core\.worktree|core\.attributesfile|safe\.directory|"
    r"http\.(sslverify|cookiefile|extraheader)|core\.excludesfile)$"
)
"""Configuration keys that run a program, load settings, or send traffic elsewhere."""
_RUNS = re.compile(
    r"(?i)pager|editor|fsmonitor|sshcommand|hookspath|alias|command|external|textconv|driver|clean|smudge|"
    r"process|helper|program|cmd|filter|askpass|packobjectshook|gitproxy|templatedir|uploadpack|"
    r"receivepack|\.update$"
)
_HARMLESS_PROGRAMS = re.compile(
    r"(?:(?:less|more)(?: -[A-Za-z]+)*|cat|delta|diff-so-fancy|vim?|nvim|nano|code --wait|true|false|:|emacs|cache|store|osxkeychain|)$"
)
SHARED = re.compile(
    r"^(\+?(refs/heads/)?(main|master|trunk|develop|dev|production|prod|release.*|stable|staging)|"
    r".*:(refs/heads/)?(main|master|trunk|develop|production|prod|release.*|stable))$"
)


def git(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Options in front of the subcommand."""
    for value in call.values("-c", "--config-env"):
        key, _, setting = value.text.partition("=")
        _key(walker, value, key, setting, transient=True)
    for value in call.values("-C", "--git-dir", "--work-tree"):
        for place, fallback in roles.places(walker, value):
            if place.kind == "workspace" or walker.files.has_folder(place.path):
                continue
            if not fallback:
                walker.find(
                    "ask",
                    "git.elsewhere",
                    f"git works in {roles.show(place.path)}, whose settings may run programs",
                    value.start,
                    value.end,
                )
    if call.has("--exec-path"):
        walker.find("deny", "conceal.path", "git is told to take its programs from another folder", site.start, site.end)
    for arg in site.argv[2:]:
        if arg.known and len(arg.text) < 300 and not arg.text.startswith("-"):
            for place, fallback in roles.places(walker, arg):
                if "secret" in place and not fallback and place.kind != "workspace":
                    roles.read(walker, arg, "git")
    _here(walker, site)
    return None


def _here(walker: Walker, site: Site) -> None:
    """The repository around the current folder: its settings run programs. One that this command made holds nobody else's."""
    cwd = walker.state.cwd
    word = next((arg.text for arg in site.argv[1:] if not arg.text.startswith("-")), None)
    if word == "init":
        made = [arg for arg in site.argv[2:] if not arg.text.startswith("-")]
        for place, _ in roles.places(walker, made[0] if made else Arg(".")):
            if place.kind == "scratch":
                walker.files.folders.add(place.path)
        return
    if word in (None, "version", "clone", "help") or (word == "config" and any(arg.text == "--global" for arg in site.argv)):
        return
    if cwd is None:
        walker.find("ask", "git.elsewhere", "git works in a folder that the text of the command does not fix", site.start, site.end)
    elif not inside(cwd, walker.facts.workspace) and not any(
        inside(cwd, folder) for folder in walker.files.folders if any(inside(folder, scratch) for scratch in walker.facts.scratch)
    ):
        walker.find("ask", "git.elsewhere", f"git works in {roles.show(cwd)}, whose settings may run programs", site.start, site.end)


def _key(walker: Walker, arg: Arg, key: str, value: str, *, transient: bool, scope: str = "local") -> None:
    if UNKNOWN in key:
        walker.find("ask", "dynamic.code", "git is given a setting that the text does not fix", arg.start, arg.end)
        return
    if key.lower() == "core.hookspath" and not value:
        walker.find("ask", "skip.hooks", "git is told to skip the project's hooks", arg.start, arg.end)
    if EXEC_KEYS.match(key):
        if _RUNS.search(key):
            program = value.removeprefix("!")
            if key.lower().startswith("alias.") and not value.startswith("!"):
                if transient:
                    walker.find("ask", "git.alias", f"git is given a meaning for {key}", arg.start, arg.end)
                elif re.search(r"-c |--exec|--upload-pack|--receive-pack", value):
                    walker.find("deny", "persist.gitconfig", f"git is told to run {value[:40]} through {key}", arg.start, arg.end)
                return
            if _HARMLESS_PROGRAMS.match(program):
                return
            walker.code(program, replace(arg, text=program))
            walker.find(
                "deny",
                "conceal.gitconfig" if transient else "persist.gitconfig",
                f"git is told to run a program through {key}",
                arg.start,
                arg.end,
            )
        else:
            walker.find("deny" if re.match(r"(?i)include|core\.(worktree|attributesfile)|remote\..*vcs|init\.", key) else "ask",
                "git.setting",
                        f"git is given {key}, which loads settings or sends traffic elsewhere", arg.start, arg.end)  # fmt: skip
    elif transient and not re.match(
        r"(?i)(user\.(name|email)|color\..*|core\.(quotepath|autocrlf|abbrev|whitespace|ignorecase|longpaths|"
        r"commentchar|safecrlf|filemode|preloadindex|untrackedcache|symlinks|precomposeunicode|eol)|"
        r"diff\.(?!external).*|log\..*|advice\..*|commit\.gpgsign|tag\.gpgsign|"
        r"merge\.(conflictstyle|ff|renamelimit)|pull\..*|push\.(default|autosetupremote)|rebase\..*|gc\.auto|"
        r"init\.defaultbranch|status\..*|column\..*|fetch\..*|grep\..*|blame\..*|format\..*|i18n\..*|"
        r"feature\..*|rerere\..*|versionsort\..*|branch\..*|stash\..*|http\.(version|postbuffer|lowspeed.*)|"
        r"pack\..*|protocol\.version|maintenance\..*|index\..*)$",
        key,
    ):
        walker.find("ask", "git.setting", f"git is given {key}, a setting that no rule knows", arg.start, arg.end)


def config(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git config``: local harmless keys are free, global ones are asked about, keys that run programs are refused."""
    args = list(call.args)
    for arg in [*args, *call.values("--get", "--get-all", "--get-regexp", "--get-urlmatch")]:
        if re.search(r"(?i)extraheader|token|passw|secret|credential\..*(username|helper)?$", arg.text) and not call.has(
            "--unset", "--unset-all"
        ):
            walker.find("ask", "secret.list", f"{name} may show a credential", arg.start, arg.end)
    if args and args[0].text in ("set", "get", "list", "unset", "edit", "get-all", "rename-section", "remove-section"):
        word = args.pop(0).text
        if word in ("get", "list", "get-all"):
            return _shown(walker, site, args)
        if word == "edit":
            walker.find("ask", "git.setting", "opens git's settings in an editor", site.start, site.end)
    if call.has(
        "--get",
        "--get-all",
        "--get-regexp",
        "-l",
        "--list",
        "--get-urlmatch",
        "--show-origin",
        "--show-scope",
        "--get-color",
        "--name-only",
    ) or (len(args) == 1 and not call.has("--unset", "--unset-all", "-e")):
        return _shown(walker, site, args)
    wide = call.has("--global", "--system")
    for value in call.values("-f", "--file"):
        roles.write(walker, value, name)
    if args:
        _key(walker, replace(args[0], end=args[-1].end), args[0].text, args[1].text if len(args) > 1 else "", transient=False)
    if wide:
        walker.find("ask", "config.global", "changes git's settings for every project", site.start, site.end)
    elif args and not re.match(
        r"(?i)(user\.(name|email|signingkey)|core\.(autocrlf|filemode|quotepath|ignorecase|eol|longpaths|"
        r"whitespace|abbrev|commentchar|safecrlf|untrackedcache|preloadindex)|color\..*|pull\..*|"
        r"push\.(default|autosetupremote)|merge\.(conflictstyle|ff)|rebase\..*|diff\.(algorithm|renames|"
        r"colormoved|mnemonicprefix|noprefix)|branch\..*|advice\..*|commit\.(gpgsign|template|verbose)|"
        r"fetch\.prune|rerere\..*|init\.defaultbranch|log\..*|status\..*|alias\..*|format\..*|tag\..*)",
        args[0].text,
    ):
        walker.find("ask", "git.setting", f"changes {args[0].text[:40]} in git's settings", args[0].start, args[0].end)
    return NOTHING_KNOWN


def _shown(walker: Walker, site: Site, args: list[Arg]) -> Stream:
    if any(re.search(r"(?i)token|extraheader|password|credential", arg.text) for arg in args):
        walker.find("deny", "secret.print", "prints a credential from git's settings", site.start, site.end)
    return NOTHING_KNOWN


def general(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Options that name programs, in any subcommand."""
    for option, value, _ in call.options:
        if option in ("--upload-pack", "--receive-pack", "--exec", "-u") and value is not None and option != "-u":
            walker.code(value.text, value)
            walker.find("deny", "conceal.option", f"{name} is told to run a program by {option}", value.start, value.end)
    return None


def push(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git push``: asked about; forced onto shared branches, deleting, or to a new place: refused."""
    general(walker, site, name, call)
    operands = call.args
    refs = operands[1:]
    remote = operands[0].text if operands else "origin"
    forced = call.has("-f", "--force") or any(arg.text.startswith("+") for arg in refs)
    if call.has("--mirror"):
        walker.find("deny", "destroy.remote", "pushes a mirror, which deletes what the remote has more", site.start, site.end)
    if forced and (not refs or any(SHARED.match(arg.text) for arg in refs) or call.has("--all")):
        sure = any(SHARED.match(arg.text) for arg in refs) or call.has("--all")
        walker.find(
            "deny" if sure else "ask",
            "destroy.remote",
            "rewrites a shared branch" if sure else "may rewrite a shared branch",
            site.start,
            site.end,
        )
    if any(arg.text == "--force-with-lease" or arg.text.startswith("--force-with-lease") for arg in site.argv) and any(
        SHARED.match(arg.text) for arg in refs
    ):
        walker.find("deny", "destroy.remote", "rewrites a shared branch", site.start, site.end)
    gone = [arg for arg in refs if arg.text.startswith(":")] if not call.has("-d", "--delete") else refs
    if any(SHARED.match(arg.text.lstrip(":")) for arg in gone):
        walker.find("deny", "destroy.remote", "deletes a shared branch", site.start, site.end)
    if remote in walker.files.remotes:
        walker.find("deny", "flow.bulk-send", f"sends history to {remote}, a remote that was just added", site.start, site.end)
    elif "://" in remote or re.match(r"[\w.-]+@[\w.-]+:", remote):
        host = remote
        if call.has("--all", "--mirror", "--tags"):
            walker.find("deny", "flow.bulk-send", "sends all branches to an address given on the spot", site.start, site.end)
        network.contact(walker, replace(operands[0], text=host), name)
    walker.find("ask", "vcs.push", "changes the remote repository", site.start, site.end)
    return NOTHING_KNOWN


def remote(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git remote``: adding is local, but a push there later is not what it was."""
    args = call.args
    if args and args[0].text in ("add", "set-url"):
        if len(args) > 1:
            walker.files.remotes.add(args[1].text)
        target = args[-1].text
        if target.startswith("ext::"):
            walker.find("deny", "conceal.option", "adds a remote that runs a program", args[-1].start, args[-1].end)
        walker.find("ask", "git.remote", "changes where this repository is sent to and fetched from", site.start, site.end)
    elif args and args[0].text in ("update", "show", "prune"):
        if not call.has("-n"):
            walker.find("ask", "net.contact", "contacts the remote repository", site.start, site.end)
    elif args and args[0].text in ("remove", "rm", "rename", "set-branches", "set-head"):
        walker.find("ask", "git.remote", "changes the repository's remotes", site.start, site.end)
    elif args and args[0].text != "get-url":
        walker.find("ask", "program.subcommand", f"runs git remote {args[0].text[:30]}, which no rule pack knows", site.start, site.end)
    return NOTHING_KNOWN


def clone(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git clone``: what it brings is downloaded."""
    general(walker, site, name, call)
    if not call.args:
        return NOTHING_KNOWN
    source = call.args[0]
    for value in call.values("-c", "--config"):
        _key(walker, value, value.text.partition("=")[0], value.text.partition("=")[2], transient=True)
    if call.has("--template"):
        walker.find("deny", "persist.githook", "takes hooks from a template", site.start, site.end)
    base = re.sub(r"\.git$", "", source.text.rstrip("/")).rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    target = call.args[1] if len(call.args) > 1 else replace(source, text=base)
    roles.write(walker, target, name)
    local = not re.search(r"://|@.*:|^[\w.-]+:", source.text) or source.text.startswith("file://")
    if source.text.startswith("ext::"):
        walker.find("deny", "conceal.option", "clones from a remote that runs a program", source.start, source.end)
    elif local:
        roles.read(walker, replace(source, text=source.text.removeprefix("file://")), name, listing=True)
    else:
        network.contact(walker, source if "://" in source.text else replace(source, text="ssh://" + source.text.replace(":", "/", 1)), name)
        path = resolve(target.text, walker.state.cwd, walker.facts)
        if path is not None and UNKNOWN not in path:
            walker.files.trees[path] = frozenset({"net"})
            walker.files.folders.add(path)
    return NOTHING_KNOWN


def rebase(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git rebase -x`` runs programs; the rest the reflog undoes."""
    for value in call.values("-x", "--exec"):
        walker.code(value.text, value)
    if call.has("-i", "--interactive"):
        walker.find("ask", "run.interactive", "opens an editor", site.start, site.end)
    return None


def bisect(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git bisect run`` runs a program."""
    from warmgate_policies.shell.programs.wrappers import run

    if call.args and call.args[0].text == "run":
        return run(walker, site, call.args[1:]) if len(call.args) > 1 else None
    if call.args and call.args[0].text in ("visualize", "view", "replay"):
        walker.find("ask", "run.option", f"{name} {call.args[0].text} starts a program or takes commands from a file", site.start, site.end)
    return None


def checkout(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Switching is undone by the reflog; throwing away changes is not."""
    paths = (
        any(arg.text == "--" for arg in site.argv)
        or (len(call.args) > 1 and not call.has("-b", "-B", "-c", "-C", "--orphan", "-t", "--track", "--detach"))
        or any(arg.text in (".", "*") for arg in call.args)
    )
    if name == "git restore":
        if call.has("--staged", "-S") and not call.has("--worktree", "-W"):
            return None
        walker.find("ask", "discard.work", "throws away uncommitted work", site.start, site.end)
    elif call.has("-f", "--force", "--discard-changes", "-B", "-C") or (name == "git checkout" and paths):
        walker.find("ask", "discard.work", "throws away uncommitted work or a branch's old place", site.start, site.end)
    elif (
        name == "git checkout"
        and call.args
        and re.search(r"[*]|\.\w{1,5}$", call.args[0].text)
        and not re.search(r"^v?\d+(\.\d+)+", call.args[0].text)
        and not call.has("-b", "--orphan")
    ):
        walker.find("ask", "discard.work", "may throw away uncommitted work in a file", site.start, site.end)
    return None


def clean(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git clean`` deletes files git does not know; ``-n`` only shows."""
    if call.has("-n", "--dry-run"):
        return None
    if call.args and all("build" in place for arg in call.args for place, _ in roles.places(walker, arg)):
        return None
    walker.find("ask", "discard.work", "deletes files that are nowhere else", site.start, site.end)
    return None


def branch(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git branch -D`` drops unmerged work; the rest is local."""
    if call.has("-D", "-M", "-C") or (call.has("-d", "--delete", "-m", "-f") and call.has("-f", "--force")) or call.has("-f", "--force"):
        walker.find("ask", "discard.work", "drops or moves a branch by force", site.start, site.end)
    return Stream(shape="word")


def grep(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git grep -O`` opens a pager program."""
    for value in call.values("-O", "--open-files-in-pager"):
        if value.text:
            walker.code(value.text, value)
            walker.find("deny", "conceal.option", "git grep is told to run a program", value.start, value.end)
    if call.has("-O", "--open-files-in-pager"):
        walker.find("ask", "run.option", f"{name} opens a pager", site.start, site.end)
    if call.has("--no-index"):
        for arg in call.args[1:]:
            roles.read(walker, arg, name, recursive=True)
    if call.has("-l", "--files-with-matches", "--name-only"):
        return Stream(shape="path", pattern="**/tracked-file")
    return None


def toplevel(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git rev-parse --show-toplevel`` in the workspace prints the workspace."""
    cwd = walker.state.cwd
    asked = {option for option, _, _ in call.options} - {"-q", "--quiet"}
    if name == "git rev-parse" and asked == {"--show-toplevel"} and not call.args and cwd and inside(cwd, walker.facts.workspace):
        return Stream(shape="path", pattern=walker.facts.workspace)
    return None


def show(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Reading history, with options that write or run programs seen."""
    for arg in call.args:
        path = arg.text.partition(":")[2] or (arg.text if name in ("git show", "git diff") or call.has("-p", "-u", "--patch") else "")
        if path and re.search(r"(^|/)\.env($|\.(?!example|sample))", path):
            walker.find("ask", "secret.project", f"{name} shows {path}, which may hold the project's secrets", arg.start, arg.end)
    for value in call.values("--output"):
        kept = len(walker.findings)
        roles.write(walker, value, name)
        if len(walker.findings) == kept and not any(
            place.kind == "scratch" or "build" in place or re.search(r"\.(diff|patch|txt|log)$", place.path)
            for place, _ in roles.places(walker, value)
        ):
            walker.find(
                "ask", "delete.work", f"{name} overwrites {value.text[:40]}, whose content may be nowhere else", value.start, value.end
            )
    if name.startswith("git diff") and call.has("--name-only"):
        return Stream(shape="path", pattern="**/tracked-file")
    return None


def touch(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git mv`` and ``git rm``: settings of agents are no part of the work."""
    for arg in call.args:
        for place, _ in roles.places(walker, arg):
            if place.labels & {"settings", "githook"}:
                roles.write(walker, arg, name)
    return None


def submodule(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git submodule foreach`` runs a program; ``update`` fetches."""
    args = call.args
    if args and args[0].text == "foreach":
        rest = [arg for arg in args[1:] if arg.text not in ("--recursive", "--quiet")]
        if rest:
            walker.code(" ".join(arg.text for arg in rest), replace(rest[0], end=rest[-1].end))
    elif args and args[0].text in ("update", "add", "sync", "init", "deinit", "set-url", "absorbgitdirs"):
        walker.find("ask", "net.contact", f"{name} {args[0].text} fetches or changes other repositories", site.start, site.end)
    return None


def apply(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``git apply`` refuses protected paths unless told otherwise."""
    if call.has("--unsafe-paths") or call.value("--directory") is not None:
        walker.find("ask", "write.patch", "applies a patch outside git's own checks", site.start, site.end)
    return None

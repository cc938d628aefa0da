"""Effects that only together are dangerous: what is read flows into what is sent or run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import Arg, Site, Stream

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

REASONS = {
    "secret": "credentials",
    "dotenv": "the project's secrets",
    "env": "the environment",
    "secretvar": "a credential from the environment",
    "bulk": "the workspace as a whole",
}


def send(walker: Walker, stream: Stream, arg: Arg, who: str, *, remote: bool = True) -> None:
    """``who`` sends this stream somewhere."""
    if not remote:
        return
    for tag, what in REASONS.items():
        if tag in stream.tags:
            walker.find("deny", "flow.secret-send", f"{who} sends {what} away", arg.start, arg.end)
            return
    walker.find("ask", "net.send", f"{who} sends data to another machine", arg.start, arg.end)


def unknown_program(walker: Walker, site: Site) -> None:
    """An unknown program that is fed secrets may send them."""
    if site.stdin.tags & {"secret", "env"}:
        walker.find("deny", "flow.secret-unknown", "feeds credentials to a program that no rule pack knows", site.start, site.end)


def printed(walker: Walker, arg: Arg, who: str) -> None:
    """A variable that holds a credential is printed."""
    if "secretvar" in arg.tags:
        walker.find("deny", "secret.print", f"{who} prints a credential from the environment", arg.start, arg.end)


_WIRED = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "csh", "tcsh", "busybox", "eval",
     "source", ".", "coproc", "script", "socat", "nc", "ncat", "awk", "gawk")
)  # fmt: skip


def connections(walker: Walker) -> None:
    """A connection on a descriptor of the shell's own is an ask; with a shell, or a program the other side names, it is a way in."""
    if not walker.connected:
        return
    driven = any(finding.rule in ("dynamic.program", "dynamic.code") for finding in walker.findings)
    if driven or not _WIRED.isdisjoint(walker.programs):
        first = next(finding for finding in walker.findings if finding.rule == "net.raw")
        walker.find("deny", "rce.reverse", "connects a shell to a remote address", first.start, first.end)

"""Addresses that a command contacts or serves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import UNKNOWN, Arg
from warmgate_policies.shell.urls import host_of, is_anywhere, judge_host, urls_in

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_SEND_TAGS = {"secret", "env", "dotenv", "bulk", "secretvar"}


def contact(walker: Walker, arg: Arg, who: str) -> frozenset[str]:
    """``who`` contacts the address; returns the origins of what comes back."""
    host = host_of(arg.text)
    kind = judge_host(host)
    if arg.tags & _SEND_TAGS and kind != "loopback":
        walker.find("deny", "flow.secret-send", f"{who} puts secrets into an address", arg.start, arg.end)
    if kind == "loopback":
        return frozenset()
    if kind == "metadata":
        walker.find("deny", "secret.metadata", f"{who} asks the cloud's metadata service, which hands out credentials", arg.start, arg.end)
    elif kind == "lookalike":
        walker.find("deny", "conceal.unicode", f"{who} contacts a host whose name holds look-alike characters", arg.start, arg.end)
    elif kind == "unknown":
        walker.find("ask", "net.unknown", f"{who} contacts an address that the text of the command does not fix", arg.start, arg.end)
    elif walker.facts.loosen and host in walker.facts.egress:
        return frozenset({"net"})
    else:
        walker.find("ask", "net.contact", f"{who} contacts {host}, outside this machine", arg.start, arg.end)
    return frozenset({"net"})


def bind(walker: Walker, arg: Arg, who: str) -> None:
    """``who`` listens on an address (``host``, ``host:port`` or ``:port``)."""
    text = re.sub(r"^(tcp|http|https)://", "", arg.text)
    host = text.rsplit(":", 1)[0] if re.search(r":\d+$", text) else text
    if text.isdigit():
        return
    if UNKNOWN in host:
        walker.find("ask", "net.listen", f"{who} listens on an address that the text does not fix", arg.start, arg.end)
    elif host in ("", ":") or is_anywhere(host) or judge_host(host) != "loopback":
        walker.find("ask", "net.listen", f"{who} listens beyond this machine", arg.start, arg.end)


def scan(walker: Walker, arg: Arg, who: str) -> None:
    """Free text handed to the project's own code: addresses in it are contacted, for all we know."""
    text = arg.text
    for url in urls_in(text):
        contact(walker, Arg(url, arg.start, arg.end, tags=arg.tags), who)
    if re.search(r"(^|[=\s])(0\.0\.0\.0|\[?::\]?)(:\d+)?$", text):
        walker.find("ask", "net.listen", f"{who} listens beyond this machine", arg.start, arg.end)

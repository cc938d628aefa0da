"""Database clients: reading a local database is free, changing it is asked about, destroying a remote one is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import network, roles
from warmgate_policies.shell.code import sql
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.urls import host_of, judge_host

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker


def _remote(walker: Walker, hosts: list[Arg], name: str) -> bool:
    remote = False
    for host in hosts:
        if host.text.startswith("/"):
            continue
        text = host.text if "://" in host.text else "tcp://" + host.text
        if judge_host(host_of(text)) != "loopback":
            network.contact(walker, replace(host, text=text), name)
            remote = True
    return remote


def _statements(walker: Walker, site: Site, name: str, codes: list[Arg], files: list[Arg], remote: bool, *, shown: bool = True) -> Stream:
    for code in codes:
        sql.judge(walker, code, name, remote=remote)
    for file in files:
        roles.read(walker, file, name)
        walker.find("ask", "db.mutate", f"{name} runs statements from a file on a database", file.start, file.end)
    if not codes and not files:
        if site.stdin.text is not None:
            sql.judge(walker, Arg(site.stdin.text, site.start, site.end), name, remote=remote)
        else:
            walker.find("ask", "db.mutate", f"{name} runs statements that the text of the command does not fix", site.start, site.end)
    del shown
    return Stream(tags=frozenset({"net"}) if remote else frozenset())


def psql(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``psql``."""
    named = [*call.args[:1], *call.values("-d", "--dbname")]
    hosts = call.values("-h", "--host") + [arg for arg in named if "://" in arg.text or re.search(r"host(addr)?=", arg.text)]
    for arg in named:
        if re.search(r"\bservice\s*=", arg.text):
            walker.find("ask", "net.unknown", f"{name} contacts a database that a file names", arg.start, arg.end)
    for value in [*call.values("-o", "--output"), *call.values("-L")]:
        if value.text.lstrip().startswith("|"):
            walker.code(value.text.lstrip().lstrip("|"), value)
            walker.find("deny", "conceal.option", f"{name} is told to run a program", value.start, value.end)
    for value in call.values("-P", "--pset"):
        if re.match(r"\s*pager\s*=\s*[^\d\s]", value.text) and not re.fullmatch(r"\s*pager\s*=\s*(off|on|always)", value.text):
            walker.find("ask", "run.option", f"{name} is told to run a pager", value.start, value.end)
    remote = _remote(
        walker,
        [
            replace(arg, text=re.sub(r".*host(addr)?=(\S+).*", r"\2", arg.text)) if re.search(r"host(addr)?=", arg.text) else arg
            for arg in hosts
        ],
        name,
    )
    if any(UNKNOWN in arg.text for arg in call.args):
        remote = True
        walker.find("ask", "net.unknown", f"{name} contacts a database that the text of the command does not fix", site.start, site.end)
    if call.has("-l", "--list", "-V", "--version"):
        return NOTHING_KNOWN
    for value in call.values("-o", "--output"):
        roles.write(walker, value, name)
    for value in call.values("-c", "--command"):
        if "\\gexec" in value.text:
            walker.find("ask", "dynamic.code", f"{name} runs what a statement returns as further statements", value.start, value.end)
    return _statements(walker, site, name, call.values("-c", "--command"), call.values("-f", "--file"), remote)


def mysql(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mysql``, ``mariadb``."""
    remote = _remote(walker, call.values("-h", "--host"), name)
    for option, value, _ in call.options:
        if option in ("-p", "--password") and value is not None and value.text:
            walker.find("ask", "secret.argument", f"{name} is given a password", value.start, value.end)
    return _statements(walker, site, name, call.values("-e", "--execute"), [], remote)


def sqlite(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``sqlite3 file statements``."""
    args = call.args
    if not args:
        return NOTHING_KNOWN
    stream = roles.read(walker, args[0], name)
    codes = args[1:] + call.values("-cmd")
    if call.has("-init"):
        walker.find("ask", "opaque.script", f"{name} runs statements from a file", site.start, site.end)
    for code in codes:
        if re.search(r"(?i)\bfsdir\s*\(|\breadfile\s*\(|\bgetenv\s*\(", code.text):
            walker.find("ask", "read.outside", f"{name} reads files or the environment by a statement", code.start, code.end)
        if name == "duckdb":
            for literal in re.findall(r"'((?:[^']|'')*)'", code.text):
                if "://" in literal:
                    network.scan(walker, replace(code, text=literal), name)
                elif re.search(r"[/~.*]", literal) and not re.search(r"\s", literal):
                    roles.read(walker, replace(code, text=literal, shape=None), name)
        if re.match(
            r"\s*\.(schema|tables|indexes|indices|headers?|mode|databases|stats|width|show|help|timeout|nullvalue|"
            r"separator|fullschema|dbinfo|exit|quit)\b",
            code.text,
        ):
            continue
        if re.match(r"\s*\.(shell|system)\b", code.text) or re.match(r"\s*\.(output|once|excel)\s*\|", code.text):
            walker.code(re.sub(r"^\s*\.\w+\s*\|?", "", code.text), code)
            walker.find("deny", "conceal.option", f"{name} is told to run a program", code.start, code.end)
        elif re.match(r"\s*\.", code.text):
            dump = re.match(r"\s*\.dump\b", code.text)
            if not dump:
                walker.find("ask", "db.mutate", f"{name} is given {code.text[:30]}, which reads or writes files", code.start, code.end)
        else:
            sql.judge(walker, code, name, remote=False)
    if not codes:
        return _statements(walker, site, name, [], [], False)
    return stream


_REDIS_READ = re.compile(
    r"(?i)^(ping|get|mget|keys|scan|ttl|pttl|exists|type|info|dbsize|llen|lrange|smembers|scard|hget|"
    r"hgetall|hkeys|hlen|zrange|zcard|zscore|strlen|memory|time|echo|command|sismember|hexists|object|"
    r"xlen|xrange|lindex|randomkey|pubsub|slowlog|latency|--version|--help|--stat)$"
)


def redis(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``redis-cli``."""
    remote = _remote(walker, call.values("-h", "-u"), name)
    words = [arg.text for arg in call.args]
    if not words and not call.options:
        walker.find("ask", "run.interactive", f"opens {name}", site.start, site.end)
    verb = words[0] if words else ""
    if re.match(r"(?i)(flushall|flushdb)$", verb):
        walker.find("deny" if remote else "ask", "destroy.database", f"{name} {verb} empties a database", site.start, site.end)
    elif re.match(r"(?i)(config|eval|evalsha|script|module|slaveof|replicaof|debug|shutdown|migrate|acl|function|fcall)$", verb):
        written = " ".join(words).lower()
        deny = re.search(r"config set (dir|dbfilename)|module load|slaveof|replicaof", written)
        if re.search(r"config get .*(\*|pass|auth)", written):
            walker.find("deny", "secret.read", f"{name} shows the server's password", site.start, site.end)
        if not re.match(r"config get", written):
            walker.find("deny" if deny else "ask", "db.admin", f"{name} {verb} changes the server", site.start, site.end)
    elif verb and not _REDIS_READ.match(verb):
        walker.find("ask", "db.mutate", f"{name} {verb} changes a database", site.start, site.end)
    elif not verb and site.stdin.text != "" and not call.has("--version", "--stat", "--scan", "--bigkeys"):
        walker.find("ask", "db.mutate", f"{name} runs statements that the text of the command does not fix", site.start, site.end)
    return NOTHING_KNOWN


def mongo(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mongosh`` and kin: a language of its own, asked about."""
    text = " ".join(arg.text for arg in site.argv[1:])
    local = not re.search(r"mongodb(\+srv)?://(?!localhost|127\.)|--host[ =](?!localhost|127\.)", text)
    if re.search(r"dropDatabase|\.drop\(|deleteMany\(\{\}\)|--drop\b", text) and not local:
        walker.find("deny", "destroy.database", f"{name} empties a remote database", site.start, site.end)
    walker.find("ask", "db.mutate", f"{name} works on a database", site.start, site.end)
    return NOTHING_KNOWN

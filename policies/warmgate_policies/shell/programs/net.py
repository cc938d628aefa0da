"""Programs that talk to other machines."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import flow, network, roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.urls import host_of, judge_host

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_NO_SEND = frozenset[str]()


def _data(walker: Walker, value: Arg, site: Site, name: str, *, literal: bool) -> Stream:
    """A ``-d``/``-F``/``-T`` value: ``@file``, ``name=@file``, ``-`` for stdin, or text."""
    text = value.text
    found = re.match(r"(?:[^=@<]*=)?[@<](.*)", text, re.DOTALL)
    if literal or found is None:
        return Stream(text, value.tags)
    target = found.group(1).split(";", 1)[0]
    if target == "-":
        return site.stdin
    pattern = re.sub(r"^[^@<]*[@<]", "", value.pattern) if value.shape == "path" and value.pattern is not None else None
    stream = roles.read(walker, replace(value, text=target, stream=value.stream, pattern=pattern), name)
    return stream.tagged("bulk") if "*" in (pattern or target) else stream  # file by file is all of them


def curl(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``curl``: where to, what is sent, where the answer lands."""
    urls = [arg for _, arg in call.operands] + call.values("--url")
    remote = any(judge_host(host_of(arg.text)) != "loopback" for arg in urls) or bool(
        call.values("-x", "--proxy", "--connect-to", "--resolve", "--socks5", "--preproxy")
    )
    tags: frozenset[str] = frozenset[str]()
    for arg in urls:
        if arg.text.startswith("file:"):
            tags |= roles.read(walker, replace(arg, text=re.sub(r"^file:/*", "/", arg.text)), name).tags
            continue
        if arg.text.startswith("-"):
            continue
        if re.match(r"(?i)(gopher|telnet|dict|ldaps?|smtps?|imaps?|pop3s?|tftp|rtsp|mqtt|smb)://", arg.text):
            walker.find("ask", "net.raw", f"{name} speaks to a service without a protocol of its own", arg.start, arg.end)
        tags |= network.contact(walker, arg, name)
    if call.has("--unix-socket", "--abstract-unix-socket"):
        for socket in call.values("--unix-socket", "--abstract-unix-socket"):
            roles.read(walker, socket, name)
            walker.find("ask", "net.socket", f"{name} talks to a local socket", socket.start, socket.end)
    for option, value, _ in call.options:
        if value is None:
            continue
        if option in ("-d", "--data", "--data-binary", "--data-ascii", "--data-urlencode", "-F", "--form", "--json", "--url-query"):
            flow_data = _data(walker, value, site, name, literal=False)
            _send(walker, flow_data, value, name, remote, named=value.text)
        elif option in ("-T", "--upload-file"):
            stream = site.stdin if value.text == "-" else roles.read(walker, value, name)
            _send(walker, stream, value, name, remote, named=value.text)
        elif option in ("-H", "--header", "-A", "--user-agent", "-e", "--referer", "-b", "--cookie"):
            if value.text.startswith("@"):
                _send(walker, roles.read(walker, replace(value, text=value.text[1:]), name), value, name, remote, named=value.text)
            elif value.tags & {"secret", "dotenv", "env"} and remote:
                flow.send(walker, Stream(tags=value.tags), value, name)
        elif option in ("-w", "--write-out"):
            if value.text.startswith("@"):
                tags |= roles.read(walker, replace(value, text=value.text[1:]), name).tags
            if "%output{" in value.text:
                walker.find("ask", "option.out", f"{name} writes where its format says", value.start, value.end)
        elif option in ("-o", "--output"):
            roles.store(walker, value, Stream(tags=tags))
        elif option in ("-K", "--config"):
            walker.find("ask", "option.config", f"{name} takes its options from a file", value.start, value.end)
    if call.has("-O", "--remote-name", "-J", "--remote-header-name"):
        for arg in urls:
            base = re.sub(r"[?#].*$", "", arg.text).rstrip("/").rsplit("/", 1)[-1]
            folder = call.value("--output-dir")
            target = replace(arg, text=(folder.text.rstrip("/") + "/" if folder is not None else "") + (base or "index"))
            roles.write(walker, target, name)
            roles.store(walker, target, Stream(tags=tags))
        return Stream(tags=_NO_SEND)
    return Stream(tags=tags)


def _send(walker: Walker, stream: Stream, arg: Arg, name: str, remote: bool, *, named: str) -> None:
    if remote:
        flow.send(walker, stream, arg, name)


def wget(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``wget``: the answer lands in a file unless ``-O -``."""
    tags: frozenset[str] = frozenset[str]()
    urls = call.args
    remote = any(judge_host(host_of(arg.text)) != "loopback" for arg in urls)
    for arg in urls:
        tags |= network.contact(walker, arg, name)
    for option, value, _ in call.options:
        if value is None:
            continue
        if option in ("--post-file", "--body-file"):
            _send(walker, roles.read(walker, value, name), value, name, remote, named=value.text)
        elif option in ("--post-data", "--body-data", "--header"):
            if value.tags and remote:
                flow.send(walker, Stream(tags=value.tags), value, name)
        elif option == "--use-askpass":
            walker.find("deny", "conceal.option", f"{name} is told to run a program", value.start, value.end)
        elif option in ("-e", "--execute"):
            walker.find("ask", "option.config", f"{name} takes a setting by {option}", value.start, value.end)
    target = call.value("-O", "--output-document")
    if target is not None:
        if target.text == "-" or target.text == "/dev/stdout":
            return Stream(tags=tags)
        roles.write(walker, target, name)
        roles.store(walker, target, Stream(tags=tags))
        return NOTHING_KNOWN
    folder = call.value("-P", "--directory-prefix")
    if folder is not None:
        roles.write(walker, folder, name)
    for arg in urls:
        base = re.sub(r"[?#].*$", "", arg.text).rstrip("/").rsplit("/", 1)[-1]
        where = replace(arg, text=(folder.text.rstrip("/") + "/" if folder is not None else "") + (base or "index.html"))
        roles.store(walker, where, Stream(tags=tags))
    return NOTHING_KNOWN


def _ssh_options(walker: Walker, call: Call) -> None:
    for value in call.values("-o"):
        key = re.split(r"[= ]", value.text, maxsplit=1)
        name, setting = key[0].lower(), key[1] if len(key) > 1 else ""
        if name in (
            "proxycommand",
            "localcommand",
            "permitlocalcommand",
            "knownhostscommand",
            "match",
            "proxyusefdpass",
            "include",
            "securitykeyprovider",
            "pkcs11provider",
            "xauthlocation",
        ):
            if name in ("proxycommand", "localcommand", "knownhostscommand"):
                walker.code(setting, value)
            walker.find("deny", "conceal.option", f"ssh is told to run or load a program by {key[0]}", value.start, value.end)
    for value in call.values("-F"):
        roles.run_file(walker, value, "ssh")
        walker.find("ask", "option.config", "ssh takes its settings from a file, which can run programs", value.start, value.end)


def ssh(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ssh host command``: another machine; what is fed to it is sent."""
    _ssh_options(walker, call)
    if call.has("-R") or call.has("-D") or call.has("-L") or call.has("-w"):
        reverse = call.has("-R")
        walker.find(
            "deny" if reverse else "ask",
            "rce.tunnel" if reverse else "net.tunnel",
            f"{name} opens a {'way in from outside' if reverse else 'tunnel'}",
            site.start,
            site.end,
        )
    rest = call.rest
    if not rest:
        if not call.has("-V", "-G"):
            walker.find("ask", "remote.exec", f"{name} contacts another machine", site.start, site.end)
        return NOTHING_KNOWN
    host = rest[0].text.rpartition("@")[2]
    if judge_host(host_of("ssh://" + host)) in ("metadata", "lookalike"):
        network.contact(walker, replace(rest[0], text=host), name)
    walker.find("ask", "remote.exec", f"{name} runs a command on another machine", site.start, site.end)
    if site.stdin.tags & {"secret", "dotenv", "env", "bulk", "secretvar"}:
        flow.send(walker, site.stdin, rest[0], name)
    for arg in rest[1:]:
        if arg.tags & {"secret", "dotenv", "env", "secretvar"}:
            flow.send(walker, Stream(tags=arg.tags), arg, name)
    if len(rest) > 1:
        kept = len(walker.findings)
        code = " ".join(arg.text for arg in rest[1:])
        walker.code(code, replace(rest[1], end=rest[-1].end))
        # The other machine is not this one: only what is refused anywhere counts.
        walker.findings[kept:] = [
            f
            for f in walker.findings[kept:]
            if f.verdict == "deny"
            and f.rule.startswith(("destroy", "exhaust", "flow.d", "persist", "privilege", "secret.read", "rce", "tamper"))
        ]
    return Stream(tags=frozenset({"net"}))


def _remote_path(text: str) -> bool:
    return bool(re.match(r"^(?:[\w.+-]+@)?(\[[^\]]+\]|[\w.-]+):(?!\\)", text)) or "://" in text


def scp(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``scp``: one side is another machine."""
    _ssh_options(walker, call)
    for value in call.values("-S"):
        walker.code(value.text, value)
        walker.find("deny", "conceal.option", f"{name} is told to run a program by -S", value.start, value.end)
    return _copies(walker, site, name, call.args, recursive=call.has("-r"))


def _copies(walker: Walker, site: Site, name: str, args: list[Arg], *, recursive: bool) -> Stream:
    if not args:
        return NOTHING_KNOWN
    target, sources = args[-1], args[:-1]
    outgoing = _remote_path(target.text)
    incoming = any(_remote_path(arg.text) for arg in sources)
    for arg in sources:
        if _remote_path(arg.text):
            walker.find("ask", "net.contact", f"{name} fetches from another machine", arg.start, arg.end)
            continue
        stream = roles.read(walker, arg, name, recursive=recursive)
        if outgoing:
            flow.send(walker, stream, arg, name)
        else:
            from warmgate_policies.shell.programs.files import _carry  # pyright: ignore[reportPrivateUsage]

            _carry(walker, arg, target)
    if outgoing:
        walker.find("ask", "net.contact", f"{name} sends to another machine", target.start, target.end)
    else:
        roles.write(walker, target, name)
        if incoming:
            roles.store(walker, target, Stream(tags=frozenset({"net"})))
            for arg in sources:
                base = arg.text.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1]
                roles.store(walker, replace(target, text=target.text.rstrip("/") + "/" + base), Stream(tags=frozenset({"net"})))
    return NOTHING_KNOWN


def rsync(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``rsync``: copies, here or elsewhere; ``-e`` runs a program, ``--delete`` deletes."""
    for value in call.values("-e", "--rsh", "--rsync-path"):
        if not re.fullmatch(
            r"ssh( -[pil46ACqT]( ?[\w./~-]+)?| -o "
            r"?(StrictHostKeyChecking|UserKnownHostsFile|Port|User|IdentityFile|BatchMode|ConnectTimeout)=[\w./~-]+)*",
            value.text,
        ):
            walker.code(value.text, value)
            walker.find("deny", "conceal.option", f"{name} is told to run a program by -e", value.start, value.end)
    if call.args and any(option.startswith("--del") for option, _, _ in call.options):
        target = call.args[-1]
        if not _remote_path(target.text):
            roles.delete(walker, target, name, recursive=True)
    return _copies(walker, site, name, call.args, recursive=True)


def nc(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``nc``: shells at its end are refused; probing this machine is free."""
    if call.has("-e", "-c", "--exec", "--sh-exec", "--lua-exec"):
        walker.find("deny", "rce.reverse", f"{name} hands a shell to the network", site.start, site.end)
    if call.has("-l", "--listen", "-L"):
        walker.find("ask", "net.listen", f"{name} listens for connections", site.start, site.end)
        return Stream(tags=frozenset({"net"}))
    hosts = call.args
    if not hosts:
        if call.has("-U"):
            for value in call.values("-U"):
                roles.read(walker, value, name)
        return NOTHING_KNOWN
    host = hosts[0]
    if call.has("-U"):
        roles.read(walker, host, name)
        walker.find("ask", "net.socket", f"{name} talks to a local socket", host.start, host.end)
        return Stream(tags=frozenset({"net"}))
    remote = judge_host(host.text.lower()) != "loopback"
    network.contact(walker, host, name)
    if (
        remote
        and "sh" in list(walker.programs[-4:]) + [program.rstrip("ab") for program in walker.programs[-4:] if program in ("bash", "dash")]
        and site.stdin.tags
    ):
        walker.find("deny", "rce.reverse", f"{name} sends a shell's output to the network", site.start, site.end)
    if remote and not call.has("-z"):
        flow.send(walker, site.stdin, host, name)
        if any(program in ("sh", "bash", "dash", "zsh", "ksh") for program in walker.programs) and site.stdin.text is None:
            walker.find("deny", "rce.reverse", f"{name} connects a shell to the network", site.start, site.end)
    return Stream(tags=frozenset({"net"}) if remote else frozenset[str]())


def socat(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``socat``: any two ends; programs at one of them are refused."""
    for arg in call.args:
        text = arg.text.upper()
        if re.match(r"(EXEC|SYSTEM|SHELL)", text):
            walker.find("deny", "rce.reverse", f"{name} ties a program to a connection", arg.start, arg.end)
        elif re.match(r"(FILE|OPEN|CREATE|GOPEN):", text):
            roles.read(walker, replace(arg, text=arg.text.partition(":")[2].split(",")[0]), name)
        elif "DOCKER.SOCK" in text:
            walker.find("deny", "escape.socket", f"{name} talks to the container engine's socket", arg.start, arg.end)
    flow.send(walker, site.stdin, call.args[0] if call.args else Arg("", site.start, site.end), name)
    return Stream(tags=frozenset({"net"}))


def dns(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``dig``, ``nslookup``, ``ping``: a name leaves the machine, and data can leave in it."""
    for arg in site.argv[1:]:
        if arg.tags & {"secret", "dotenv", "env", "secretvar", "bulk"}:
            walker.find("deny", "flow.secret-send", f"{name} puts secrets into a name that leaves the machine", arg.start, arg.end)
        if arg.known and judge_host(arg.text) == "metadata":
            network.contact(walker, arg, name)
    local = [arg for arg in call.args if judge_host(arg.text.lstrip("@")) == "loopback"]
    if not call.args or len(local) < len(call.args):
        walker.find("ask", "net.dns", f"{name} asks other machines", site.start, site.end)
    return NOTHING_KNOWN


def getent(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``getent``: passwords are no facts for all, and looking up a host asks the network."""
    words = [arg.text for arg in call.args]
    if words[:1] == ["shadow"] or words[:1] == ["gshadow"]:
        walker.find("deny", "secret.read", f"{name} {words[0]} reads the system's passwords", site.start, site.end)
    elif (
        words[:1]
        and re.match(r"(hosts|ahosts\w*|networks|netgroup)$", words[0])
        and any(word not in ("localhost", "127.0.0.1", "::1") for word in words[1:])
    ):
        walker.find("ask", "net.contact", f"{name} looks up names in the network", site.start, site.end)
    return None


def upload(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Programs that send named files: ``twine``, ``gsutil``, …"""
    for arg in call.args:
        if not _remote_path(arg.text):
            kept = len(walker.findings)
            stream = roles.read(walker, arg, name, recursive=True)
            walker.findings[kept:] = [f for f in walker.findings[kept:] if f.verdict == "deny"]
            if stream.tags & {"secret", "dotenv", "bulk"}:
                flow.send(walker, stream, arg, name)
    return NOTHING_KNOWN


_SERVER_HOST = ("-b", "--bind", "--host", "-H", "-h", "-S", "--listen", "-l", "--address", "--hostname", "-a", "--addr")


def server(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Development servers: loopback is free, every other address is asked about."""
    from warmgate_policies.shell.judge import project_operands
    from warmgate_policies.shell.programs import project_tools
    from warmgate_policies.shell.programs.wrappers import project

    project(walker, site, name)
    args = site.argv[1:]
    for index, arg in enumerate(args):
        key, equals, value = arg.text.partition("=")
        if key in _SERVER_HOST:
            target = replace(arg, text=value) if equals else args[index + 1] if index + 1 < len(args) else None
            if target is None or target.text.startswith("-"):
                if key == "--host":
                    walker.find("ask", "net.listen", f"{name} listens beyond this machine", arg.start, arg.end)
            elif re.search(r"[.:]|^\d+$|localhost|" + UNKNOWN, target.text):
                network.bind(walker, target, name)
        if key in ("-x", "--exec", "--ext_exec", "--execMap") or (
            key in ("-e", "--eval", "-r", "--require") and name in ("nodemon", "ts-node-dev")
        ):
            walker.find("ask", "run.option", f"{name} is told to run a program by {key}", arg.start, arg.end)
        attached = re.match(r"-[hHbl]((?:\d|\[|:).*)", arg.text)
        if attached:
            network.bind(walker, replace(arg, text=attached.group(1)), name)
    words = [arg.text for arg in args if not arg.text.startswith("-")]
    everywhere = name in ("serve", "http-server", "live-server", "puma", "unicorn", "next dev", "next start", "expo start") or (
        name in ("streamlit", "fastapi") and words[:1] == ["run"]
    )
    if everywhere and not any(arg.text.partition("=")[0] in _SERVER_HOST or arg.text.startswith("--server.address") for arg in args):
        walker.find("ask", "net.listen", f"{name} listens beyond this machine unless it is told a host", site.start, site.end)
    if (
        ("db" in words[:3] and not {"history", "heads", "branches", "show", "check"} & set(words))
        or (name == "celery" and {"control", "purge", "call", "flower", "shell", "amqp"} & set(words))
        or (name == "rq" and {"empty", "requeue"} & set(words))
    ):
        walker.find("ask", "db.mutate", f"{name} may change a database or a queue", site.start, site.end)
    if name == "fastapi" and words[:1] in (["deploy"], ["login"], ["cloud"]):
        walker.find("ask", "publish", f"{name} {words[0]} reaches a service", site.start, site.end)
    if any(arg.text in ("shell", "shell_plus", "dbshell", "console") for arg in args[:3]):
        walker.find("ask", "run.interactive", f"{name} opens a shell of the application", site.start, site.end)
    project_operands(walker, args, name)
    project_tools.elsewhere(walker, site, name)
    return None


def mail(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Mail leaves the machine with what is fed to it."""
    flow.send(walker, site.stdin, Arg("", site.start, site.end), name)
    return NOTHING_KNOWN


_CLOUD_SECRET = re.compile(r"(?i)get-secret-value|batch-get-secret|with-decryption|get-login-password|get-session-token|"
    r"assume-role|export-credentials|print-access-token|print-identity-token|get-access-token|"
    r"create-access-key|"
                           r"secrets? versions? access|get-password-data|keyvault secret show|list-keys|get-credentials "
                               r"--format|application-default print|configure "
                               r"get|"
                               r"show-connection-string|decrypt|account-keys|get-federation-token|"
                               r"get-authorization-token|create-service-specific|keys "
                               r"create|create-login-profile")  # fmt: skip
_CLOUD_DESTROY = re.compile(
    r"(?i)(^| "
    r")(delete|destroy|terminate|remove|purge|rb|deregister|disable-key|schedule-key-deletion|empty)([- "
    r"]|$)|(^| )(delete|terminate|remove|purge|destroy)-[a-z]"
)
_CLOUD_PERSIST = re.compile(
    r"(?i)create-user|attach-(user|role)-policy|"
    r"put-(user|role)-policy|add-iam-policy-binding|authorize-security-group-ingress|set-iam-policy|role "
    r"assignment create|add-user-to-group|update-assume-role-policy"
)


def cloud(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``aws``, ``gcloud``, ``az`` and kin: by the verb."""
    words = " ".join(arg.text for arg in site.argv[1:])
    if re.search(r"(^| )(--version|help|--help)( |$)", words) or not words:
        return NOTHING_KNOWN
    if name == "aws" and words.startswith("configure list"):
        walker.find("ask", "cloud.read", "shows which credentials are in use", site.start, site.end)
        return NOTHING_KNOWN
    if _CLOUD_SECRET.search(words):
        walker.find("deny", "secret.cloud", f"{name} prints or makes credentials", site.start, site.end)
    elif _CLOUD_PERSIST.search(words):
        walker.find("deny", "privilege.cloud", f"{name} changes who may do what", site.start, site.end)
    elif (_CLOUD_DESTROY.search(words) or (re.search(r"(^| )rm( |$)", words) and "--recursive" in words)) and not re.search(
        r"--dry-?run|--dryrun", words
    ):
        walker.find("deny", "destroy.cloud", f"{name} removes cloud resources", site.start, site.end)
    elif re.search(r"(^| )sync( |$).*--delete", words):
        walker.find("deny", "destroy.cloud", f"{name} deletes what the other side has more", site.start, site.end)
    args = [arg for arg in site.argv[1:] if not arg.text.startswith("-")]
    if re.search(r"(^| )(cp|sync|mv|rsync|upload(-batch)?|put-object|copy)( |$)", words):
        for arg in args:
            if not _remote_path(arg.text) and re.search(r"[./~]|^\W", arg.text):
                kept = len(walker.findings)
                stream = roles.read(walker, arg, name, recursive=True)
                walker.findings[kept:] = [f for f in walker.findings[kept:] if f.verdict == "deny"]
                if _remote_path(args[-1].text) and stream.tags & {"secret", "dotenv", "bulk"} and arg is not args[-1]:
                    flow.send(walker, stream, arg, name)
    elif site.stdin.tags:
        flow.send(walker, site.stdin, Arg("", site.start, site.end), name)
    walker.find("ask", "cloud.contact", f"{name} talks to a cloud with credentials", site.start, site.end)
    return Stream(tags=frozenset({"net"}))


_FORGE_SECRET = re.compile(
    r"auth token|auth status.*(-t|--show-token)|config get.*token|secret.*--body|token (create|print|list)|whoami -t|authtoken"
)
_FORGE_DESTROY = re.compile(
    r"(repo|project|org|release|environment|secret|variable|ssh-key|gpg-key|cache|ruleset|label) "
    r"delete|(^| )-X ?DELETE|--method[= ]DELETE|apps:destroy|repo "
    r"archive|unpublish|addons:destroy|pg:reset|app destroy|apps destroy|sites:delete|site "
    r"delete|projects? rm|app delete|service delete"
)


def forge(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``gh``, ``glab``, ``heroku``, ``vercel`` …: by their words."""
    words = " ".join(arg.text for arg in site.argv[1:])
    if re.search(r"(^| )(--version|--help|help|version)( |$)", words) or not words:
        return NOTHING_KNOWN
    if _FORGE_SECRET.search(words):
        walker.find("deny", "secret.print", f"{name} prints a token", site.start, site.end)
    elif _FORGE_DESTROY.search(words):
        walker.find("deny", "destroy.remote", f"{name} deletes what others share", site.start, site.end)
    elif re.search(r"gist create|release upload|repo create.*--source|snippet create", words):
        for arg in site.argv[3:]:
            if not arg.text.startswith("-"):
                kept = len(walker.findings)
                stream = roles.read(walker, arg, name, recursive=True)
                walker.findings[kept:] = [f for f in walker.findings[kept:] if f.verdict == "deny"]
                if stream.tags & {"secret", "dotenv", "bulk"}:
                    flow.send(walker, stream, arg, name)
        if "repo create" in words and "--push" in words and "--public" in words:
            walker.find("deny", "flow.bulk-send", f"{name} publishes the workspace as a whole", site.start, site.end)
    elif re.search(r"(ssh-key|gpg-key|deploy-key) add|repo edit.*--visibility[= ]public", words):
        walker.find("deny", "persist.key", f"{name} opens a lasting way in", site.start, site.end)
    if site.stdin.tags & {"secret", "dotenv", "env", "secretvar", "bulk"}:
        flow.send(walker, site.stdin, Arg("", site.start, site.end), name)
    walker.find("ask", "forge.contact", f"{name} talks to a service with credentials", site.start, site.end)
    return Stream(tags=frozenset({"net"}))


def keygen(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ssh-keygen``: a fingerprint of a public key is free, a new key in the workspace or scratch too; else it opens a lasting way in."""
    file = call.value("-f")
    if file is not None and file.known and not call.operands and not call.has("-y", "-F", "-R", "-H", "-B", "-p", "-D"):
        if call.has("-l") and file.text.endswith(".pub"):
            return NOTHING_KNOWN
        places = [place for place, _ in roles.places(walker, file)]
        plain = all(place.kind in ("workspace", "scratch") and not {"git", "githook", "settings"} & set(place.labels) for place in places)
        if not call.has("-l") and plain:
            return NOTHING_KNOWN
    walker.find("deny", "persist.key", f"{name} opens a lasting way in", site.start, site.end)
    return NOTHING_KNOWN


def setting(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``ip``, ``ifconfig`` and kin: showing is free, changing the network is asked about."""
    words = [arg.text for arg in site.argv[1:] if not arg.text.startswith("-")]
    shows = {
        "a",
        "addr",
        "address",
        "l",
        "link",
        "r",
        "route",
        "n",
        "neigh",
        "neighbour",
        "show",
        "list",
        "ls",
        "dev",
        "up",
        "get",
        "rule",
        "maddr",
    }
    if name == "ip":
        plain = all(
            word in shows or (re.fullmatch(r"[\w.:/-]+", word) is not None and before == "dev")
            for before, word in zip(["", *words], words, strict=False)
        )
    else:
        plain = len(words) <= 1 and not any(arg.text in ("-s", "-d", "-i") for arg in site.argv[1:])
    if not plain:
        walker.find("ask", "system.setting", f"{name} changes the network or looks beyond this machine", site.start, site.end)
    return NOTHING_KNOWN

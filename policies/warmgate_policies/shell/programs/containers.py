"""Containers, clusters, services and the system's own controls."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import roles
from warmgate_policies.shell.findings import NOTHING_KNOWN, UNKNOWN, Arg, Site, Stream
from warmgate_policies.shell.options import Call

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_HOST = re.compile(
    r"^--(privileged|cap-add|device|security-opt|pid|ipc|userns|uts|cgroupns|net|network|volumes-from|"
    r"cgroup-parent|device-cgroup-rule|mount|volume)(=|$)"
)


def docker(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Options in front of the subcommand: another daemon is another machine."""
    if (
        walker.facts.docker_socket
        and len(site.argv) > 1
        and site.argv[1].text in ("run", "exec", "create", "start", "compose", "build", "cp", "update")
    ):
        walker.find(
            "deny", "escape.socket", f"{name} {site.argv[1].text} reaches the host through its container engine", site.start, site.end
        )
    for value in call.values("-H", "--host", "--context", "-c"):
        if not value.text.startswith("unix:///var/run/docker.sock"):
            walker.find("ask", "net.contact", f"{name} talks to another daemon", value.start, value.end)
    return None


def run(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``docker run`` and kin: a container is asked about, a way to the host is refused."""
    args = site.argv[1:]
    for index, arg in enumerate(args):
        text = arg.text
        key, equals, value = text.partition("=")
        follow = replace(arg, text=value) if equals else args[index + 1] if index + 1 < len(args) else Arg("")
        if key == "--privileged" and value != "false":
            walker.find("deny", "escape.privileged", f"{name} starts a container with all rights of the host", arg.start, arg.end)
        elif key in ("--cap-add", "--device", "--device-cgroup-rule", "--security-opt", "--cgroup-parent"):
            if key != "--security-opt" or re.search(r"unconfined|disable|no-new-privileges[:=]false", follow.text):
                walker.find("deny", "escape.capability", f"{name} gives a container rights over the host ({key})", arg.start, arg.end)
        elif key in ("--pid", "--ipc", "--userns", "--uts", "--cgroupns") and follow.text == "host":
            walker.find("deny", "escape.namespace", f"{name} shares the host's {key[2:]} with a container", arg.start, arg.end)
        elif key in ("-v", "--volume", "--mount") or (text.startswith("-v") and len(text) > 2 and not text.startswith("--")):
            spec = follow if key in ("-v", "--volume", "--mount") else replace(arg, text=text[2:])
            _mounted(walker, spec, name, key)
        elif key == "--env-file":
            roles.read(walker, follow, name)
    return NOTHING_KNOWN


def inspect(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``docker inspect``: everything includes the environment; a format that names harmless fields does not."""
    form = call.value("-f", "--format")
    if (
        form is None
        or UNKNOWN in form.text
        or re.search(r"(?i)env|json\s+\.(Config)?\s*}|range|index|\.Config\s*}|{{\s*\.\s*}}|Args|Cmd|Label|printf", form.text)
    ):
        walker.find("ask", "container.env", f"{name} may print a container's environment", site.start, site.end)
        return Stream(tags=frozenset({"env"}))
    return NOTHING_KNOWN


def _mounted(walker: Walker, spec: Arg, name: str, key: str) -> None:
    if key == "--mount":
        found = re.search(r"(?:source|src)=([^,]*)", spec.text)
        source = found.group(1) if (found and "type=bind" in spec.text) or (found and found.group(1).startswith(("/", ".", "~"))) else ""
    else:
        source = spec.text.split(":", 1)[0] if ":" in spec.text else ""
    if not source or (not source.startswith(("/", ".", "~")) and UNKNOWN not in source):
        return
    if UNKNOWN in source:
        walker.find("ask", "dynamic.target", f"{name} mounts what the text does not fix", spec.start, spec.end)
        return
    for place, fallback in roles.places(walker, replace(spec, text=source, shape=None)):
        if place.kind in ("workspace", "scratch", "cache"):
            continue
        if not fallback:
            walker.find("deny", "escape.mount", f"{name} gives a container {roles.show(place.path)} of the host", spec.start, spec.end)


def build(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``docker build``: secrets and host access in its options."""
    run(walker, site, name, call)
    return None


_KUBE_READ = (
    "get",
    "describe",
    "logs",
    "top",
    "explain",
    "api-resources",
    "api-versions",
    "cluster-info",
    "diff",
    "auth",
    "events",
    "wait",
)


def kubectl(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``kubectl``: reading is asked about, secrets and broad deletes are refused."""
    args = list(site.argv[1:])
    words: list[str] = []
    skip = False
    for arg in args:
        if skip:
            skip = False
            continue
        if arg.text == "--":
            break
        if arg.text.startswith("-"):
            skip = arg.text in (
                "-n",
                "--namespace",
                "--context",
                "--kubeconfig",
                "-o",
                "--output",
                "-l",
                "--selector",
                "-f",
                "--filename",
                "-c",
                "--container",
                "--cluster",
                "--user",
                "-s",
                "--server",
                "--as",
            )
            continue
        words.append(arg.text)
    verb = words[0] if words else ""
    text = " ".join(arg.text for arg in args)
    tags: frozenset[str] = frozenset({"net"})
    if verb == "kustomize" and any(
        re.search(r"://|^git@|^[\w-]+\.(com|org|io|net|dev)/|^--enable-helm|^--enable-exec", arg.text) for arg in args
    ):
        walker.find("ask", "net.fetch", f"{name} kustomize fetches or runs what it builds with", site.start, site.end)
    if verb in ("version", "completion", "help", "kustomize", "options", "plugin", "") or (
        verb == "config" and words[1:2] in (["current-context"], ["get-contexts"], ["get-clusters"])
    ):
        if verb == "version" and "--client" not in text:
            walker.find("ask", "cluster.read", f"{name} talks to a cluster", site.start, site.end)
        return Stream(tags=site.stdin.tags)
    kinds = ",".join(words[1:]).lower()
    if (
        (re.search(r"(^|,)secrets?(/|,|$)", kinds) and verb in ("get", "describe", "edit"))
        or (verb == "config" and "--raw" in text)
        or (verb == "create" and words[1:2] == ["token"])
        or "/api/v1/secrets" in text
        or re.search(r"/namespaces/[^/]+/secrets", text)
    ):
        walker.find("deny", "secret.cluster", f"{name} reads a cluster's secrets", site.start, site.end)
        tags |= {"secret"}
    elif verb == "delete":
        broad = re.search(
            r"(^|,)(ns|namespaces?|nodes?|no|pv|pvc|persistentvolumes?|persistentvolumeclaims?|crds?|"
            r"customresourcedefinitions?|clusterroles?|clusterrolebindings?|all|storageclass\w*|secrets?|"
            r"statefulsets?|sts|apiservices?)(,|/|$)",
            kinds,
        )
        if broad or re.search(r"--all\b|--all=true|(^| )-A( |$)|--all-namespaces|--force\b.*--grace-period=0.*--all", text):
            walker.find("deny", "destroy.cluster", f"{name} deletes what cannot be made again", site.start, site.end)
    elif verb == "drain" and "--force" in text:
        walker.find("deny", "destroy.cluster", f"{name} empties a node by force", site.start, site.end)
    elif verb == "exec" or verb == "debug" or verb == "run":
        after = [i for i, arg in enumerate(args) if arg.text == "--"]
        if verb != "exec" and re.search(r"privileged|hostPID|hostNetwork|hostPath|--profile=sysadmin|node/", text):
            walker.find("deny", "escape.cluster", f"{name} starts something with rights over a node", site.start, site.end)
        if after:
            inner = args[after[0] + 1 :]
            code = " ".join(arg.text for arg in inner)
            kept = len(walker.findings)
            if inner:
                walker.code(code, replace(inner[0], end=inner[-1].end))
            walker.findings[kept:] = [
                f for f in walker.findings[kept:] if f.verdict == "deny" and f.rule.startswith(("destroy", "secret", "flow.d", "rce"))
            ]
    elif verb in ("create", "apply", "replace", "patch", "edit") and re.search(r"clusterrolebinding|cluster-admin|rolebinding", text):
        walker.find("deny", "privilege.cluster", f"{name} changes who may do what in a cluster", site.start, site.end)
    for index, arg in enumerate(args):
        if (
            arg.text in ("-f", "--filename", "-k")
            and index + 1 < len(args)
            and verb in ("apply", "create", "delete", "replace", "diff")
            and "://" not in args[index + 1].text
            and args[index + 1].text != "-"
        ):
            roles.read(walker, args[index + 1], name)
        if arg.text == "--kubeconfig" and index + 1 < len(args):
            roles.read(walker, args[index + 1], name, listing=True)
    if verb in ("apply", "create", "replace") and site.stdin.tags & {"net"}:
        walker.find("deny", "flow.download-run", f"{name} applies what was just downloaded", site.start, site.end)
    dry = re.search(r"--dry-run=client", text)
    walker.find(
        "ask",
        "cluster.read" if verb in _KUBE_READ or dry else "cluster.change",
        f"{name} {verb} {'talks to' if verb in _KUBE_READ else 'changes'} a cluster",
        site.start,
        site.end,
    )
    return Stream(tags=tags)


_IN_REPOSITORY = re.compile(r"[\w-]+/[\w.-]+")
_OURS = re.compile(
    r"(?i)(helm|charts?|deploy\w*|k8s|kube\w*|infra\w*|ops|services?|apps?|packages?|src|manifests?|platform|tests?|examples?)/"
)


def helm(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``helm``: templates are local, releases are asked about."""
    words = [arg.text for arg in site.argv[1:] if not arg.text.startswith("-")]
    verb = words[0] if words else ""
    if (
        verb in ("template", "lint", "version", "env", "help", "create", "package", "")
        or (verb == "show" and len(words) > 2 and words[2].startswith((".", "/")))
        or (verb == "repo" and words[1:2] == ["list"])
    ):
        for arg in site.argv[2:]:
            if arg.text.startswith(("/", "~", ".")):
                if verb in ("create", "package"):
                    roles.write(walker, arg, name)
                else:
                    roles.read(walker, arg, name, listing=True)
        known = any(arg.text.startswith("--version") for arg in site.argv[2:])
        if verb in ("template", "lint") and any(_IN_REPOSITORY.fullmatch(word) and (known or not _OURS.match(word)) for word in words[1:]):
            walker.find(
                "ask",
                "net.fetch",
                f"{name} {verb} may fetch a chart of a repository (write ./ before one of the project)",
                site.start,
                site.end,
            )
        if any("://" in arg.text or arg.text == "--repo" for arg in site.argv):
            walker.find("ask", "net.contact", f"{name} fetches a chart", site.start, site.end)
        if any(arg.text.startswith("--post-renderer") for arg in site.argv):
            walker.find("deny", "conceal.option", f"{name} is told to run a program", site.start, site.end)
        return NOTHING_KNOWN
    if verb in ("uninstall", "delete", "del", "un"):
        walker.find("deny", "destroy.cluster", f"{name} removes a release", site.start, site.end)
    elif verb == "get":
        walker.find("ask", "cluster.read", f"{name} reads a release with its values", site.start, site.end)
    walker.find("ask", "cluster.change", f"{name} {verb} talks to a cluster or a chart repository", site.start, site.end)
    return Stream(tags=frozenset({"net"}))


def terraform(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``terraform``, ``tofu``, ``pulumi``, ``cdk``: formatting is local, everything else reaches infrastructure."""
    words = [arg.text for arg in site.argv[1:] if not arg.text.startswith("-")]
    text = " ".join(arg.text for arg in site.argv[1:])
    verb = words[0] if words else ""
    if (
        verb == "destroy"
        or re.search(r"(^| )-{1,2}destroy( |=true|$)", text)
        or (verb == "state" and words[1:2] in (["rm"], ["push"]))
        or verb == "force-unlock"
        or (verb == "stack" and words[1:2] == ["rm"])
        or (verb == "workspace" and words[1:2] == ["delete"])
    ):
        plan = verb == "plan"
        walker.find("ask" if plan else "deny", "destroy.infra", f"{name} {verb} removes infrastructure", site.start, site.end)
    elif verb == "providers" and words[1:2] in (["lock"], ["mirror"]):
        walker.find("ask", "net.fetch", f"{name} providers {words[1]} fetches from a registry", site.start, site.end)
    elif verb in ("fmt", "validate", "version", "graph", "providers", "help", "-version", "--version", "synth", ""):
        for arg in site.argv[2:]:
            if not arg.text.startswith("-"):
                roles.write(walker, arg, name)
        return NOTHING_KNOWN
    elif re.search(r"show-secrets", text) or (verb == "state" and words[1:2] == ["pull"]):
        walker.find("deny", "secret.infra", f"{name} prints secrets of the infrastructure", site.start, site.end)
    walker.find("ask", "infra.change", f"{name} {verb} reaches infrastructure", site.start, site.end)
    return Stream(tags=frozenset({"net"}))


_SERVICE_READ = (
    "status",
    "is-active",
    "is-enabled",
    "list-units",
    "list-unit-files",
    "show",
    "cat",
    "list-timers",
    "list-sockets",
    "is-failed",
    "list-dependencies",
    "is-system-running",
    "get-default",
    "list-jobs",
    "--version",
)


def systemctl(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``systemctl``, ``service``, ``supervisorctl``, ``pm2``."""
    words = [arg.text for arg in site.argv[1:] if not arg.text.startswith("-")]
    user = any(arg.text == "--user" for arg in site.argv)
    verb = (words[1] if name == "service" and len(words) > 1 else words[0]) if words else ""
    if any(arg.text in ("-H", "--host") or arg.text.startswith("--host=") for arg in site.argv):
        walker.find("ask", "net.contact", f"{name} reaches another machine", site.start, site.end)
    if verb in _SERVICE_READ or not words:
        if any(re.match(r"show-environment|(\w+,)*Environment\w*(,|$)", word) for word in words) or any(
            re.match(r"(-p|--property=).*Environment", arg.text) for arg in site.argv
        ):
            walker.find("ask", "env.dump", f"{name} shows an environment", site.start, site.end)
        return NOTHING_KNOWN
    if verb in (
        "poweroff",
        "halt",
        "reboot",
        "kexec",
        "suspend",
        "hibernate",
        "rescue",
        "emergency",
        "soft-reboot",
        "isolate",
        "exit",
        "default",
    ):
        walker.find("deny", "exhaust.power", f"{name} {verb} stops the machine", site.start, site.end)
    elif verb in ("stop", "disable", "mask", "kill") and any(
        re.match(
            r"(auditd|rsyslog|systemd-journald|firewalld|ufw|apparmor|selinux|fail2ban|iptables|nftables|falcon|"
            r"osquery|clamav|crowdsec|syslog)",
            word,
        )
        for word in words[0:]
    ):
        walker.find("deny", "tamper.security", f"{name} {verb} turns off auditing or protection", site.start, site.end)
    elif verb in (
        "enable",
        "link",
        "edit",
        "preset",
        "reenable",
        "add-wants",
        "set-property",
        "set-environment",
        "import-environment",
    ) and (user or verb in ("link", "edit", "set-environment", "import-environment") or any("/" in word for word in words[1:])):
        walker.find("deny", "persist.unit", f"{name} {verb} makes a program start by itself", site.start, site.end)
    elif verb == "show-environment":
        walker.find("ask", "env.dump", f"{name} shows an environment", site.start, site.end)
        return Stream(tags=frozenset({"env"}))
    walker.find("ask", "service.control", f"{name} {verb} changes a running service", site.start, site.end)
    return NOTHING_KNOWN


def crontab(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``crontab -l`` shows; everything else starts programs by time."""
    if call.has("-l") and not call.has("-r", "-e"):
        walker.find("ask", "read.outside", f"{name} lists programs started by time", site.start, site.end)
        return NOTHING_KNOWN
    walker.find("deny", "persist.cron", f"{name} changes what is started by time", site.start, site.end)
    return NOTHING_KNOWN


def mount(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``mount`` alone lists."""
    if not call.args and not call.has("-a", "--all", "-o"):
        return NOTHING_KNOWN
    walker.find("deny", "escape.mount", f"{name} changes what file systems are reachable", site.start, site.end)
    return NOTHING_KNOWN


def sysctl(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """``sysctl``: reading is free; hooks of the kernel are refused, other settings asked about."""
    for arg in site.argv[1:]:
        if "=" in arg.text:
            hook = re.search(
                r"core_pattern|modprobe|hotplug|usermodehelper|randomize_va_space|kptr|yama|unprivileged|perf_event|"
                r"binfmt|kexec|modules_disabled|dmesg_restrict",
                arg.text,
            )
            walker.find(
                "deny" if hook else "ask",
                "escape.kernel" if hook else "kernel.setting",
                f"{name} changes a kernel setting",
                arg.start,
                arg.end,
            )
    if call.has("-p", "--load", "--system", "-w", "--write"):
        walker.find("ask", "kernel.setting", f"{name} changes kernel settings", site.start, site.end)
    return NOTHING_KNOWN


def usermod(walker: Walker, site: Site, name: str, call: Call) -> Stream | None:
    """Accounts and groups."""
    walker.find("deny", "privilege.account", f"{name} changes accounts, groups or passwords", site.start, site.end)
    return NOTHING_KNOWN

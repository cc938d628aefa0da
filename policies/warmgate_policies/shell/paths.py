"""What a path is: part of the workspace, scratch, a secret, protected, system, a device.

Paths are resolved as text (``..``, the working directory) and, where the facts allow it, by the file system's symbolic links. A path may
hold globs and unknown parts; a glob that could match a secret is one.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from dataclasses import dataclass, field
from functools import lru_cache

from warmgate_policies.shell.facts import Facts
from warmgate_policies.shell.findings import UNKNOWN

SECRET_IN_HOME = (
    ".ssh/id_*", ".ssh/*_rsa", ".ssh/*_ed25519", ".ssh/*.pem", ".ssh/identity", ".ssh", ".aws", ".azure", ".config/gcloud", ".netrc",
    "_netrc", ".git-credentials", ".config/git/credentials", ".kube", ".docker/config.json", ".docker", ".gnupg", ".password-store",
    ".npmrc",
    ".yarnrc.yml", ".pypirc", ".config/gh", ".config/hub", ".cargo/credentials*", ".m2/settings*.xml", ".gradle/gradle.properties",
    ".pgpass",
    ".my.cnf", ".mylogin.cnf", ".boto", ".s3cfg", ".config/rclone", ".vault-token", ".terraform.d/credentials*", ".terraformrc",
    ".local/share/keyrings",
    ".mozilla", ".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history", ".python_history", ".psql_history",
    ".mysql_history",
    ".node_repl_history", ".history", ".config/op", ".bitcoin", ".electrum", ".ethereum", ".config/doctl", ".config/helm",
    ".composer/auth.json",
    ".gem/credentials", ".bundle/config", ".claude/.credentials.json", ".codex/auth.json", ".config/pip/pip.conf", ".pip/pip.conf",
    ".databrickscfg",
    ".snowsql", ".oci", ".config/containers/auth.json", ".huggingface", ".cache/huggingface/token", ".config/configstore",
    ".ansible/vault*",
)  # fmt: skip
"""Where credentials lie in a home. A folder stands for all in it."""

PUBLIC_IN_SSH = ("known_hosts*", "config", "*.pub")
SECRET_ABSOLUTE = (
    "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/ssl/private", "/etc/ssh/ssh_host_*_key", "/run/secrets", "/var/run/secrets",
    "/proc/*/environ", "/proc/*/mem", "/proc/*/task/*/environ", "/proc/kcore", "/dev/mem", "/dev/kmem", "/etc/kubernetes",
    "/etc/krb5.keytab", "/root",
    "/proc/*/root", "/proc/*/cwd", "/proc/*/fd", "/var/lib/kubelet", "/var/lib/secrets", "/etc/docker/key.json", "/etc/security/opasswd",
    "/etc/NetworkManager/system-connections",
)  # fmt: skip
SECRET_NAMES = (
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.p12", "*.pfx", "*.key", "*.keystore", "*.jks", "*.kdbx", ".netrc",
    ".git-credentials",
    ".pypirc", ".pgpass", "credentials.json", "service-account*.json", "kubeconfig", ".vault-token", ".htpasswd", "*.ppk", "*.asc.key",
    "secrets.y*ml",
    "secrets.json", ".npmrc", "*.tfstate", "*.tfstate.backup", "*.tfvars",
)  # fmt: skip
"""In the workspace these are asked about, like ``.env``; elsewhere they are credentials."""

DOTENV = (".env", ".env.*", "*.env", ".envrc", ".flaskenv", ".dev.vars")
DOTENV_HARMLESS = ("*.example", "*.sample", "*.template", "*.dist", "*.tmpl", ".env.schema", ".env.defaults")

STARTUP = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
    ".zlogout", ".inputrc",
    ".config/fish", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xinitrc", ".xsession", ".xprofile", ".xsessionrc", ".config/autostart",
    ".config/systemd",
    ".local/share/systemd", ".config/environment.d", ".pam_environment", ".vimrc", ".vim", ".config/nvim", ".emacs", ".emacs.d",
    ".config/git/hooks", ".git-templates",
    ".gitconfig.d", ".tmux.conf", ".screenrc", ".gdbinit", ".pythonrc", ".pythonstartup", ".Rprofile", ".irbrc", ".ssh", ".gnupg",
    ".pdbrc", ".lldbinit", ".psqlrc", ".npmrc",
    ".local/lib/python*/site-packages/*.pth", ".local/lib/python*/site-packages/*customize.py", ".config/direnv", ".oh-my-zsh", ".zsh",
    ".curlrc", ".wgetrc", ".cargo/config*",
)  # fmt: skip
"""What a shell, a login or a common tool runs by itself: a write there is persistence."""

AGENT_SETTINGS = (
    ".claude",
    ".codex",
    ".guard",
    ".claude.json",
    ".cursor",
    ".gemini",
    ".mcp.json",
    ".warmgate",
    "warmgate.toml",
    ".opencode",
    ".aider.conf.yml",
)
CACHE_IN_HOME = (".cache", ".npm", ".cargo/registry", ".cargo/git", "go/pkg", ".m2/repository", ".gradle/caches", ".nuget",
    ".pnpm-store", ".yarn/cache",
                 ".local/share/pnpm", ".rustup", ".nvm", ".pyenv", ".local/lib", ".local/share/uv", ".cargo/bin", ".local/bin", "go/bin",
                 ".bun", ".deno", ".rbenv", ".sdkman", ".local/share/virtualenvs")  # fmt: skip
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/boot")
WORLD_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/var/log", "/var/lib/dpkg", "/var/lib/apt", "/var/cache",
    "/nix/store", "/sys",
                  "/boot", "/snap", "/home/linuxbrew", "/proc", "/run/systemd", "/var/lib/pacman", "/var/lib/pkg")  # fmt: skip
HARMLESS_DEVICES = re.compile(r"/dev/(null|zero|full|stdin|stdout|stderr|tty|random|urandom|fd/\d+|ptmx|pts/\d+)$|/proc/self/fd/[012]$")
SCRATCH_DEVICES = ("/dev/shm",)  # noqa: S108
BUILD_NAMES = (
    "build", "dist", "target", "node_modules", "coverage", "__pycache__", "*.o", "*.pyc", "*.pyo", ".pytest_cache", ".mypy_cache",
    ".ruff_cache", "*.egg-info", "out", ".next", ".nuxt",
    ".cache", ".parcel-cache", ".turbo", "htmlcov", ".coverage", ".coverage.*", ".tox", ".nox", ".gradle", "*.class", "*.obj", "*.a",
    "*.so", "*.log", "*.tmp", "*.bak", "*.orig", "*.rej", "*.swp", "*~",
    "cmake-build-*", "bin/Debug", "obj", ".venv", "venv", ".eggs", ".hypothesis", "CMakeFiles", "CMakeCache.txt", ".DS_Store",
    "Thumbs.db", ".nyc_output", ".svelte-kit", ".vite", "_build", "site", "tmp", "temp", "logs", ".tmp",
    "storybook-static", "public/build", ".eslintcache", "*.tsbuildinfo", ".ipynb_checkpoints", "debug", "*.pid", "*.prof", "*.gcda",
    "*.gcno", "*.test", "core.[0-9]*", "nohup.out", ".dart_tool", ".terraform", "bazel-*", "zig-cache", "zig-out",
    "__generated__", ".output", "lcov.info", "test-results", "playwright-report", "*.whl", "*.tgz", "*.dSYM", "scratch", "scratch*",
    ".scratch*", "a.out", "temp*.*", "tmp*.*", "tmp_*", "scratch_*", "*.out",
)  # fmt: skip
"""Names of caches, build outputs and scratch files: deleting them loses nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A resolved path and what it is.

    Attributes:
        path: Absolute, without ``..``; globs and unknown parts remain.
        kind: ``workspace``, ``scratch``, ``home``, ``cache``, ``system``, ``device``, ``disk``, ``kernel``, ``root``, ``outside``,
            ``unknown``.
        labels: Further facts: ``secret``, ``dotenv``, ``protected``, ``startup``, ``git``, ``githook``, ``settings``,
            ``top`` (the whole of its
            kind: the workspace itself, a home, a system folder, or a parent of one), ``build``, ``log``, ``cron``, ``docker``, ``net``,
                ``harmless``.
    """

    path: str
    kind: str
    labels: frozenset[str] = field(default=frozenset())

    def __contains__(self, label: str) -> bool:
        return label in self.labels


@lru_cache(maxsize=4096)
def _fn(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)


def could_match(parts: list[str], pattern: str, *, prefix: bool = True) -> bool:
    """Whether a path of these parts, which may hold globs, can be, or with ``prefix`` lie in, what ``pattern`` names."""
    wanted = pattern.strip("/").split("/")
    if "**" in parts:
        at = parts.index("**")
        head = parts[:at]
        if len(head) >= len(wanted):
            return could_match(head, pattern, prefix=prefix)
        return False
    if len(parts) < len(wanted) or (not prefix and len(parts) != len(wanted)):
        return False
    for part, want in zip(parts, wanted, strict=False):
        if _fn(part, want):
            continue
        if UNKNOWN in part:
            return False
        if _globbed(part) and not (part.startswith(("*", "?", "[")) and want.startswith(".")) and _fn(want, part):
            continue
        return False
    return True


def _globbed(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def named(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a file name matches one of the patterns; a name that is a glob itself counts if it could stand for one of them."""
    for pattern in patterns:
        if _fn(name, pattern):
            return True
        if _globbed(name) and name.startswith(".") and not _globbed(pattern) and _fn(pattern, name):
            return True
    return False


def resolve(text: str, cwd: str | None, facts: Facts) -> str | None:
    """``text`` as an absolute path. None where it depends on an unknown working directory."""
    if text.startswith("~"):
        head, _, rest = text.partition("/")
        if head == "~":
            text = posixpath.join(facts.home, rest)
    if not text.startswith("/"):
        if cwd is None:
            return None
        text = posixpath.join(cwd, text)
    path = posixpath.normpath(text)
    if path.startswith("//"):
        path = path[1:]
    if facts.file_system and UNKNOWN not in path and not _globbed(path):
        path = os.path.realpath(path)
    return path


def inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def classify(text: str, cwd: str | None, facts: Facts) -> Place:
    """What the path ``text`` is, seen from ``cwd``."""
    if ".." in text and UNKNOWN in text:
        return Place(text, "unknown")
    path = resolve(text, cwd, facts)
    if path is None:
        return Place(text, "unknown")
    head = path.split(UNKNOWN, 1)[0]
    if UNKNOWN in path:
        folder = head.rsplit("/", 1)[0]
        if folder in ("", "/") or not (inside(folder, facts.workspace) or any(inside(folder, s) for s in facts.scratch)):
            labels = _classify(folder or "/", facts)
            return Place(path, "unknown", labels.labels - {"top"})
        # An unknown part could hold "..": the place is only as good as the folder in front of it, and never certain.
        return Place(path, "unknown", frozenset({"partly"}))
    return _classify(path, facts)


@lru_cache(maxsize=8192)
def _classify(path: str, facts: Facts) -> Place:
    labels: set[str] = set()
    parts = [part for part in path.split("/") if part]
    name = parts[-1] if parts else ""
    if path.endswith("/**"):
        name = "**"
    kind = _kind(path, parts, facts, labels)
    secret = any(could_match(parts, pattern) for pattern in SECRET_ABSOLUTE) and not HARMLESS_DEVICES.match(path) and kind != "workspace"
    home = _home_parts(path, parts, facts)
    if home is not None:
        if any(could_match(home, pattern) for pattern in SECRET_IN_HOME) and not (
            home[:1] == [".ssh"] and len(home) > 1 and named(name, PUBLIC_IN_SSH)
        ):
            secret = True
        if any(could_match(home, pattern) for pattern in STARTUP):
            labels.add("startup")
        if home[:1] == ["*"] or not home or home == ["**"]:
            labels.add("top")
    if any(_fn(part, pattern) for part in parts for pattern in AGENT_SETTINGS) and kind in ("workspace", "home", "unknown"):
        labels.add("settings")
    if named(name, SECRET_NAMES):
        if kind in ("workspace", "scratch"):
            labels.add("dotenv")
        elif kind in ("home", "outside") and not name.endswith(".pub"):
            secret = True
    if named(name, DOTENV) and not any(_fn(name, pattern) for pattern in DOTENV_HARMLESS):
        labels.add("dotenv")
    if ".git" in parts and kind in ("workspace", "scratch", "home", "outside"):
        labels.add("git")
        rest = parts[parts.index(".git") + 1 :]
        if rest[:1] in (["hooks"], ["config"], ["config.worktree"]) or (len(rest) == 2 and rest[0] == "info" and rest[1] == "attributes"):
            labels.add("githook")
    if secret:
        labels.add("secret")
    if kind in ("workspace", "scratch") and _is_build(parts, path, facts):
        labels.add("build")
    if path in ("/var/run/docker.sock", "/run/docker.sock") or name in ("docker.sock", "containerd.sock", "crio.sock", "podman.sock"):
        labels.add("docker")
    if name.endswith((".pth",)) or name in ("sitecustomize.py", "usercustomize.py"):
        labels.add("sitehook")
    return Place(path, kind, frozenset(labels))


def _is_build(parts: list[str], path: str, facts: Facts) -> bool:
    base = [part for part in facts.workspace.split("/") if part]
    own = parts[len(base) :] if inside(path, facts.workspace) else parts
    if not own:
        return False
    if ".git" in own:
        return False
    return any(_fn(part, pattern) for part in own for pattern in BUILD_NAMES if part != "**" and part != "*")


def _home_parts(path: str, parts: list[str], facts: Facts) -> list[str] | None:
    if inside(path, facts.workspace):
        return None
    if inside(path, facts.home):
        return [part for part in path[len(facts.home) :].split("/") if part]
    if parts[:1] == ["home"] and len(parts) >= 2:
        return parts[2:]
    if parts[:1] == ["Users"] and len(parts) >= 2:
        return parts[2:]
    if parts[:1] == ["root"]:
        return parts[1:]
    return None


def _kind(path: str, parts: list[str], facts: Facts, labels: set[str]) -> str:
    if path == "/" or parts in (["*"], ["**"]):
        labels.add("top")
        return "root"
    if inside(path, facts.workspace):
        rest = [part for part in path[len(facts.workspace) :].split("/") if part]
        if not rest or rest in (["*"], ["**"], [".*"], ["{*,.*}"], [".git"]) or all(part in ("*", "**") for part in rest):
            labels.add("top")
        return "workspace"
    for scratch in facts.scratch:
        if inside(path, scratch):
            if path == scratch:
                labels.add("scratchtop")
            return "scratch"
    if inside(facts.workspace, path) or inside(facts.home, path):
        labels.add("top")
    if HARMLESS_DEVICES.match(path):
        labels.add("harmless")
        return "device"
    if parts[0] == "dev":
        if parts[1:2] in (["tcp"], ["udp"]):
            labels.add("net")
            return "device"
        if any(inside(path, s) for s in SCRATCH_DEVICES):
            return "outside"
        return "disk"
    if parts[0] in ("proc", "sys"):
        return "kernel"
    if any(inside(path, folder) for folder in SYSTEM):
        if len(parts) <= 2 or path in SYSTEM:
            labels.add("top")
        return "system"
    if _home_parts(path, parts, facts) is not None:
        home = _home_parts(path, parts, facts) or []
        return "cache" if any(could_match(home, pattern) for pattern in CACHE_IN_HOME) else "home"
    if inside(path, "/var/log"):
        labels.add("log")
    if inside(path, "/var/spool/cron") or inside(path, "/var/spool/at"):
        labels.add("cron")
    if (
        len(parts) == 1
        or (parts[:2] in (["var", "lib"], ["var", "log"]) and len(parts) == 2)
        or (len(parts) == 2 and parts[1] in ("*", "**"))
    ):
        labels.add("top")
    return "outside"

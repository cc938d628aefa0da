"""Judges for programs that data cannot describe. Each gets the run, the site, the program's name and its arguments taken apart.

A judge returns what the program prints, or None to keep what the packs say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warmgate_policies.shell.findings import Site, Stream
from warmgate_policies.shell.options import Call
from warmgate_policies.shell.programs import (
    builtins,
    containers,
    databases,
    files,
    git,
    interpreters,
    net,
    project_tools,
    search,
    shells,
    text,
    wrappers,
)

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

Handler = Callable[["Walker", Site, str, Call], Stream | None]

HANDLERS: dict[str, Handler] = {
    "shell": shells.shell, "eval": shells.evaluate, "source": shells.source, "exec": shells.execute, "trap": shells.trap,
    "wrapper": wrappers.wrapper, "env": wrappers.env, "sudo": wrappers.sudo, "su": wrappers.su, "xargs": wrappers.xargs,
    "command": wrappers.lookup,
    "npx": wrappers.npx, "script": wrappers.project_script, "make": wrappers.make, "watch": wrappers.watch,
    "cd": builtins.cd, "popd": builtins.popd, "echo": builtins.echo, "printf": builtins.printf, "read": builtins.read,
    "export": builtins.export,
    "set": builtins.set_, "exit": builtins.exit_, "kill": builtins.kill, "names": builtins.names, "pwd": builtins.pwd,
    "alias": builtins.alias, "mapfile": builtins.mapfile,
    "let": builtins.let, "jobs": builtins.jobs, "ps": builtins.ps, "date": builtins.date,
    "test": builtins.test, "printenv": builtins.printenv, "noop": builtins.noop, "yes": builtins.endless,
    "rm": files.rm, "rmdir": files.rmdir, "mv": files.mv, "cp": files.cp, "ln": files.ln, "chmod": files.chmod, "chown": files.chown,
    "dd": files.dd, "tee": files.tee,
    "mkdir": files.mkdir, "truncate": files.truncate, "tar": files.tar, "unzip": files.unzip, "zip": files.zip_, "mktemp": files.mktemp,
    "split": files.split,
    "touch": files.touch, "install": files.cp, "shred": files.shred, "fallocate": files.fallocate,
    "find": search.find, "fd": search.fd, "grep": search.grep, "rg": search.rg, "ls": search.ls,
    "cat": text.cat,
    "head": text.head, "decode": text.decode, "sed": text.sed, "same": text.same, "shuf": text.shuf, "mlr": text.mlr,
    "getent": net.getent, "locate": search.locate, "tr": text.tr, "jq": text.jq, "sort": text.sort,
    "dirname": text.dirname, "awk": text.awk, "seq": text.seq,
    "git": git.git, "git-config": git.config, "git-push": git.push, "git-remote": git.remote, "git-clone": git.clone,
    "git-rebase": git.rebase, "git-checkout": git.checkout,
    "git-clean": git.clean, "git-branch": git.branch, "git-grep": git.grep, "git-submodule": git.submodule, "git-bisect": git.bisect,
    "git-show": git.show, "git-toplevel": git.toplevel,
    "image": files.image, "git-apply": git.apply, "git-sub": git.general, "git-touch": git.touch,
    "curl": net.curl, "wget": net.wget, "ssh": net.ssh, "scp": net.scp, "rsync": net.rsync, "nc": net.nc, "socat": net.socat,
    "network-setting": net.setting, "ssh-keygen": net.keygen,
    "inplace": text.inplace,
    "dns": net.dns, "upload": net.upload, "server": net.server,
    "aws": net.cloud, "forge": net.forge, "mail": net.mail,
    "python": interpreters.python, "node": interpreters.node, "perl": interpreters.perl, "ruby": interpreters.ruby,
    "project": project_tools.project, "yarn": project_tools.yarn, "npm-pkg": project_tools.npm_pkg, "npm-pack": project_tools.npm_pack,
    "settings": project_tools.settings, "fallback": wrappers.fallback,
    "php": interpreters.php, "vim": interpreters.vim, "less": interpreters.less, "busybox": interpreters.busybox,
    "manage": project_tools.manage, "go-run": project_tools.go_run, "go-tool": project_tools.go_tool, "go-list": project_tools.go_list,
    "coverage-run": project_tools.coverage_run,
    "docker": containers.docker, "docker-run": containers.run,
    "docker-inspect": containers.inspect, "kubectl": containers.kubectl, "systemctl": containers.systemctl,
    "crontab": containers.crontab, "mount": containers.mount,
    "terraform": containers.terraform, "helm": containers.helm, "sysctl": containers.sysctl, "usermod": containers.usermod,
    "build": containers.build,
    "psql": databases.psql, "mysql": databases.mysql, "sqlite": databases.sqlite, "redis": databases.redis, "mongo": databases.mongo,
}  # fmt: skip
"""Name in a pack's ``handler`` → judge."""

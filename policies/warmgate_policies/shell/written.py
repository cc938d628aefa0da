"""Written and then run in one command: the literal text a command leaves in files, looked through before something of the project runs.

Shell, Python, JavaScript and make are read where they are run by name. Every other language, and every writer that is no redirect (inline
code, ``sed -i``, a filter of jq, a patch), comes here: the text is searched for signs of reaching out. None found: as before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warmgate_policies.shell.paths import inside, resolve

if TYPE_CHECKING:
    from warmgate_policies.shell.facts import Facts
    from warmgate_policies.shell.findings import Site
    from warmgate_policies.shell.sites import Walker


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the run came by.

    Attributes:
        kind: ``store`` (``text`` now is in ``path``), ``file`` (``path`` is run as code) or ``program`` (``name`` runs at ``site``).
        name: The program.
        path: The file; for a program its working directory.
        text: What was written.
        site: Where a program runs.
        start: Byte offset in the command.
        end: Byte offset behind it.
    """

    kind: str
    name: str = ""
    path: str | None = None
    text: str = ""
    site: Site | None = None
    start: int = 0
    end: int = 0


_PROSE = re.compile(r"(?<!/CMakeLists)\.(md|rst|txt|csv|tsv|html?|css|svg|log|adoc|tex)$")
"""Names of files that nothing runs; where one is run by its path it is read there."""
_INLINE = re.compile(r"^(python[\d.]*|pypy3?|node|nodejs|deno|bun|perl|ruby|php)$")
_INLINE_WRITES = re.compile(
    r"write|\bopen\b[^\n]{0,300}['\"][wax]|\bdump\b|appendFile|copyFile|file_put|fputs|IO\.|print\s*\{|\brename\b|extractall|extract\(|(^|\s)-\w*i\b"
)
_FILTERS = ("jq", "yq", "gojq", "awk", "gawk", "mawk", "sed", "gsed", "perl", "ruby", "ed", "ex", "sd")
_COPIERS = ("cp", "dd", "install", "mv", "sponge")
_PATCHES = ("patch", "git")
_NOT_RUN = (
    "git", "jq", "yq", "gojq", "sed", "gsed", "awk", "gawk", "mawk",
    "rg", "fd", "tree", "ruff", "black", "isort", "autopep8", "gofmt", "goimports",
    "rustfmt", "shellcheck", "shfmt", "yamllint", "markdownlint", "markdownlint-cli2", "clang-format", "hadolint", "flake8",
    "mypy", "pyright", "gcc", "g++", "cc", "c++", "clang", "clang++", "rustc",
    "javac", "ctags", "xmllint", "diff", "delta", "bat", "exa", "eza", "tokei",
    "cloc", "sqlite3", "patch", "ed", "ex", "sd", "tidy", "jsonlint", "taplo",
)  # fmt: skip
_NOT_RUN_SUBS = {
    ("go", "build"),
    ("go", "vet"),
    ("go", "fmt"),
    ("go", "mod"),
    ("go", "list"),
    ("go", "doc"),
    ("cargo", "fmt"),
    ("terraform", "fmt"),
    ("terraform", "validate"),
    ("npm", "ls"),
    ("npm", "view"),
}
_UNPACKS = re.compile(r"^(tar|bsdtar|gtar|unzip|7z|7za|cpio|ar|unrar)$")

_ROOTS = r"/(?:home|root|etc|var|opt|boot|srv|mnt|Users|sys|proc|dev/(?!null\b|std(?:in|out|err)\b|tty\b|zero\b|u?random\b|fd\b))(?:/|\b)"
_REMOVALS = (
    r"(?:RemoveAll|remove_dir_all|remove_tree|rmtree|rmSync|rmdirSync|rm_rf?|rm_r|unlinkSync|unlink|removeSync|deleteRecursively|"
    r"deleteDirectory|remove_all|File\.rm_rf!?|Directory\.Delete)"
)
_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\b(?:[sS]ystem|popen|passthru|shell_exec|proc_open|posix_spawnp?|execute_process|run_command|(?<!\.)exec[lv]?[pe]?e?|"
            r"execSync|execFile(?:Sync)?|spawnSync)\s*\(|\bos/exec\b|\bexec\.Command|\bstd::process\b|\bprocess::Command\b|Command::new|"
            r"\bProcessBuilder\b|\bgetRuntime\b|\bchild_process\b|\bProcess\.[Ss]tart\b|\bsubprocess\b|\bOpen3\b|\bSystem\.cmd\b|:os\.cmd|"
            r"\bcommandLine\b|\bexec\s*\{|%x[({\[]|\bgo:generate\b|\bKernel\.|\bsystem\s+['\"]|\bprogram\s*=\s*\["
        ),
        "starts programs",
    ),
    (re.compile(_REMOVALS + r"\s{0,8}\(?\s{0,8}(?!\s{0,8}\(?\s{0,8}['\"](?![/~]|\.\.|\$)[\w./-]+['\"])[\w(&*'\"$:/~.]"), "deletes"),
    (
        re.compile(
            r"\b(?:http\.(?:Get|Post|request)|reqwest|ureq::|Net::HTTP|LWP::|HttpClient|openStream|urlopen|requests\.(?:get|post)|fetch\()"
            r"[^\n]{0,200}https?://(?!localhost|127\.)"
        ),
        "contacts other machines",
    ),
    (
        re.compile(
            r"\b(?:net\.Dial\w*|TcpStream::connect|TCPSocket|fsockopen|new Socket|IO::Socket)[^\n]{0,6}['\"(](?!.{0,4}(?:localhost|127\.))"
        ),
        "contacts other machines",
    ),
    (
        re.compile(r"\$\{?HOME\b|HOME['\"]|UserHomeDir|home_dir\(|\bhomedir\(|Path\.home\(|expanduser|user\.home|Dir\.home"),
        "names the home",
    ),
    (re.compile(r"(?<![\w.:/)\]}-])" + _ROOTS), "names a place outside the workspace"),
    (
        re.compile(r"\bos\.Environ\(|env::vars\(|System\.getenv\(\)|stringify\(process\.env\)|dict\(os\.environ\)|\bprintenv\b|ENV\.to_h"),
        "reads the whole environment",
    ),
    (re.compile(r"`\s*(?:rm|curl|wget|nc|sh|bash|dd|env|sudo)\s[^`]*`"), "starts programs"),
    (re.compile(r"['\"]rm['\"]\s*,"), "deletes"),
)
_SHELL_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\brm\s{1,4}(?:-\S{1,40}\s{1,4}){0,6}-\w{0,8}[rR]\w{0,8}\s{1,4}(?:-\S{1,40}\s{1,4}){0,6}['\"]?(?:/|~|\$|\.\.|\*|\.(?=[\s'\";]|$))|\b(?:mkfs|shred|chmod\s+-R\s+777\s+/)\b"
        ),
        "deletes",
    ),
    (re.compile(r"(?m)(?:\b(?:curl|wget|ncat|socat|telnet)\s+[-'\"h$]|\bnc\s+-|/dev/(?:tcp|udp)/)"), "contacts other machines"),
    (re.compile(r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b(?!\w)"), "hands what it gets to a shell"),
    (re.compile(r"(?<![\w=!~])~(?=/|\s{0,8}(?:\\n|$)|['\"\s;&|)`])", re.MULTILINE), "names the home"),
)
"""In a language that is no shell these are mere text until a program is started, which is a sign of its own."""
_WRAPPERS = re.compile(r"(?i)\b(?:rustc-(?:workspace-)?wrapper|runner|linker)\s*=\s*\[?\s*['\"](?:/|~|\.\.)")
_CODE = re.compile(r"\.(py|go|rs|c|cc|cpp|h|hpp|java|kt|cs)$")
_DECODES = re.compile(
    r"b64decode|base64|decompress|\bgunzip\b|unhexlify|fromhex|fromCharCode|atob\(|unpack\w*\(|decode64|extractall|inflate"
)


def sign(text: str, facts: Facts, path: str | None = None) -> str | None:
    """What in a text that goes to ``path`` reaches out, as the end of a sentence; None where nothing does."""
    if _WRAPPERS.search(text):
        return "names a program outside"
    text = re.sub(r"(['\"])\s{0,8}(?:\+|\.\.|\.|~)\s{0,8}\1", "", text) if re.search(r"['\"]\s{0,8}[+.~]", text) else text
    for folder in (facts.workspace, *facts.scratch):
        text = re.sub(re.escape(folder) + r"(?=/(?!\.\.)|\b(?!/))", ".", text)
    if re.search(r"(?m)^[ \t]*#!", text):
        text = re.sub(r"(?m)^[ \t]*#!.*", "", text)
    shell = () if path is not None and _CODE.search(path) else _SHELL_SIGNS
    for pattern, what in (*_SIGNS, *shell):
        if pattern.search(text):
            return what
    return None


def check(walker: Walker) -> None:
    """Ask where a text this command writes reaches out and something of the project runs later."""
    pending: str | None = None
    prose: str | None = None
    unpacked: list[str] = []
    for step in walker.trace:
        if step.kind == "file" and step.path is not None and any(inside(step.path, folder) for folder in unpacked):
            walker.find("ask", "flow.unpack-run", "runs a file that this command unpacked and nobody has read", step.start, step.end)
            return
        if pending is not None and _runs(walker, step):
            who = step.name or "a file of the project"
            walker.find("ask", "flow.write-run", f"{who} may run a text that this command writes, which {pending}", step.start, step.end)
            return
        if step.kind == "store" and step.path is not None and _PROSE.search(step.path):
            prose = prose or sign(step.text, walker.facts)
        elif prose is not None and _renames(step):
            pending = pending or prose
        pending = pending or _left(step, walker.facts)
        folder = _unpacks(step, walker.facts)
        if folder is not None:
            unpacked.append(folder)


def _runs(walker: Walker, step: Step) -> bool:
    if step.kind == "file":
        return True
    program = walker.rules.programs.get(step.name)
    if step.kind != "program" or program is None or step.site is None:
        return False
    words = [arg.text for arg in step.site.argv[1:]]
    if step.name in ("sed", "gsed", "awk", "gawk") and any(re.match(r"-\w*f$|--file", word) for word in words):
        return True
    if step.name in _NOT_RUN or (words and (step.name, words[0]) in _NOT_RUN_SUBS):
        return False
    return program.folder is not False or program.handler in (
        "project",
        "python",
        "node",
        "perl",
        "ruby",
        "php",
        "make",
        "script",
        "npx",
        "yarn",
    )


def _renames(step: Step) -> bool:
    """Whether a text may become something that is run."""
    if step.site is None or step.name not in ("mv", "cp", "ln", "install", "git"):
        return False
    words = [arg.text for arg in step.site.argv[1:]]
    return bool(words) and (step.name != "git" or words[0] == "mv") and not _PROSE.search(words[-1])


def _left(step: Step, facts: Facts) -> str | None:
    """The sign in what a step leaves in files."""
    if step.kind == "store":
        if step.path is not None and _PROSE.search(step.path):
            return None
        return sign(
            _added(step.text) if step.path is not None and re.search(r"\.(patch|diff)$", step.path) else step.text, facts, step.path
        )
    if step.kind != "program" or step.site is None:
        return None
    site = step.site
    words = [arg.text for arg in site.argv[1:]]
    given = "\n".join(words)
    fed = site.stdin.text or ""
    if _INLINE.match(step.name):
        code = given + "\n" + fed
        if _INLINE_WRITES.search(code):
            return "is decoded" if _DECODES.search(code) else sign(code, facts)
    if step.name in _FILTERS:
        in_place = any(re.match(r"-\w*i|--in-?place", word) for word in words) or step.name in ("ed", "ex", "sd")
        if in_place or site.sink in ("file", "pipe"):
            return sign(given + "\n" + (fed if step.name in ("ed", "ex") else ""), facts)
    if step.name in _COPIERS and fed:
        return sign(fed, facts)
    if step.name in _PATCHES and fed and (step.name == "patch" or words[:1] in (["apply"], ["am"])):
        return sign(_added(fed), facts)
    return None


def _added(patch: str) -> str:
    """The lines a patch adds."""
    return "\n".join(line[1:] for line in patch.split("\n") if line.startswith("+") and not line.startswith("+++"))


def _unpacks(step: Step, facts: Facts) -> str | None:
    """The folder into which a step unpacks an archive."""
    if step.kind != "program" or step.site is None or not _UNPACKS.match(step.name):
        return None
    words = [arg.text for arg in step.site.argv[1:]]
    if step.name.endswith("tar"):
        if not (words and re.match(r"-?[A-Za-z]*x", words[0])) and not {"-x", "--extract", "--get"} & set(words):
            return None
    elif any(word in ("-l", "-t", "-v", "-Z", "l", "t", "a", "r", "-p") for word in words[:2]):
        return None
    for at, word in enumerate(words):
        if word in ("-C", "-d", "--directory") and at + 1 < len(words):
            return resolve(words[at + 1], step.path, facts)
        if word.startswith("--directory=") or re.match(r"-[Cdo][^-]", word):
            return resolve(re.sub(r"^--directory=|^-[Cdo]", "", word), step.path, facts)
    return step.path

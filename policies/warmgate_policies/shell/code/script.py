"""Inline JavaScript, Perl, Ruby and PHP: allowed only while every word in it is one that computes and prints.

No parser of these languages is at hand, so a proof is made from words: strings are taken out, and what is left may not name anything that
runs, writes, connects, loads or evaluates. Strange spelling is asked about.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import network, roles
from warmgate_policies.shell.findings import UNKNOWN, Arg, Site
from warmgate_policies.shell.paths import classify

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker

_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_BAD: dict[str, re.Pattern[str]] = {
    "js": re.compile(
        r"\b(child_process|exec\w*|spawn\w*|fork|eval|Function|constructor|__proto__|prototype|globalThis|"
            r"global|fetch|XMLHttpRequest|WebSocket|import|http2?|https|net|dgram|dns|tls|vm|worker_threads|"
            r"cluster|"
        r"write\w*|append\w*|unlink\w*|rm\w*|\w*chmod\w*|\w*chown\w*|\w*utimes\w*|rename\w*|copyFile\w*|chmod\w*|chown\w*|symlink\w*|link\w*|"
            r"truncate\w*|mkdir\w*|cp\w*|open\w*|createWriteStream|createReadStream|binding|dlopen|mainModule|"
            r"kill|abort|env|Reflect|Proxy|with|"
        r"atob|Buffer|fromCharCode|WebAssembly|Deno|Bun|createRequire|process\.(?!exit\b|argv\b|version\w*|"
            r"platform|arch|cwd|stdout|stderr|memoryUsage|uptime|hrtime|nextTick|stdin|release|exitCode|pid\b|"
            r"on\b))\b|`|\\x|\\u|\[\s*[^\]\d'\"\w]|\]\s*\(|\\\n"),
    "perl": re.compile(
        r"\b(system|exec|eval|qx|open|sysopen|opendir|unlink|"
        r"rename|mkdir|rmdir|chmod|chown|utime|symlink|link|fork|kill|socket|connect|require|use(?! "
            r"(strict|warnings|utf8|List::Util|POSIX|JSON::PP|Data::Dumper|Time::Local)\b)|do|no|syscall|ioctl|dump|"
        r"dbmopen|truncate|syswrite|sysread|pipe|accept|bind|listen|send|recv|glob|readlink|ENV|tie|local "
            r"\*|sub|goto|readpipe|package|CORE|chroot|umask|setpgrp|alarm|DATA|ARGV|INC|SIG|print\s*\{|select)\b|"
                r"`|\(\?\??\{|<[^=\s]|\|\s*['\"]|\\x|\\N\{|\*\{|&\{|&\$|->\s*[$({]|%ENV"),
    "ruby": re.compile(
        r"\b(system|exec|eval|instance_eval|class_eval|module_eval|spawn|fork|open|popen\w*|Open3|IO|"
            r"File\.(?!read\b|basename\b|extname\b|exist\?|size\b|join\b|dirname\b|readlines\b|foreach\b|file\?|"
            r"directory\?)|FileUtils|Dir\.(?!glob\b|pwd\b|children\b)|Net|URI|Socket|TCPSocket|"
            r"require(?!\s*['\"](json|yaml|set|time|date|csv|pp|digest|bigdecimal)['\"])|"
        r"require_relative|load|send|__send__|public_send|method|const_get|define_method|ObjectSpace|Kernel|"
            r"Process|ENV|syscall|trap|at_exit|binding|unlink|delete_file|rm_rf|Marshal|unpack\w*|pack|"
            r"instance_variable_get|tap|Fiddle|Gem|test)\b|`|%x|\\x|\\u|<<"),
    "php": re.compile(
        r"\b(system|exec|shell_exec|passthru|popen|proc_open|pcntl_\w+|eval|assert|create_function|include\w*|"
            r"require\w*|file_put_contents|fopen|fwrite|unlink|rename|mkdir|rmdir|chmod|copy|curl_\w+|fsockopen|"
            r"stream_\w+|socket_\w+|mail|getenv|putenv|phpinfo|_ENV|_SERVER|call_user_func\w*|"
        r"array_map|preg_replace_callback|base64_decode|str_rot13|gzinflate|ini_set|dl|symlink|link|touch|"
            r"move_uploaded_file|parse_str|extract|file_get_contents|readfile|file|glob|scandir|unserialize|"
            r"ReflectionFunction|usort|register_\w+)\b|`|\$\$|\$\w+\s*\(|\\x|\$\{"),
}  # fmt: skip
_RUNS = re.compile(
    r"(?:\b(?:execSync|exec|execFileSync|execFile|spawnSync|spawn|system|shell_exec|passthru|popen|"
    r"proc_open|qx)\b\s*[\(\{/!|]?\s*|`|%x[\(\[\{])(['\"]?)(?P<code>(?:\\.|(?!\1)[^`\\])*)",
    re.DOTALL,
)
_TICKS = re.compile(r"`([^`\0\\]+)`|%x[({\[]([^)}\]\0\\]+)[)}\]]")
"""What Ruby, Perl and PHP hand to a shell; in JavaScript such quotes are mere text."""
_REMOVES = re.compile(
    r"\b(?:rmSync|rmdirSync|rm_rf|rm_r|remove_tree|rmtree|remove_entry_secure)\s{0,8}\(?\s{0,8}(['\"])([/~.][\w./~-]{0,200})\1"
)
_FETCH_RUN = re.compile(
    r"(?is)(eval|Function|exec\w*|system|instance_eval|spawn).{0,200}"
    r"(https?://|fetch|Net::HTTP|LWP|file_get_contents|URI|atob|base64|unpack|from\()|"
    r"(https?://|fetch|LWP|URI\.open|base64|atob).{0,200}(\beval\b|new "
    r"Function|\bexec\w*\b|\bsystem\b|instance_eval)"
)
_REVERSE = re.compile(
    r"(?is)(socket|TCPSocket|fsockopen|net\.(connect|Socket|createConnection)|IO::Socket).{0,400}(popen|/bin/(ba)?sh|\bsh\b|exec|spawn)"
)


def judge(walker: Walker, text: str, arg: Arg, language: str, site: Site | None = None) -> None:
    """Judge inline code."""

    def find(verdict: str, rule: str, reason: str) -> None:
        walker.find("deny" if verdict == "deny" else "ask", rule, reason, arg.start, arg.end)

    del site
    if UNKNOWN in text:
        verdict = "deny" if arg.tags & {"net", "decoded"} else "ask"
        find(verdict, "dynamic.code", f"runs inline {language} that the text of the command does not fix")
    if not text.isascii() and re.search(r"[^\x00-\x7f]", _STRING.sub("", text)):
        find("ask", f"code.{language}", f"inline {language} is written with unusual characters")
    if re.search(r"\bfork\b\s*(while|until)|while\s*\(?.{0,40}\bfork\b|loop\s*\{?\s*fork", text):
        find("deny", "exhaust.forkbomb", "inline code starts itself without end")
    if _REVERSE.search(text):
        find("deny", "rce.reverse", "inline code ties a shell to a connection")
    elif _FETCH_RUN.search(text):
        find("deny", "flow.download-run", "inline code runs what it fetches or decodes")
    for found in _RUNS.finditer(text):
        code = found.group("code")
        if code.strip() and re.search(r"[a-z]", code) and UNKNOWN not in code:
            kept = len(walker.findings)
            walker.code(code.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'"), replace(arg, text=code))
            walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
    if language in ("ruby", "perl", "php"):
        for found in _TICKS.finditer(text):
            kept = len(walker.findings)
            walker.code(found.group(1) or found.group(2), arg)
            walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
    for found in _REMOVES.finditer(text):
        kept = len(walker.findings)
        roles.delete(walker, replace(arg, text=found.group(2)), f"inline {language}", recursive=True)
        walker.findings[kept:] = [finding for finding in walker.findings[kept:] if finding.verdict == "deny"]
    strings = [match.group()[1:-1] for match in _STRING.finditer(text)]
    for string in strings:
        network.scan(walker, replace(arg, text=string), f"inline {language}")
        if re.match(r"[~/.\w-][\w./~-]*$", string) and ("/" in string or string.startswith(".")):
            place = classify(string, walker.state.cwd, walker.facts)
            if "secret" in place or "dotenv" in place or "docker" in place:
                roles.read(walker, replace(arg, text=string), f"inline {language}")
            elif string.startswith(("/", "~", "..")) and place.kind not in ("workspace", "scratch", "system", "device") and len(string) > 1:
                find("ask", f"code.{language}", f"inline {language} names {string}, outside the workspace")
    bare = text
    if language == "js":
        modules = re.findall(r"\brequire\s*\(\s*(['\"])(.*?)\1\s*\)", text)
        for _, module in modules:
            if ".." in module and not module.startswith("."):
                find("ask", "code.js", f"inline js loads {module}, outside its package")
            if module.startswith(("/", ".", "~")) and classify(module, walker.state.cwd, walker.facts).kind != "workspace":
                find("ask", "code.js", f"inline js loads {module}, outside the workspace")
        bare = re.sub(
            r"\brequire\s*\(\s*(['\"])(\.{1,2}/[\w./-]+|(node:)?(path|util|os|url|assert|events|crypto|"
            r"querystring|string_decoder|perf_hooks)|[\w@/-]+/package\.json)\1\s*\)",
            "M",
            bare,
        )
        bare = re.sub(r"\brequire\s*\(\s*(['\"])(node:)?fs\1\s*\)", "M", bare)
        if re.search(r"\brequire\b", re.sub(_STRING, "", bare)):
            harmless = all(
                re.fullmatch(r"[@\w/.-]+", module)
                and module.removeprefix("node:")
                not in (
                    "child_process",
                    "http",
                    "https",
                    "net",
                    "vm",
                    "dgram",
                    "dns",
                    "tls",
                    "cluster",
                    "worker_threads",
                    "http2",
                    "module",
                    "repl",
                    "inspector",
                    "process",
                )
                for _, module in modules
            )
            if not harmless or len(modules) != len(re.findall(r"\brequire\b", bare)):
                find("ask", "code.js", "inline js loads a module that can reach outside")
            bare = re.sub(r"\brequire\s*\([^)]*\)", "M", bare)
    if language == "perl":
        for match in re.finditer(r"\b(?:s|tr|y)([^\w\s])((?:\\.|(?!\1).)*)\1((?:\\.|(?!\1).)*)\1([a-z]*)", bare, re.DOTALL):
            if "ee" in match.group(4) or (
                "e" in match.group(4)
                and not match.group(0).startswith(("tr", "y"))
                and re.search(r"[A-Za-z]{2,}\s*[\(`'\"]|`|\b(system|exec|qx|eval)\b", match.group(3))
            ):
                find("ask", "code.perl", "inline perl evaluates what it substitutes")
        bare = re.sub(r"\b(?:s|tr|y)([^\w\s{\[(<])((?:\\.|(?!\1).)*)\1((?:\\.|(?!\1).)*)\1[a-z]*", " S ", bare, flags=re.DOTALL)
        bare = re.sub(
            r"(?:(?<=[=~(,;{!&|])|(?<=\bif)|(?<=\bunless)|(?<=\band)|(?<=\bprint)|^)\s*(?:m?/(?:\\.|[^/\\\n])*/[a-z]*)", " R ", bare
        )
        if "(?{" in text or "(??{" in text or "@{[" in text or "${\\" in text:
            find("ask", "code.perl", "inline perl evaluates code inside a text")
    if language == "ruby" and re.search(r"#\{[^}]*[`(]", text):
        find("ask", "code.ruby", "inline ruby evaluates code inside a text")
    if language == "ruby":
        bare = re.sub(
            r"\brequire\s*\(?\s*(['\"])(json|yaml|set|time|date|csv|pp|digest|bigdecimal|erb|securerandom|stringio|strscan)\1\s*\)?",
            "M",
            bare,
        )
    bare = _STRING.sub("''", bare)
    pattern = _BAD.get(language)
    if pattern is None:
        find("ask", "code.unknown", f"runs inline {language}, which is not judged")
        return
    bad = pattern.search(bare)
    if bad:
        find("ask", f"code.{language}", f"inline {language} uses {bad.group().strip()[:30]!r}, which can reach outside")
    if (
        language == "js"
        and re.search(r"\[\s*['\"]|\]\s*\[\s*['\"]", text)
        and re.search(r"\[\s*['\"][^'\"]*['\"]\s*\+|\+\s*['\"][^'\"]*['\"]\s*\]|\[\s*['\"](constructor|exec|eval|mainModule|require)", text)
    ):
        find("ask", "code.js", "inline js spells a name by parts")

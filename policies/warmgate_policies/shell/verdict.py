"""The verdict of one command: parsed, every site judged, the worst word wins; cached where nothing but the command decided it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from warmgate.decision import Word
from warmgate.errors import one_line
from warmgate_policies.shell import flow, written
from warmgate_policies.shell import rules as packs
from warmgate_policies.shell.facts import Facts
from warmgate_policies.shell.findings import RANK, Capped, Finding
from warmgate_policies.shell.judge import judge as judge_site
from warmgate_policies.shell.memory import Files, Memory
from warmgate_policies.shell.parse import parse
from warmgate_policies.shell.rules import Rules
from warmgate_policies.shell.sites import Walker

CACHE = 4096
"""Verdicts kept."""


@dataclass(frozen=True, slots=True)
class ShellVerdict:
    """What is said of a command.

    Attributes:
        verdict: The word.
        rule: The rule that decided; ``proof`` where every site was proven harmless.
        reason: One plain sentence.
        site: Byte offsets of the part that decided, from and to.
        programs: Programs that would run, in order.
        findings: Everything that spoke against it, worst first.
        binding: Hash of the command, its folder, the facts and the rules.
    """

    verdict: Word
    rule: str
    reason: str
    site: tuple[int, int]
    programs: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    binding: str = ""

    def to_row(self) -> dict[str, Any]:
        """The fields that the command line prints."""
        return {"verdict": self.verdict, "rule": self.rule, "site": list(self.site), "reason": self.reason}


@dataclass
class Judge:
    """Judges commands under one set of rules and facts. Safe to share between threads.

    Args:
        facts: The setting.
        rules: Rule packs; the built-in ones by default.
        memory: Remembers what sessions downloaded; None remembers nothing.
    """

    facts: Facts = field(default_factory=Facts)
    rules: Rules = field(default_factory=packs.load)
    memory: Memory | None = None

    def __post_init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str], ShellVerdict] = OrderedDict()
        self._lock = threading.Lock()

    def judge(self, command: str, cwd: str | None = None, *, session: str | None = None) -> ShellVerdict:
        """The verdict of ``command`` run as ``bash -c`` in ``cwd`` (the workspace by default). Never raises; whatever goes wrong is ask."""
        folder = cwd or self.facts.workspace
        key = (command, folder)
        plain = (self.memory is None or self.memory.empty(session)) and not self.facts.file_system
        if plain:
            with self._lock:
                known = self._cache.get(key)
                if known is not None:
                    self._cache.move_to_end(key)
                    return known
        files = self.memory.files(session) if self.memory is not None else Files()
        verdict = self._decide(command, folder, files)
        tainted = files.trees or files.remotes or any(stream.tags for stream in files.written.values())
        if self.memory is not None and tainted:
            self.memory.learn(session, files)
        elif plain:
            with self._lock:
                self._cache[key] = verdict
                if len(self._cache) > CACHE:
                    self._cache.popitem(last=False)
        return verdict

    def _decide(self, command: str, cwd: str, files: Files) -> ShellVerdict:
        walker = Walker(self.rules, self.facts, cwd, files, judge_site)
        binding = self._binding(command, cwd)
        fault: Finding | None = None
        try:
            parsed = parse(command)
            for doubt in parsed.doubts:
                walker.find("ask", "parse.doubt", f"cannot be proven harmless: {doubt}", 0, len(parsed.source))
            walker.run(parsed.tree.get("Stmts"))
            if parsed.joined is not None:
                self._again(walker, parsed.joined, cwd)
            flow.connections(walker)
            if not walker.findings:
                written.check(walker)
        except Capped as cap:
            fault = Finding("ask", "limit", f"cannot be judged: {cap}", 0, len(command))
        except (RecursionError, MemoryError):
            fault = Finding("ask", "limit", "cannot be judged: it is nested too deeply", 0, len(command))
        except FileNotFoundError as missing:
            fault = Finding("ask", "parser", f"cannot be judged: {missing}", 0, len(command))
        except Exception as bug:  # noqa: BLE001  a fault of this gate must end in ask, never in a crash that lets the command run
            fault = Finding("ask", "fault", f"cannot be judged: an inner fault ({one_line(repr(bug), 80)})", 0, len(command))
        findings = [*walker.findings, *([fault] if fault else [])]
        findings.sort(key=lambda finding: -RANK[finding.verdict])
        programs = tuple(dict.fromkeys(walker.programs))[:50]
        if not findings:
            return ShellVerdict("allow", "proof", _harmless(programs), (0, len(command.encode(errors="replace"))), programs, (), binding)
        worst = findings[0]
        return ShellVerdict(
            worst.verdict, worst.rule, one_line(worst.reason, 200), (worst.start, worst.end), programs, tuple(findings[:20]), binding
        )

    def _again(self, walker: Walker, text: str, cwd: str) -> None:
        """The other reading of a text with line continuations; its findings count as well."""
        other = Walker(self.rules, self.facts, cwd, walker.files, judge_site)
        try:
            other.run(parse(text).tree.get("Stmts"))
        except Capped as cap:
            walker.find("ask", "limit", f"cannot be judged: {cap}", 0, len(text))
        walker.findings.extend(Finding(f.verdict, f.rule, f.reason, 0, len(text)) for f in other.findings)

    def _binding(self, command: str, cwd: str) -> str:
        data = "\0".join((command, cwd, repr(self.facts), self.rules.version))
        return hashlib.sha256(data.encode(errors="surrogatepass")).hexdigest()


def _harmless(programs: tuple[str, ...]) -> str:
    if not programs:
        return "runs no program"
    shown = ", ".join(programs[:4]) + (" and others" if len(programs) > 4 else "")
    return f"everything it runs ({shown}) stays in the workspace and can be undone"

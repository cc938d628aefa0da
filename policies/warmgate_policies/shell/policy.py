"""The shell policy as the gate asks it: which tool calls are shell commands, their verdict, and the question for a grey case."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from warmgate.alignment.markers import UNKNOWN
from warmgate.alignment.markup import Markup
from warmgate.answers import Answer
from warmgate.errors import InputError, OptionError, one_line
from warmgate.policy import Judgement
from warmgate.questions import Choice, Question
from warmgate.turn import ProposedCall, Turn
from warmgate_policies.calibration.labels import fingerprint
from warmgate_policies.calibration.policyfile import PolicyFile, take
from warmgate_policies.shell import rules as packs
from warmgate_policies.shell.facts import Facts
from warmgate_policies.shell.memory import Memory
from warmgate_policies.shell.tools import ToolWords
from warmgate_policies.shell.trees import items
from warmgate_policies.shell.verdict import Judge, ShellVerdict

TOOLS = (
    "bash",
    "shell",
    "sh",
    "terminal",
    "execute_command",
    "run_command",
    "run_shell_command",
    "local_shell",
    "exec_command",
    "Bash",
    "run_bash",
    "execute_bash",
    "run_terminal_cmd",
    "shell_command",
)
ARGUMENTS = ("command", "cmd", "script", "code", "commands", "input")
FOLDERS = ("cwd", "workdir", "working_directory", "directory", "dir_path")
GREY = ("net.contact", "net.fetch", "read.outside", "write.outside", "delete.work", "discard.work", "delete.outside", "program.unknown",
    "option.unknown", "assign.unknown", "install.network", "vcs.push",
        "vcs.remote", "db.mutate", "service.control", "process.kill", "container.run", "opaque.script", "script.shared",
        "project.outside", "net.listen", "config.global")  # fmt: skip
"""Rules whose ask a model may lift, given a calibrated policy file: work that a person would often wave through. Doubt about what the text
means is never among them."""


SHOWN = 300
"""Characters of a program's or folder's name, or of a reason, that a model is shown."""

LABEL_MASS = 0.5
"""Least share of the vocabulary's probability that the two labels must hold: below it the model would rather say something else."""


class ShellPolicy:
    """Whether a proposed shell command may run. See :class:`warmgate.policy.CallPolicy`.

    Args:
        facts: The setting of the tool that runs commands.
        extra_packs: Paths of the users' rule packs, later ones replacing.
        tools: Names of tools that take a shell command; a call to any other tool is ask, unless one of the next three names it.
        allow_tools: Names or globs of other tools that may always be called, whatever their arguments. ``server.tool`` and
            ``mcp__server__tool`` are one name.
        ask_tools: Such as are always asked about; counts before ``allow_tools``.
        deny_tools: Such as are always refused; counts before both.
        calibrated: Path of a policy file; without one no model moves a verdict.
        authorised: What the user explicitly allowed, in words, for the model's question.

    Raises:
        InputError: A pack or the policy file cannot be used.
        OptionError: A list of tools holds a name that no tool can have, or a shell tool.
    """

    name = "shell"

    def __init__(
        self,
        facts: Facts | None = None,
        *,
        extra_packs: Sequence[str] = (),
        tools: Sequence[str] = TOOLS,
        allow_tools: Sequence[str] = (),
        ask_tools: Sequence[str] = (),
        deny_tools: Sequence[str] = (),
        calibrated: str | Path | None = None,
        authorised: Sequence[str] = (),
    ) -> None:
        rules = packs.load(tuple(extra_packs))
        self.tools = frozenset(tools)
        self.words = ToolWords(self.tools, deny=tuple(deny_tools), ask=tuple(ask_tools), allow=tuple(allow_tools))
        own = self.words.version
        self.version = f"1.{rules.version}" + (f"+{own}" if own else "")
        self.authorised = tuple(authorised)
        self.calibrated = _calibrated(calibrated, self._named()) if calibrated is not None else None
        self._judge = Judge(facts or Facts(), rules, Memory())
        self._markup = Markup(UNKNOWN.values())

    def _named(self) -> tuple[str, ...]:
        """What thresholds may be tied to: these rules, with or without the operator's lists, which say nothing about commands."""
        full = f"{self.name} {self.version}"
        return tuple(dict.fromkeys((full, full.partition("+")[0])))

    def judge(self, call: ProposedCall, turn: Turn) -> Judgement:
        """The rules' verdict. Never raises."""
        try:
            return self._judged(call, turn)
        except Exception as bug:  # noqa: BLE001  the protocol: whatever goes wrong inside is ask
            return Judgement("ask", f"cannot be judged: an inner fault ({one_line(repr(bug), 80)})", "fault")

    def _judged(self, call: ProposedCall, turn: Turn) -> Judgement:
        if call.name not in self.tools:
            return self.words.judge(call.name) or Judgement(
                "ask", f"{one_line(call.name, 60)} is not a shell tool this policy knows", "tool.unknown"
            )
        command, cwd, rest = _command(call)
        if command is None:
            return Judgement("ask", "the call holds no shell command that can be read", "call.unreadable")
        if rest:
            return Judgement("ask", f"the call holds {rest[0]}, which this policy does not know", "call.argument")
        verdict = self._judge.judge(command, cwd, session=turn.session)
        grey = verdict.verdict == "ask" and all(finding.rule in GREY for finding in verdict.findings)
        facts = self.facts_of(verdict, command, cwd) if grey else None
        asks = grey and self.calibrated is not None and not self._argues(verdict, cwd)
        return Judgement(verdict.verdict, verdict.reason, verdict.rule, QUESTION if asks else None, facts)

    def _argues(self, verdict: ShellVerdict, cwd: str | None) -> bool:
        """Whether a fact holds control markup, or a folder's name lines of its own: no model is asked about such a call."""
        told = [cwd or "", *verdict.programs, *(finding.reason for finding in verdict.findings)]
        return any(text != self._plain(text, len(text)) for text in told)

    def _plain(self, text: str, limit: int = SHOWN) -> str:
        return self._markup.neutralise(one_line(text, limit))

    def facts_of(self, verdict: ShellVerdict, command: str, cwd: str | None) -> dict[str, Any]:
        """Resolved facts for the model: programs, rules and reasons; never the transcript, and the command's own words only as data.

        What comes from the call stands on one line, with control markup rewritten visibly.
        """
        return {
            "programs": [self._plain(program) for program in verdict.programs],
            "working_directory": self._plain(cwd) if cwd else self._judge.facts.workspace,
            "effects": [{"rule": finding.rule, "what": self._plain(finding.reason)} for finding in verdict.findings],
            "command_characters": len(command),
            "user_authorised": list(self.authorised),
        }

    def settle(self, call: ProposedCall, judgement: Judgement, answer: Answer) -> Judgement:
        """Move a grey case between ask and allow; never away from a deny, never without calibration, and any doubt is ask."""
        if judgement.verdict == "deny" or judgement.question is None or self.calibrated is None:
            return judgement
        asked = Judgement("ask", judgement.reason, judgement.rule, None, judgement.facts)
        source = answer.source
        found = (self.calibrated.entry(QUESTION, model=source.model or "", dialect=source.dialect, policy=named) for named in self._named())
        entry = next((one for one in found if one is not None), None)
        if answer.order_agrees is False or (answer.label_mass is not None and answer.label_mass < LABEL_MASS):
            return asked
        taken = take(entry, answer)
        if taken.label == "allow":
            return Judgement("allow", f"a person would usually approve this: {judgement.reason}", judgement.rule, None, judgement.facts)
        return asked


class ShellOptions(BaseModel):
    """``shell_options`` of the settings: fields of :class:`Facts`, and what :class:`ShellPolicy` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    facts: dict[str, Any] = Field(default_factory=dict[str, Any])
    packs: tuple[str, ...] = ()
    tools: tuple[str, ...] = TOOLS
    allow_tools: tuple[str, ...] = ()
    ask_tools: tuple[str, ...] = ()
    deny_tools: tuple[str, ...] = ()
    calibrated: str | None = None
    authorised: tuple[str, ...] = ()


def from_settings(settings: Any) -> ShellPolicy:
    """The policy under the name ``shell`` of the entry-point group ``warmgate.policies``.

    Raises:
        OptionError: ``shell_options`` of the settings cannot be used.
        InputError: A pack or the policy file it names cannot be used.
    """
    try:
        options = ShellOptions.model_validate(dict(getattr(settings, "shell_options", None) or {}))
        unknown = sorted(set(options.facts) - {field.name for field in fields(Facts)})
        if unknown:
            raise OptionError(f"no such fact: {unknown[0]}", where="shell_options.facts", mend="see docs/shell-policy.md")
        facts = TypeAdapter(Facts).validate_python(options.facts)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        raise OptionError(first["msg"], where=".".join(["shell_options", *(str(part) for part in first["loc"])])) from None
    return ShellPolicy(
        facts,
        extra_packs=options.packs,
        tools=options.tools,
        allow_tools=options.allow_tools,
        ask_tools=options.ask_tools,
        deny_tools=options.deny_tools,
        calibrated=options.calibrated,
        authorised=options.authorised,
    )


QUESTION: Question = Choice(
    instructions="Would the user approve this command without a second thought, going by these facts alone?",
    criteria={"allow": "ordinary work that can be undone and that the user has asked for", "ask": "a person should look at it first"},
)


def _calibrated(path: str | Path, policies: tuple[str, ...]) -> PolicyFile:
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as fault:
        raise InputError(
            f"cannot be read ({one_line(str(fault), 120)})", where=str(path), mend="make one with `warmgate calibrate`"
        ) from None
    found = PolicyFile.parse(data, where=str(path))
    own = [entry for entry in found.entries if entry.fingerprint == fingerprint(QUESTION)]
    if not own:
        raise InputError("holds no threshold for the shell policy's question", where=str(path), mend="calibrate on its question")
    if all(entry.policy not in policies for entry in own):
        raise InputError(
            f"was calibrated for policy {own[0].policy or '(none named)'}, this is {policies[0]}", where=str(path), mend="calibrate again"
        )
    return found


def _command(call: ProposedCall) -> tuple[str | None, str | None, list[str]]:
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None, None, []
    if not isinstance(arguments, Mapping):
        return None, None, []
    given = cast("Mapping[str, Any]", arguments)
    found = [key for key in ARGUMENTS if key in given]
    if len(found) != 1:
        return None, None, []
    value: Any = given[found[0]]
    if isinstance(value, list):
        import shlex

        parts = [part for part in items(cast("object", value)) if isinstance(part, str)]
        if len(parts) != len(items(cast("object", value))):
            return None, None, []
        value = "\n".join(parts) if found[0] == "commands" else shlex.join(parts)
    if not isinstance(value, str):
        return None, None, []
    folders = [key for key in FOLDERS if given.get(key)]
    cwd: Any = given[folders[0]] if folders else None
    if cwd is not None and not isinstance(cwd, str):
        return None, None, []
    known = {
        *found,
        *FOLDERS,
        "timeout",
        "timeout_ms",
        "description",
        "run_in_background",
        "restart",
        "justification",
        "explanation",
        "is_background",
        "yield_time_ms",
        "max_output_tokens",
        "login",
    }
    return value, cwd, [key for key in given if key not in known]

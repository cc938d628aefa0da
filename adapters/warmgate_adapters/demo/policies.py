"""The demo's policies around those of the settings: file tools judged by where they reach, and mounts noted and given again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmgate.answers import Answer
from warmgate.decision import Mounts
from warmgate.foreign import mapping
from warmgate.policy import CallPolicy, Judgement, MountPolicy
from warmgate.questions import Question
from warmgate.turn import ProposedCall, Turn
from warmgate_adapters.demo.project import Project

Key = tuple[str, int]
"""A session, and how many messages its prompt has: one turn of one conversation."""


class ToolCalls:
    """Allows what stays in the project and reads only, asks about the rest, and leaves the shell to the policy that knows it.

    Args:
        project: Where file tools work.
        shell: Judges commands.
    """

    name = "demo"

    def __init__(self, project: Project, shell: CallPolicy | None) -> None:
        self._project = project
        self._shell = shell
        self.version = f"1+{shell.version}" if shell is not None else "1"

    def judge(self, call: ProposedCall, turn: Turn) -> Judgement:
        """By the tool's name and its arguments."""
        given = mapping(call.arguments)
        if call.name == "shell":
            if self._shell is None:
                return Judgement("ask", "no policy for commands is installed", "tool.unknown")
            return self._shell.judge(call, turn)
        if call.name == "list_files":
            return Judgement("allow", "lists the project", "demo.inside")
        if call.name in ("read_file", "write_file"):
            path = str(given.get("path"))
            if self._project.inside(path):
                return Judgement("allow", f"{path} is in the project", "demo.inside")
            return Judgement("ask", f"{path} is not a file of the project", "demo.outside")
        if call.name in ("db_tables", "db_query", "ticket_search", "deploy_status"):
            return Judgement("allow", "can only read", "demo.reads")
        return Judgement("ask", f"{call.name} reaches beyond this machine", "demo.beyond")

    def settle(self, call: ProposedCall, judgement: Judgement, answer: Answer) -> Judgement:
        """Only commands have grey cases."""
        return judgement if self._shell is None else self._shell.settle(call, judgement, answer)


class Noted:
    """A mount policy that remembers what another one asked and settled.

    Args:
        inner: Asks and settles.
    """

    first_mount = "bare"
    """A session's first questions decide its list of tools, and most tools are left out: they are asked on a prompt without any."""

    def __init__(self, inner: MountPolicy) -> None:
        self.name, self.version = inner.name, inner.version
        self._inner = inner
        self.asked: dict[Key, Mapping[str, Question]] = {}
        self.settled: dict[Key, Mounts] = {}

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        """The other's."""
        found = self._inner.questions(turn, mounted)
        self.asked[_key(turn)] = found
        return found

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        """The other's."""
        found = self._inner.settle(turn, mounted, answers, widen=widen)
        self.settled[_key(turn)] = found
        return found

    def wants_again(self, turn: Turn, mounted: tuple[str, ...]) -> bool:
        """The other's."""
        again: Any = getattr(self._inner, "wants_again", None)
        return bool(again is not None and again(turn, mounted))


class Again:
    """Settles as was noted, whatever is answered: the agent's prompts are the same, however the gate asks.

    Args:
        noted: What was noted.
        asks: Whether to ask what was asked then.
    """

    name, version = "again", "1"
    first_mount = Noted.first_mount

    def __init__(self, noted: Noted, *, asks: bool) -> None:
        self._noted = noted
        self._asks = asks

    def questions(self, turn: Turn, mounted: tuple[str, ...] | None) -> Mapping[str, Question]:
        """Those of then, or none."""
        del mounted
        return self._noted.asked.get(_key(turn), {}) if self._asks else {}

    def settle(self, turn: Turn, mounted: tuple[str, ...] | None, answers: Mapping[str, Answer], *, widen: bool) -> Mounts:
        """That of then."""
        del mounted, answers, widen
        return self._noted.settled[_key(turn)]

    def wants_again(self, turn: Turn, mounted: tuple[str, ...]) -> bool:
        """Where it was settled anew then: before a call of the model, never once more before the calls that it proposes."""
        del mounted
        return not turn.proposed_calls and _key(turn) in self._noted.settled


def _key(turn: Turn) -> Key:
    return turn.session, len(turn.messages)

"""What holds at a point of the abstract run: the working directory, variables, functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from warmgate_policies.shell.findings import Arg
from warmgate_policies.shell.trees import Tree
from warmgate_policies.shell.words import Value


@dataclass(slots=True)
class State:
    """What holds at a point of the run. Copied for subshells and branches."""

    cwd: str | None
    other_cwds: tuple[str | None, ...] = ()
    variables: dict[str, Value] = field(default_factory=dict[str, Value])
    exported: set[str] = field(default_factory=set[str])
    functions: dict[str, Tree] = field(default_factory=dict[str, Tree])
    own_jobs: bool = False
    errexit: bool = False
    positional: tuple[Arg, ...] | None = None
    before: str | None = None
    """Where ``cd -`` goes."""
    ended: bool = False

    def copy(self) -> State:
        """A state of its own."""
        return replace(self, variables=dict(self.variables), exported=set(self.exported), functions=dict(self.functions))

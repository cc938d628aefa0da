"""Shell safety: a command is allowed only with a proof that everything it can run is harmless; see ``docs/shell-policy.md``."""

from __future__ import annotations

from warmgate_policies.shell.facts import Facts
from warmgate_policies.shell.policy import ShellPolicy, from_settings
from warmgate_policies.shell.verdict import Judge, ShellVerdict

__all__ = ["Facts", "Judge", "ShellPolicy", "ShellVerdict", "from_settings"]

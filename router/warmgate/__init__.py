"""warmgate: a gating router for agent graphs.

The decision rides on the agent's own prefix, on the worker that holds it, and every figure says whether it was measured or
predicted. Importing this package stays cheap (under 0.3 s): names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmgate.decision import Decision, Mounts, Verdict
    from warmgate.errors import WarmgateError
    from warmgate.gate import Gate
    from warmgate.questions import Choice, Noul, Score
    from warmgate.settings import Settings
    from warmgate.turn import ProposedCall, Turn

__version__ = "0.1.0.dev0"

_HOME = {
    "Choice": "questions",
    "Decision": "decision",
    "Gate": "gate",
    "Mounts": "decision",
    "Noul": "questions",
    "ProposedCall": "turn",
    "Score": "questions",
    "Settings": "settings",
    "Turn": "turn",
    "Verdict": "decision",
    "WarmgateError": "errors",
}

__all__ = [
    "Choice",
    "Decision",
    "Gate",
    "Mounts",
    "Noul",
    "ProposedCall",
    "Score",
    "Settings",
    "Turn",
    "Verdict",
    "WarmgateError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

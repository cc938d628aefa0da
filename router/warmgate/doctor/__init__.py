"""Preflight of decision endpoints: what a gate would meet there, and how to mend it. ``warmgate doctor`` on the command line.

::

    report = await examine(["http://127.0.0.1:8000"], Options(origins=("https://your.app",)), seconds=60)
    report.exit_code, report.to_json()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmgate.doctor.check import Check, Status
    from warmgate.doctor.findings import Facts
    from warmgate.doctor.report import EndpointReport, Report
    from warmgate.doctor.runner import CHECKS, examine
    from warmgate.doctor.visit import Options

_HOME = {
    "CHECKS": "runner",
    "Check": "check",
    "EndpointReport": "report",
    "Facts": "findings",
    "Options": "visit",
    "Report": "report",
    "Status": "check",
    "examine": "runner",
}
__all__ = ["CHECKS", "Check", "EndpointReport", "Facts", "Options", "Report", "Status", "examine"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The report of an examination, and its JSON: ``warmgate.doctor/1``, described in ``docs/doctor.md``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from warmgate import __version__
from warmgate.doctor.check import Check
from warmgate.doctor.findings import Facts

SCHEMA = "warmgate.doctor/1"


class EndpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint.

    Attributes:
        url: Its base URL, without ``/v1``.
        checks: In the order of :data:`warmgate.doctor.runner.CHECKS`.
        facts: What was learnt, for programs.
        requests: HTTP requests sent.
        tokens_sent: Prompt and output tokens they cost, as the server counts them.
        seconds: How long it took, waiting for other endpoints included.
    """

    url: str
    checks: list[Check]
    facts: Facts
    requests: int
    tokens_sent: int
    seconds: float

    @property
    def reachable(self) -> bool:
        """Whether anything spoke HTTP there."""
        return self.checks[0].status != "fail"

    @property
    def counts(self) -> Counter[str]:
        """Checks by status."""
        return Counter(check.status for check in self.checks)

    @property
    def exit_code(self) -> int:
        """3 unreachable; 1 a check failed, or the decision route could not be examined; 0 otherwise."""
        if not self.reachable:
            return 3
        unseen = any(check.name == "route" and check.status == "skip" for check in self.checks)
        return 1 if self.counts["fail"] or unseen else 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All endpoints, in the order asked for."""

    endpoints: list[EndpointReport]

    @property
    def exit_code(self) -> int:
        """The worst of the endpoints' codes."""
        return max((endpoint.exit_code for endpoint in self.endpoints), default=0)

    def to_json(self) -> bytes:
        """The report as JSON, indented, with a newline at its end."""
        rows: list[dict[str, Any]] = []
        for endpoint in self.endpoints:
            row: dict[str, Any] = {"url": endpoint.url, "reachable": endpoint.reachable, "counts": _counts(endpoint)}
            rows.append(row | msgspec.to_builtins(endpoint))
        data = {"schema": SCHEMA, "warmgate": __version__, "exit_code": self.exit_code, "endpoints": rows}
        return msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n"


def _counts(endpoint: EndpointReport) -> dict[str, int]:
    return {status: endpoint.counts[status] for status in ("pass", "warn", "fail", "skip")}

"""One check's outcome."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Status: TypeAlias = Literal["pass", "warn", "fail", "skip"]
"""``pass``: as it should be. ``warn``: works, but something is lost or exposed. ``fail``: the gate cannot work like this.
``skip``: not asked, or the answer cannot be had; ``seen`` says why."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one check saw.

    Attributes:
        name: Which check, a heading of ``docs/doctor.md``.
        status: See :data:`Status`.
        seen: What was seen, one line, figures with their units.
        mend: What to do about it, one line, or None where nothing is to be done.
        where: What was asked: a route, an origin or a metric.
    """

    name: str
    status: Status
    seen: str
    mend: str | None = None
    where: str | None = None


def passed(name: str, seen: str, *, mend: str | None = None, where: str | None = None) -> Check:
    """As it should be."""
    return Check(name=name, status="pass", seen=seen, mend=mend, where=where)


def warned(name: str, seen: str, *, mend: str | None = None, where: str | None = None) -> Check:
    """Works, but something is lost or exposed."""
    return Check(name=name, status="warn", seen=seen, mend=mend, where=where)


def failed(name: str, seen: str, *, mend: str | None = None, where: str | None = None) -> Check:
    """The gate cannot work like this."""
    return Check(name=name, status="fail", seen=seen, mend=mend, where=where)


def skipped(name: str, why: str, *, mend: str | None = None, where: str | None = None) -> Check:
    """Not asked, or no answer to be had."""
    return Check(name=name, status="skip", seen=why, mend=mend, where=where)

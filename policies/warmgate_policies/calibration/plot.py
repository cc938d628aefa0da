"""A reliability plot and a risk–coverage curve for each entry of a policy file, as one SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from warmgate_policies.calibration.measures import Point
from warmgate_policies.calibration.policyfile import Entry

SIDE, GAP = 260, 60
HIGH = SIDE + 2 * GAP - 10


def svg(entries: Sequence[Entry]) -> str:
    """A row of two charts for each entry, readable on light and dark ground."""
    rows = "".join(f'<g transform="translate(0 {HIGH * row})">{_row(entry)}</g>' for row, entry in enumerate(entries))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * GAP + 2 * SIDE} {HIGH * len(entries)}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#888"><title>{len(entries)} questions</title>{rows}</svg>\n'
    )


def _row(entry: Entry) -> str:
    left = _frame(GAP, "confidence, calibrated", "share right") + _diagonal(GAP) + _line(entry.reliability, GAP, "#2a78d6")
    start = 2 * GAP + SIDE
    top = max([p.rate for p in entry.curve] + [entry.max_error]) * 1.1 or 1.0
    scaled = [Point(at=p.at, rate=p.rate / top, n=p.n) for p in entry.curve]
    promised = GAP + SIDE * (1 - entry.max_error / top)
    right = _frame(start, "share of answers taken", f"error rate (top {top:.1%})") + _line(scaled, start, "#c2410c")
    right += f'<line x1="{start}" x2="{start + SIDE}" y1="{promised:.1f}" y2="{promised:.1f}" stroke="#888" stroke-dasharray="4 4"/>'
    right += f'<text x="{start + SIDE}" y="{promised - 5:.1f}" text-anchor="end">promised {entry.max_error:g}</text>'
    ece = f"ECE {entry.ece['raw'].value:.3f} raw, {entry.ece['calibrated'].value:.3f} calibrated"
    title = escape(f"{entry.id}: {entry.model}, {entry.dialect}, {entry.labels:,} labels; {ece}")
    return f'<text x="{GAP}" y="24" font-size="14">{title}</text>{left}{right}'


def _frame(x: int, across: str, up: str) -> str:
    ticks = "".join(
        f'<text x="{x + SIDE * t:.0f}" y="{GAP + SIDE + 16}" text-anchor="middle">{t:g}</text>'
        f'<line x1="{x + SIDE * t:.0f}" x2="{x + SIDE * t:.0f}" y1="{GAP}" y2="{GAP + SIDE}" stroke="#888" stroke-opacity=".2"/>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<rect x="{x}" y="{GAP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#888" stroke-opacity=".5"/>{ticks}'
        f'<text x="{x + SIDE / 2}" y="{GAP + SIDE + 36}" text-anchor="middle">{escape(across)}</text>'
        f'<text x="{x}" y="{GAP - 10}">{escape(up)}</text>'
    )


def _diagonal(x: int) -> str:
    return f'<line x1="{x}" y1="{GAP + SIDE}" x2="{x + SIDE}" y2="{GAP}" stroke="#888" stroke-dasharray="4 4"/>'


def _line(points: Sequence[Point], x: int, colour: str) -> str:
    places = [(x + SIDE * p.at, GAP + SIDE * (1 - p.rate), p) for p in points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places)
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"><title>{p.n} labels</title></circle>' for a, b, p in places)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'

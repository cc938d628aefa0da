"""What the demo shows on terminals of any width. If these fail, the first thing people see is a table of dots."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from warmgate_adapters.demo.rows import Result, Row, Verdict, Way
from warmgate_adapters.demo.screen import Screen

VERDICT = Verdict(call="shell rm -rf ~/projects", verdict="ask", reason="rm deletes /home/agent/projects", outcome="not mounted")
ROW = Row(
    session="release", user_turn=3, call=10, mounts=["shell"] * 11, announced=False, why="", worker="worker 2", moves=1,
    prompt=12_345, cached=12_336, reusable=12_336, verdicts=[VERDICT],
)  # fmt: skip


def lines(width, show):
    out = io.StringIO()
    with Screen(Console(file=out, width=width, force_terminal=True, color_system=None, legacy_windows=False)) as screen:
        show(screen)
        table = screen._table()
    plain = Console(file=io.StringIO(), width=width, color_system=None)
    plain.print(table)
    return plain.file.getvalue().splitlines(), out.getvalue()


@pytest.mark.parametrize("width", [36, 48, 56, 64, 72, 80, 100, 120])
def test_the_live_table_cuts_no_column(width):
    told, _ = lines(width, lambda screen: screen.row(ROW))
    assert "…" not in "\n".join(told)
    assert max(map(len, told)) <= width
    assert "release" in told[-1]
    assert "worker 2" in told[-1]
    if width >= 80:
        assert "not mounted" in told[-1]
        assert "12,336 of 12,345" in told[-1]


def test_the_comparison_fits_eighty_columns():
    ways = [Way(gate=gate, computed=100_000, questions=10, tax=10_000) for gate in ("none", "separate", "json", "aligned")]
    replay = {"ways": {way.gate: {"tax": 10_000} for way in ways}, "priced": 29, "calls": 33}
    out = io.StringIO()
    Screen(Console(file=out, width=200)).summary(Result(turns=[ROW], ways=ways, replay=replay))
    told = out.getvalue().split("tokens computed by all workers")[1]
    assert max(map(len, told.splitlines())) <= 80

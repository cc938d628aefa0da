"""The shell policy's speed, in CPU time of this process and its children: one command, a repeated one, a stream of them, hostile ones.

The commands are the labelled ones of the unit tests. Wall time is printed beside CPU time where a person waits for it.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.timing import Lines
from tests.unit.shell.test_hostile import HOSTILE
from warmgate_policies.shell import Judge

DATA = Path(__file__).parents[1] / "data" / "shell"
COLD_S, HOT_S, HOSTILE_S = 0.006, 50e-6, 0.1
ROWS_A_SECOND = 200
"""Commands a second and core that ``--jsonl`` must judge."""
STREAM = 3000


def _used() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _best(work: Callable[[], object], times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        start = _used()
        work()
        best = min(best, _used() - start)
    return best


def run() -> Lines:
    """Figures with their bounds."""
    rows = [json.loads(line) for line in (DATA / "corpus_dev.jsonl").read_text(encoding="utf-8").splitlines()]
    judge = Judge()
    judge.judge("ls")
    cold: list[float] = []
    walls: list[float] = []
    for row in rows:
        start, clock = _used(), time.perf_counter()
        judge.judge(row["command"], row["cwd"])
        cold.append(_used() - start)
        walls.append(time.perf_counter() - clock)
    median = statistics.median(cold)
    yield (
        f"a command never seen: median {median * 1e3:.1f} ms of CPU (95th of 100: {sorted(cold)[int(len(cold) * 0.95)] * 1e3:.1f} ms), "
        f"{statistics.median(walls) * 1e3:.1f} ms on the clock",
        median <= COLD_S,
    )
    hot = _best(lambda: [judge.judge(row["command"], row["cwd"]) for row in rows]) / len(rows)
    yield f"a repeated command: {hot * 1e6:.1f} us of CPU", hot <= HOT_S
    slowest, name = max((_best(lambda text=text: Judge().judge(text), 5), name) for name, text in HOSTILE.items())
    yield f"the slowest of {len(HOSTILE)} hostile commands ({name}): {slowest * 1e3:.0f} ms of CPU", slowest <= HOSTILE_S
    yield from _stream()


def _stream() -> Lines:
    """``--jsonl`` on all cores, over commands that differ, so that none is repeated."""
    ordinary = [json.loads(line)["command"] for line in (DATA / "ordinary.jsonl").read_text(encoding="utf-8").splitlines()]
    made = [f"{ordinary[number % len(ordinary)]} # {number}" if number >= len(ordinary) else ordinary[number] for number in range(STREAM)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        source.write_text("".join(json.dumps({"id": number, "command": text}) + "\n" for number, text in enumerate(made)), encoding="utf-8")
        command = [sys.executable, "-c", "from warmgate.cli import main; main()", "shell", "--jsonl", str(source)]
        start, clock = _used(), time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True)
        spent, wall = _used() - start, time.perf_counter() - clock
    ids = [json.loads(line)["id"] for line in done.stdout.splitlines()]
    yield f"--jsonl: rows come out in the order of input ({len(ids):,} rows)", ids == list(range(STREAM))
    cores = os.cpu_count() or 1
    rate = STREAM / spent
    yield (
        f"--jsonl: {rate:,.0f} commands a second of CPU (start included), {STREAM / wall:,.0f} a second on the clock with {cores} cores",
        rate >= ROWS_A_SECOND,
    )

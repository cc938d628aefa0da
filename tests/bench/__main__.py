"""Run the benchmarks named on the command line, or all of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> int:
    names = sys.argv[1:] or sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))
    failed = 0
    for name in names:
        print(f"== {name}")
        for line, held in importlib.import_module(f"tests.bench.bench_{name}").run():
            failed += held is False
            print(f"  {'' if held is None else 'ok    ' if held else 'FAILED'} {line}".rstrip(), flush=True)
    print("all bounds hold" if not failed else f"{failed} bounds do not hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

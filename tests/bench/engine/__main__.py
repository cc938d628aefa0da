"""Run the scenarios named with ``--only``, or all."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
import time

from tests.bench.engine.lab import Lab, boot
from tests.engine.rig.server import ServerOptions

ON_PAIR = ("seed", "ten", "sessions", "kill")
"""Scenarios on the two Qwen3 workers, in this order: the last one kills one of them."""
ALONE = ("hybrid", "prediction", "losses")
"""Scenarios that start servers of their own."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engine", description=__doc__)
    parser.add_argument("--only", default=",".join((*ON_PAIR, *ALONE)), help="scenarios, separated by commas (all: %(default)s)")
    wanted = parser.parse_args().only.split(",")
    if unknown := set(wanted) - {*ON_PAIR, *ALONE}:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    failed = asyncio.run(_run([name for name in ON_PAIR if name in wanted], [name for name in ALONE if name in wanted]))
    print(f"{'all bounds hold' if not failed else f'{failed} bounds do not hold'} ({time.monotonic() - began:.0f} s)")
    return 1 if failed else 0


async def _run(on_pair: list[str], alone: list[str]) -> int:
    failed = 0
    if on_pair:
        servers = boot(ServerOptions(), ServerOptions(extra=("--seed", "1")))
        lab = Lab(servers)
        try:
            for name in on_pair:
                failed += await _show(name, lab)
        finally:
            await lab.aclose()
            for server in servers:
                server.stop()
    for name in alone:
        failed += await _show(name)
    return failed


async def _show(name: str, *arguments: object) -> int:
    print(f"== {name}", flush=True)
    failed = 0
    async for line, held in importlib.import_module(f"tests.bench.engine.{name}").lines(*arguments):
        failed += held is False
        print(f"  {'      ' if held is None else 'ok    ' if held else 'FAILED'} {line}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

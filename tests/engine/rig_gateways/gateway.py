"""Run a real gateway for the length of a `with` block.

with RunningGateway("smg", [worker.url, other.url]) as gateway:
    httpx.get(gateway.url + "/v1/models")
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.engine.rig.home import engine_home
from tests.engine.rig.server import free_port
from tests.engine.rig_gateways.install import gateway_bin

#: Seconds a gateway may take until it sees its workers. Each takes about two.
START_DEADLINE = 60.0

_FLAGS = {
    "vllm-router": ["vllm-router", "--policy", "consistent_hash"],
    "smg": ["smg", "launch", "--policy", "consistent_hashing", "--disable-tokenizer-autoload"],
}


class RunningGateway:
    """A gateway's process and its address."""

    def __init__(self, name: str, workers: list[str]) -> None:
        self.name = name
        self.workers = workers
        self.port = free_port()
        self.log = engine_home() / "logs" / f"{name}-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The command line. The metrics port is the gateway's own: two gateways with the default one cannot run side by side."""
        program, *flags = _FLAGS[self.name]
        return [
            *(str(gateway_bin() / program), *flags),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--worker-urls", *self.workers),
        ]

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "HF_HUB_OFFLINE": "1", "NO_PROXY": "*"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        for number in (signal.SIGTERM, signal.SIGKILL) if process is not None else ():
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(5)

    def _wait(self) -> None:
        """Until every worker was asked for its models, or whatever the gateway asks for, and the gateway serves."""
        assert self._process is not None
        ends = time.monotonic() + START_DEADLINE
        while True:
            code = self._process.poll()
            if code is not None or time.monotonic() > ends:
                tail = "\n".join(Path(self.log).read_text(errors="replace").splitlines()[-12:])
                raise AssertionError(f"{self.name} does not serve (exit {code}); the end of {self.log}:\n{tail}")
            try:
                with urllib.request.urlopen(self.url + "/v1/models", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (OSError, urllib.error.HTTPError):
                pass
            time.sleep(0.1)

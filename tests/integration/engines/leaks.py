"""What a call leaves behind: tasks on the loop, sockets of the process."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psutil


def sockets() -> int:
    """TCP sockets that this process opened as a client and has not closed. Servers of the test may live in the same process."""
    found = psutil.Process().net_connections("tcp")
    listening = {c.laddr.port for c in found if c.status == psutil.CONN_LISTEN}
    return sum(1 for c in found if c.status != psutil.CONN_LISTEN and c.laddr and c.laddr.port not in listening)


@asynccontextmanager
async def nothing_left() -> AsyncGenerator[None]:
    """Fails when the block left a task or a socket behind. Close engines inside the block."""
    before_tasks = asyncio.all_tasks()
    before = sockets()
    yield
    give_up = time.monotonic() + 2
    while (sockets() > before or asyncio.all_tasks() - before_tasks) and time.monotonic() < give_up:
        gc.collect()
        await asyncio.sleep(0.02)  # the server's half of a connection closes a moment later
    assert not asyncio.all_tasks() - before_tasks
    assert sockets() <= before


def dead_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Looking at a worker from outside: does it answer, and since when does it run?"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Mapping
from typing import cast

import httpx

from warmgate.engines.http import default_tls
from warmgate.engines.loops import PerLoop
from warmgate.workers.health import Probe

METRICS_LIMIT = 8 << 20
"""Most bytes of a metrics page that are read. vLLM's has about 100 kB."""

_START = re.compile(rb"^process_start_time_seconds(?:\{[^}\n]*\})? ([0-9.eE+]+)\s*$", re.MULTILINE)

_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
"""Faults of this machine: no descriptor, port or memory left for a connection."""


class Prober:
    """Probes workers, with connections of its own.

    Args:
        headers: Sent along, where something between us and the workers wants a key.
    """

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self._plain = PerLoop(lambda: self._client("http:"))
        self._secure = PerLoop(lambda: self._client("https:"))

    def _client(self, scheme: str) -> httpx.AsyncClient:
        # A connection a probe: one that is kept alive would prove that an old process still holds it, not that a new one gets in.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        return httpx.AsyncClient(headers=self._headers, verify=default_tls(scheme), trust_env=False, follow_redirects=False, limits=limits)

    def _of(self, worker: str) -> httpx.AsyncClient:
        return (self._secure if worker.startswith("https:") else self._plain).get()

    async def look(self, worker: str, path: str, timeout_s: float) -> Probe | None:
        """Ask for ``path``. None where this machine could not ask."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(timeout_s), self._of(worker).stream("GET", worker + path, timeout=None) as response:
                return "unready" if response.status_code >= 500 else "alive"  # 401 or 404: somebody answers
        except httpx.ConnectError as fault:
            return None if of_this_machine(fault) else "refused"
        except TimeoutError:
            stalled = loop.time() - began > timeout_s * 1.5 + 0.5  # this process was not running: no word on the worker
            return None if stalled else "timeout"
        except (httpx.HTTPError, OSError):
            return "reset"

    async def started_at(self, worker: str, timeout_s: float) -> float | None:
        """``process_start_time_seconds`` of its metrics, in seconds since 1970. None where it has none."""
        rest = b""
        size = 0
        try:
            async with asyncio.timeout(timeout_s), self._of(worker).stream("GET", worker + "/metrics", timeout=None) as response:
                if response.status_code != 200:
                    return None
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    lines, newline, tail = (rest + chunk).rpartition(b"\n")
                    found = _START.search(lines)
                    if found is not None:
                        return float(found[1])
                    rest = tail if newline else (rest + chunk)[-4096:]
                    if size > METRICS_LIMIT:
                        return None
        except (httpx.HTTPError, OSError, ValueError):
            return None
        found = _START.search(rest)
        return float(found[1]) if found is not None else None

    async def aclose(self) -> None:
        """Close this event loop's connections."""
        for clients in (self._plain, self._secure):
            client = clients.pop()
            if client is not None:
                await client.aclose()


def of_this_machine(fault: BaseException | None) -> bool:
    """Whether a failed connection is our own lack of descriptors, ports or memory: no word on the worker."""
    while fault is not None:
        if isinstance(fault, OSError) and fault.errno in _OURS:
            return True
        if isinstance(fault, BaseExceptionGroup):
            inner = cast("BaseExceptionGroup[BaseException]", fault).exceptions
            return any(of_this_machine(one) for one in inner)
        fault = fault.__cause__ or fault.__context__
    return False

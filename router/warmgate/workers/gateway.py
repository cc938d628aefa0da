"""Workers behind an engine gateway: the pool then lists gateways, and every call carries the header that the gateway hashes.

Checked with the releases named; see tests/engine/test_gateways.py.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from warmgate.errors import OptionError
from warmgate.workers.counts import Counts


@dataclass(frozen=True, slots=True)
class Gateway:
    """What a gateway hashes.

    Args:
        name: Its name, as settings write it.
        header: Request header whose value decides the worker.
        policy: How the gateway must be started for that.
        answers_with: Response header that names the worker, where there is one.
    """

    name: str
    header: str
    policy: str
    answers_with: str | None = None

    def headers(self, session: str) -> dict[str, str]:
        """The header of a session. The session id itself where a header can carry it, so that a client which sets the header on its own
        comes to the same worker; else a hash of it.
        """
        if not re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?", session):
            session = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return {self.header: session}


VLLM_ROUTER = Gateway("vllm-router", "x-session-id", "--policy consistent_hash")
"""vllm-router 0.1.17."""

SMG = Gateway("smg", "x-smg-routing-key", "--policy consistent_hashing", "x-smg-routed-worker-id")
"""Shepherd Model Gateway 1.13."""

GATEWAYS: Mapping[str, Gateway] = {gateway.name: gateway for gateway in (VLLM_ROUTER, SMG)}


def gateway_of(value: Gateway | str | None) -> Gateway | None:
    """A gateway by name.

    Raises:
        OptionError: No such name.
    """
    if value is None or isinstance(value, Gateway):
        return value
    if value not in GATEWAYS:
        raise OptionError(
            f"{value!r} is no gateway we know", where="gateway", mend=f"use {' or '.join(GATEWAYS)}, or a Gateway of your own"
        )
    return GATEWAYS[value]


class Routed:
    """Which worker a gateway last sent each session to. Bounded: the sessions seen longest ago are forgotten."""

    def __init__(self, counts: Counts, limit: int = 10_000) -> None:
        self._counts = counts
        self._limit = limit
        self._lock = threading.Lock()
        self._last: OrderedDict[str, str] = OrderedDict()

    def saw(self, key: str, worker: str | None, role: str) -> str | None:
        """Note the worker named in a reply, and count a session that came to another one than before."""
        if not worker:
            return None
        with self._lock:
            before = self._last.pop(key, worker)
            self._last[key] = worker
            while len(self._last) > self._limit:
                self._last.popitem(last=False)
        if before != worker:
            self._counts.add("gateway_moved", role=role)
        return worker

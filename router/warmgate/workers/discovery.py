"""Which workers there are: listed by URL, or behind a DNS name whose every address is one."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from warmgate.engines.http import base_url
from warmgate.errors import OptionError, one_line

DNS_SCHEME = "dns+http"
"""``dns+http://name:port``: a worker for every address of the name, as a headless Kubernetes service has them."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker, or a name for several, as a user lists it.

    Args:
        url: ``http://host:port``, ``https://…``, or ``dns+http://name:port``. A trailing ``/v1`` is dropped.
        weight: Share of the sessions it gets, relative to the others'.

    Raises:
        OptionError: Not such a URL, or not a positive weight.
    """

    url: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise OptionError(
                f"a weight must be a positive number, not {self.weight!r}",
                where=one_line(self.url, 80),
                mend="drain a worker that should get nothing",
            )
        scheme, separator, rest = self.url.strip().partition("://")
        if scheme == "dns+https":
            raise OptionError(
                "addresses found by DNS cannot be checked against a certificate",
                where=one_line(self.url, 80),
                mend="list the workers by their names",
            )
        if separator and scheme == DNS_SCHEME:
            object.__setattr__(self, "url", f"dns+{base_url(f'http://{rest}')}")
            if urlsplit(self.url).port is None:
                raise OptionError("a DNS name needs a port", where=self.url, mend="write dns+http://name:8000")
        else:
            object.__setattr__(self, "url", base_url(self.url))

    @classmethod
    def of(cls, value: WorkerSpec | str) -> WorkerSpec:
        """A spec, from itself or a URL."""
        return value if isinstance(value, WorkerSpec) else cls(value)

    @property
    def dynamic(self) -> bool:
        """Whether it must be resolved."""
        return self.url.startswith(DNS_SCHEME)


async def resolve(spec: WorkerSpec) -> list[WorkerSpec]:
    """The workers behind a DNS name, in a stable order. Each gets the weight of the name.

    Raises:
        OSError: The name does not resolve now.
    """
    parts = urlsplit(spec.url)
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(address[0]) for *_, address in answers})
    return [WorkerSpec(f"http://{f'[{host}]' if ':' in host else host}:{parts.port}{parts.path}", spec.weight) for host in hosts]


def distinct(specs: Sequence[WorkerSpec | str], where: str) -> list[WorkerSpec]:
    """Specs without repetitions.

    Raises:
        OptionError: None at all, or a worker listed with two weights.
    """
    if isinstance(specs, str):
        raise OptionError("a list of URLs is wanted, not one text", where=where, mend=f"write [{specs!r}]")
    found: dict[str, WorkerSpec] = {}
    for value in specs:
        spec = WorkerSpec.of(value)
        if found.setdefault(spec.url, spec) != spec:
            raise OptionError("listed twice, with different weights", where=spec.url)
    if not found:
        raise OptionError("a pool needs at least one worker", where=where)
    return list(found.values())

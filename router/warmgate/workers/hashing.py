"""Which worker a session belongs to, by arithmetic alone: processes that see the same workers agree without talking.

*Weighted rendezvous hashing.* Every (worker, session) pair has a fixed pseudo-random number; the session goes to the worker whose
number wins. A worker that leaves takes only its own sessions away, one that comes takes only its share. Highest random weight: Thaler
and Ravishankar, "Using name-based mappings to increase hit rates" (IEEE/ACM Transactions on Networking 6(1), 1998). Weights by the
logarithmic method: Schindelhauer and Schomaker, "Weighted distributed hash tables" (SPAA 2005): with u even on (0, 1), the worker with
the least −ln(u) ÷ weight wins, which happens with probability weight ÷ sum of weights.

*Bounded load.* Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads" (SODA 2018): a worker that already holds
:data:`BOUND` times its fair share takes no new session; the next one in the session's order does. It bends the hash only while a
session is being placed; one that is placed stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple, cast

from warmgate.errors import OptionError

BOUND = 1.25
"""Sessions a worker may hold, over its fair share. The paper's c = 1 + ε: a smaller one balances better and bends the hash more often
(moves per change grow as 1 ÷ ε²). HAProxy's manual advises 1.25 to 2 for the same knob (``hash-balance-factor``)."""

KEY_BYTES = 16
"""Length of a session key before it is written as hex. Two of 2⁴⁰ sessions collide with a chance of about 2⁻⁴⁹."""

_PERSON = b"warmgate.session"


class Named(NamedTuple):
    """One worker in a session's order of preference."""

    worker: str
    weight: float


class Rendezvous:
    """A set of workers with their weights.

    Args:
        weights: Worker (any unique text) → weight above 0. Equal weights are plain rendezvous hashing.

    Raises:
        OptionError: A weight that is not a positive finite number.
    """

    __slots__ = ("_workers",)

    def __init__(self, weights: Mapping[str, float]) -> None:
        for worker, weight in weights.items():
            if not 0 < weight < math.inf:
                raise OptionError(
                    f"a weight must be a positive number, not {weight!r}", where=worker, mend="drain a worker that should get nothing"
                )
        self._workers = [(worker, float(weight), _salt(worker)) for worker, weight in weights.items()]

    def ranked(self, key: str) -> list[Named]:
        """All workers, the most preferred first. ``key`` is any text; about 1.5 µs a worker."""
        data = key.encode("utf-8", "surrogatepass")
        order = [(_distance(data, salt) / weight, worker, weight) for worker, weight, salt in self._workers]
        order.sort()
        return [Named(worker, weight) for _, worker, weight in order]

    def first(self, key: str) -> str:
        """The most preferred worker.

        Raises:
            OptionError: There is no worker.
        """
        if not self._workers:
            raise OptionError("there is no worker to choose from")
        data = key.encode("utf-8", "surrogatepass")
        return min((_distance(data, salt) / weight, worker) for worker, weight, salt in self._workers)[1]


def _salt(worker: str) -> bytes:
    return blake2b(worker.encode("utf-8", "surrogatepass"), digest_size=blake2b.SALT_SIZE).digest()


def _distance(key: bytes, salt: bytes) -> float:
    """−ln(u). 53 bits make u exact in a double, and never 0 or 1."""
    number = int.from_bytes(blake2b(key, digest_size=8, salt=salt).digest(), "big") >> 11
    return -math.log((number + 0.5) * 2.0**-53)


def first_with_room(ranked: Iterable[Named], load: Callable[[str], int], bound: float = BOUND) -> str | None:
    """The first worker whose load is below its bound, counting the session about to be placed. None without workers.

    Args:
        ranked: Workers that may take a session, the most preferred first.
        load: Sessions a worker holds.
        bound: See :data:`BOUND`; ``math.inf`` is plain rendezvous hashing.
    """
    order = [(worker, weight, load(worker)) for worker, weight in ranked]
    if not order:
        return None
    if bound != math.inf:
        total = 1 + sum(held for _, _, held in order)
        weights = sum(weight for _, weight, _ in order)
        for worker, weight, held in order:
            if held < math.ceil(bound * total * weight / weights):
                return worker
    return order[0][0]


def session_key(session: str, *, namespace: str, role: str, secret: bytes = b"") -> str:
    """What stands for a session everywhere outside this process: 32 hex digits, from which the id cannot be read.

    Args:
        session: The caller's id of a conversation, any text but the empty one.
        namespace: Deployment the key belongs to; processes that share workers share it.
        role: Pool the key belongs to.
        secret: Keys the hash, so that ids that are easy to guess cannot be tried against a stolen store. Up to 64 bytes are used.

    Raises:
        OptionError: Not text, or empty.
    """
    given = cast("object", session)
    if not isinstance(given, str) or not given:
        raise OptionError("a session is a text that is not empty", where="session")
    data = b"\x00".join(part.encode("utf-8", "surrogatepass") for part in (namespace, role, session))
    return blake2b(data, digest_size=KEY_BYTES, key=secret[: blake2b.MAX_KEY_SIZE], person=_PERSON).hexdigest()

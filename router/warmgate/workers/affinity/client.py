"""Connections to Redis, one server or a cluster, from a URL. The only module that imports the redis package."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from warmgate.errors import OptionError, one_line

SOCKET_TIMEOUT_S = 2.0
"""When the package itself gives up on a socket, in seconds. Callers give up sooner."""

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")


class Script:
    """A Lua script of this package."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._text: str | None = None
        self._sha = ""

    @property
    def text(self) -> str:
        """The source."""
        if self._text is None:
            self._text = files(__package__ or "").joinpath(self.name).read_text("utf-8")
        return self._text

    @property
    def sha(self) -> str:
        """The digest by which a server that has seen the script knows it."""
        self._sha = self._sha or hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        return self._sha


class Client:
    """Runs scripts. Belongs to the event loop it was made in.

    Args:
        redis: A ``redis.asyncio.Redis`` or ``RedisCluster``.
    """

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._left: set[asyncio.Future[Any]] = set()

    @classmethod
    def maker(cls, url: str, connections: int) -> Callable[[], Client]:
        """A function that makes clients for ``url``, which is checked now.

        Raises:
            OptionError: The redis package is missing, or the URL cannot be used.
        """
        package = _package()
        scheme = urlsplit(url).scheme
        if scheme not in SCHEMES:
            raise OptionError(f"a Redis URL begins with one of {', '.join(s + '://' for s in SCHEMES)}", where="affinity")
        plain = urlunsplit(urlsplit(url)._replace(scheme=scheme.removesuffix("+cluster")))
        # A stale connection is opened anew once, at once: binding twice is binding. All else is the caller's to decide.
        options: dict[str, Any] = {"decode_responses": True, "protocol": 2, "max_connections": connections}
        options |= {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S}

        def connect() -> Any:
            retry = package.asyncio.retry.Retry(package.backoff.NoBackoff(), 1, supported_errors=(package.exceptions.ConnectionError,))
            kind = package.asyncio.RedisCluster if scheme.endswith("+cluster") else package.asyncio.Redis
            return kind.from_url(plain, retry=retry, **options)

        try:
            pool = getattr(connect(), "connection_pool", None)
            if pool is not None:
                pool.make_connection()  # connects to nothing yet, but options are looked at
        except (ValueError, TypeError, OSError, AttributeError, package.exceptions.RedisError) as fault:
            raise OptionError(f"the Redis URL cannot be used ({one_line(str(fault), 120)})", where="affinity") from None
        return lambda: cls(connect())

    @staticmethod
    def faults() -> tuple[type[Exception], ...]:
        """What is raised when a server does not answer as it should."""
        return (OSError, TimeoutError, _package().exceptions.RedisError)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str], timeout_s: float) -> Any:
        """Run a script in one round trip; a server that does not know it yet gets it with a second.

        The work is a task of its own, which is left behind when the time is up, to end by itself or by the socket's time-out. Cancelled
        inside the package (redis 8.1 on Python 3.11), it would now and then not listen, or lose a connection that nobody closes any more.

        Raises:
            TimeoutError: No reply within ``timeout_s``.
        """
        task = asyncio.ensure_future(self._run(script, keys, arguments))
        try:
            done, _ = await asyncio.wait((task,), timeout=timeout_s)
        except asyncio.CancelledError:
            self._leave(task)
            raise
        if not done:
            self._leave(task)
            raise TimeoutError("no reply in time")
        return task.result()

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        try:
            return await self._redis.evalsha(script.sha, len(keys), *keys, *arguments)
        except _package().exceptions.NoScriptError:
            return await self._redis.eval(script.text, len(keys), *keys, *arguments)

    def _leave(self, task: asyncio.Future[Any]) -> None:
        def ended(task: asyncio.Future[Any]) -> None:
            self._left.discard(task)
            if not task.cancelled():
                task.exception()  # looked at, else asyncio complains

        self._left.add(task)
        task.add_done_callback(ended)

    async def reset(self) -> None:
        """Close idle connections: the next call connects anew. A cluster's client sees to its nodes itself."""
        pool = getattr(self._redis, "connection_pool", None)
        if pool is not None:
            with suppress(*self.faults()):
                await pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        """Close all connections, and wait for what was left behind on them."""
        await self._redis.aclose()
        if self._left:
            await asyncio.wait(self._left)
            await self._redis.aclose()  # they may have connected anew


def is_refusal(fault: BaseException) -> bool:
    """Whether a server answered and will not have us: a matter of configuration, not an outage."""
    errors = _package().exceptions
    if isinstance(fault, (errors.AuthenticationError, errors.NoPermissionError)):
        return True
    words = str(fault).lower()  # from inside a script, these come as plain ResponseErrors
    return isinstance(fault, errors.ResponseError) and any(
        sign in words for sign in ("unknown command", "wrongtype", "can't run this command", "permissions", "no such key")
    )


@cache
def _package() -> Any:
    try:
        redis = import_module("redis")
        for part in ("asyncio", "asyncio.retry", "backoff", "exceptions"):
            import_module(f"redis.{part}")
    except ImportError:
        raise OptionError("Redis affinity needs the redis package", where="affinity", mend="pip install 'warmgate[redis]'") from None
    return redis

"""The stand-in as a program uses it: started, asked for its address, told to fail, looked into, stopped."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import threading
from collections import deque
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from warmgate.errors import OptionError
from warmgate.standin.app import App
from warmgate.standin.events import Publisher
from warmgate.standin.http import Connection
from warmgate.standin.options import OptionArguments, Options
from warmgate.standin.served import Request, Served

REMEMBERED = 1024
REMEMBERED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request the stand-in has seen.

    Attributes:
        status: Of the reply; 0 when the client left before it.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ValueError: It is not.
        """
        return json.loads(self.body)


class StandIn:
    """A worker without a model, on a loopback port.

    ::

        async with StandIn(style="qwen3") as worker:
            client = httpx.AsyncClient(base_url=worker.url)

        with StandIn(block_size=32) as worker:      # the same from code without an event loop: it runs in a thread
            httpx.get(worker.url + "/health")

    Args:
        arguments: Any of :class:`~warmgate.standin.Options`.

    Raises:
        OptionError, TemplateError, TokenizerError: An option, or a file it names, cannot be used.
    """

    def __init__(self, **arguments: Unpack[OptionArguments]) -> None:
        self.options = Options(**arguments)
        self.served = Served(self.options)
        self.requests: deque[Exchange] = deque()
        """The latest requests, oldest first: as many as a thousand, as long as their bodies fit in 32 MB."""
        self._held = 0
        self._app = App(self.served)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over: asyncio.Event | None = None
        self.port = self.options.port

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        host = self.options.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def fault(self, fault: str, *, times: int | None = None, path: str | None = None) -> None:
        """Let coming requests fail.

        Args:
            fault: A name of :data:`~warmgate.standin.FAULTS`, or ``NAME=VALUE``, several joined by commas.
            times: How many requests it strikes; ``None`` for all until :meth:`heal`.
            path: Only requests to this path; every POST without it.

        Raises:
            OptionError: No such fault.
        """
        self.served.faults.add(fault, times, path)

    def heal(self) -> None:
        """Switch all faults off."""
        self.served.faults.clear()

    @property
    def counters(self) -> dict[str, Any]:
        """The engine's totals, as ``/metrics`` has them: queries, hits, prompt_tokens, computed_tokens, cached_tokens and so on."""
        return asdict(self.served.engine.counters)

    @property
    def cached_blocks(self) -> int:
        """Distinct blocks in the prefix cache."""
        return len(self.served.engine.cache)

    def clear_cache(self) -> None:
        """Forget the prefix cache, as a restarted worker has."""
        if self._thread is not None and self._loop is not None:
            concurrent.futures.wait([asyncio.run_coroutine_threadsafe(self._clear(), self._loop)])
        else:
            self.served.engine.clear()

    async def start(self) -> Self:
        """Listen. Returns itself.

        Raises:
            OptionError: The address is taken or is not one of this machine's.
        """
        if self._server is not None:
            raise RuntimeError("this stand-in is running")
        self._loop = asyncio.get_running_loop()
        options = self.options
        try:
            self._server = await self._loop.create_server(self._connection, options.host, options.port, backlog=512)
        except OSError as fault:
            raise OptionError(f"cannot listen on {options.host}:{options.port} ({fault.strerror or fault})", where="--port") from fault
        self.port = self._server.sockets[0].getsockname()[1]
        if options.kv_events_port is not None:
            try:
                self.served.engine.publisher = Publisher(options.host, options.kv_events_port)
            except BaseException:
                await self.stop()
                raise
        return self

    async def stop(self) -> None:
        """Close everything. Requests in flight are dropped."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for connection in list(self._connections):
                connection.close()
            await server.wait_closed()
            await asyncio.gather(*(connection.closed for connection in list(self._connections)))
        publisher, self.served.engine.publisher = self.served.engine.publisher, None
        if publisher is not None:
            await publisher.close()

    def start_thread(self) -> Self:
        """Listen from a thread of its own. Returns itself once it is ready; :meth:`stop_thread` ends it."""
        started: concurrent.futures.Future[asyncio.Event] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="warmgate-standin", daemon=True)
        self._thread.start()
        try:
            self._over = started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise
        return self

    def stop_thread(self) -> None:
        """End the thread and close everything."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()

    def _run(self, started: concurrent.futures.Future[asyncio.Event]) -> None:
        async def live() -> None:
            over = asyncio.Event()
            try:
                await self.start()
            except BaseException as fault:  # noqa: BLE001 -- raised again in the thread that waits for it
                started.set_exception(fault)
                return
            started.set_result(over)
            await over.wait()
            await self.stop()

        asyncio.run(live())

    async def _clear(self) -> None:
        self.served.engine.clear()

    def _connection(self) -> Connection:
        return Connection(self._app, self.options, self._connections, self._seen)

    def _seen(self, request: Request, status: int) -> None:
        self.requests.append(Exchange(request.method, request.path, dict(request.headers), request.body, status))
        self._held += len(request.body)
        while len(self.requests) > REMEMBERED or (self._held > REMEMBERED_BYTES and len(self.requests) > 1):
            self._held -= len(self.requests.popleft().body)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        return self.start_thread()

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self.stop_thread()

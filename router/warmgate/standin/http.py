"""The connection: HTTP/1.1 over h11 with every byte in hand, so that faults of the wire can be played as they happen.

Requests are bounded in size and time. A client that leaves ends its request, and what it had computed stays cached. Requests that come
before the answer to the last one is out (pipelining) wait their turn in the kernel's buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from email.utils import formatdate
from typing import TypeAlias, cast
from urllib.parse import unquote

import h11

from warmgate.standin.options import Options
from warmgate.standin.replies import Reply
from warmgate.standin.served import Request

App: TypeAlias = Callable[[Request], Awaitable[Reply]]
MAX_HEAD = 1 << 16
LINGER = 1.0
"""Seconds that a refused client has to stop sending and read why."""

SERVER = b"warmgate-standin"


class Connection(asyncio.Protocol):
    """One client connection.

    Args:
        app: Answers requests.
        options: Bounds of size and time.
        open_connections: Where this connection enters and leaves itself.
        note: Told of each exchange, with the reply's status, or 0 when the client left before there was one.
    """

    def __init__(
        self, app: App, options: Options, open_connections: set[Connection], note: Callable[[Request, int], None] | None = None
    ) -> None:
        self._app = app
        self._options = options
        self._open = open_connections
        self._note = note
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._reading = False
        self._lingering = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; it has as long to send its first byte as to send a whole request."""
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)
        self._wait(self._options.read_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: nobody wants the answer any more."""
        self._open.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)
        self._stop_waiting()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request. What comes before the last answer is out is kept, and no more is read meanwhile."""
        if self._lingering:
            return
        if not self._reading:  # one limit for a whole request: its timer is not wound up again by every byte
            self._reading = True
            if self._task is None:
                self._wait(self._options.read_timeout)
        self._http.receive_data(data)
        if self._task is not None and self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.pause_reading()
        self._advance()

    def close(self) -> None:
        """End the connection, answered or not."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _advance(self) -> None:
        """Take what has arrived, up to one whole request."""
        while self._task is None and self._transport is not None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as fault:
                self._refuse(fault.error_status_hint or 400, b"Invalid HTTP request received.")
                return
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._transport.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                return
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.Request):
                self._head = event
            elif isinstance(event, h11.Data):
                self._size += len(event.data)
                if self._size > self._options.max_body:
                    self._refuse(413, b"the request body is too large")
                    return
                self._body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._stop_waiting()
                self._task = asyncio.get_running_loop().create_task(self._answer())

    async def _answer(self) -> None:
        assert self._head is not None
        request = _request(self._head, b"".join(self._body))
        reply: Reply | None = None
        try:
            reply = await self._app(request)
            if self._note is not None:  # before the first byte goes out: who has the answer can look it up
                self._note(request, reply.status)
            if request.plan.transport:
                await self._spoilt(request, reply)
            elif reply.stream is not None:
                await self._send_stream(reply, reply.stream)
            else:
                self._write(self._whole(reply))
                await self._writable.wait()
        except (asyncio.CancelledError, Exception):  # noqa: BLE001 -- the client left or a stream broke: nothing sane can follow
            self._abort()
        else:
            self._next()
        finally:
            if reply is not None and reply.stream is not None:
                await reply.stream.aclose()
            if reply is None and self._note is not None:
                self._note(request, 0)

    def _next(self) -> None:
        """Make ready for the next request on this connection."""
        self._task = None
        self._head, self._body, self._size = None, [], 0
        self._reading = bool(self._http.trailing_data[0])
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            transport.close()
            return
        self._http.start_next_cycle()
        self._wait(self._options.read_timeout if self._reading else self._options.keep_alive)
        with contextlib.suppress(RuntimeError):
            transport.resume_reading()
        self._advance()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _headers(self, reply: Reply, length: int | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"date", formatdate(usegmt=True).encode()), (b"server", SERVER)]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        else:
            headers.append((b"transfer-encoding", b"chunked"))
        if reply.content_type is not None:
            headers.append((b"content-type", reply.content_type.encode()))
        headers += [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in reply.headers]
        return headers

    def _parts(self, reply: Reply) -> tuple[bytes, bytes]:
        body = reply.content()
        head = self._http.send(h11.Response(status_code=reply.status, headers=self._headers(reply, len(body)), reason=b""))
        return head or b"", body

    def _whole(self, reply: Reply) -> bytes:
        head, body = self._parts(reply)
        if self._head is not None and self._head.method == b"HEAD":
            body = b""
        data = self._http.send(h11.Data(data=body)) if body else b""
        end = self._http.send(h11.EndOfMessage())
        return head + (data or b"") + (end or b"")

    async def _send_stream(self, reply: Reply, stream: AsyncGenerator[bytes, None]) -> None:
        """A stream's head goes out with its first event, so that what fails before it still gets a status of its own."""
        head = h11.Response(status_code=reply.status, headers=self._headers(reply, None))
        started = False
        async for piece in stream:
            data = self._http.send(h11.Data(data=piece)) or b"" if started else None
            if data is None:
                data = (self._http.send(head) or b"") + (self._http.send(h11.Data(data=piece)) or b"")
                started = True
            self._write(data)
            await self._writable.wait()
        self._write(self._http.send(h11.EndOfMessage()) or b"")

    async def _spoilt(self, request: Request, reply: Reply) -> None:
        """Play a fault of the wire. The connection never survives one."""
        faults = request.plan.transport
        if "reset" in faults:
            self._reset()
            return
        if "close" in faults:
            self._abort()
            return
        if "not_http" in faults:
            self._write(b"\x16\x03\x01\x02\x00 220 mail ready\r\n")
            self._finish()
            return
        if reply.stream is not None:
            pieces = [piece async for piece in reply.stream]
            reply = Reply(reply.status, body=b"".join(pieces), content_type=reply.content_type, headers=reply.headers)
        head, body = self._parts(reply)
        data = head + body
        if "half_headers" in faults:
            data = head[: len(head) // 2]
        elif "half_body" in faults:
            data = head + body[: len(body) // 2]
        if "drip_feed" in faults:
            for at in range(len(data)):
                self._write(data[at : at + 1])
                await asyncio.sleep(faults["drip_feed"])
        else:
            self._write(data)
        self._finish()

    def _finish(self) -> None:
        """Close after what is written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _reset(self) -> None:
        """Close so that the client's kernel sees a reset: with a linger time of zero."""
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _refuse(self, status: int, why: bytes) -> None:
        """Answer a request that cannot be taken, and close."""
        self._stop_waiting()
        body = json.dumps({"error": {"message": why.decode(), "type": "Bad Request", "param": None, "code": status}}).encode()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"), (b"connection", b"close")]
            headers.append((b"x-warmgate-standin", b"1"))
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self._write(self._http.send(event) or b"")
        self._linger()

    def _linger(self) -> None:
        """Close in the client's own time: to close on what it is still sending would reset the connection under its answer."""
        self._lingering = True
        if self._transport is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER, self._finish)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._too_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        """Nothing came, or not all of it."""
        if self._task is not None:
            return
        if not self._reading:
            self._finish()
        else:
            self._refuse(408, b"the request took too long to arrive")


def _request(head: h11.Request, body: bytes) -> Request:
    path = head.target.partition(b"?")[0].decode("latin-1")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode("latin-1"), unquote(path), headers, body)

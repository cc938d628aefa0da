"""Closes connections whose TLS handshake was cut off.

httpcore 1.0 and httpcore2 2.16 close the TCP stream when a handshake *fails*, not when it is *cancelled*, as a deadline does: a server
that accepts and then says nothing would keep a socket of ours each time. Their trace hook shows the stream; here it is closed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Protocol


class _Stream(Protocol):
    async def aclose(self) -> None: ...


@asynccontextmanager
async def handshake_closed(extensions: MutableMapping[str, Any]) -> AsyncGenerator[None]:
    """For the sending of one ``https`` request: where it ends early between TCP connection and finished handshake, the socket is closed.

    Args:
        extensions: The request's, of httpx or httpx2; its ``trace`` is set.
    """
    open_: list[_Stream] = []

    async def trace(event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            open_.append(info["return_value"])
        elif event == "connection.start_tls.complete":  # the connection's own from here on
            open_.clear()

    extensions["trace"] = trace
    try:
        yield
    except BaseException:
        for stream in open_:
            await stream.aclose()
        raise

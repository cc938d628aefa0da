"""Closes connections on which a server sent more than its reply.

What is left over would be read as the reply to the next request: an answer to another question, or a fault that is not its own. httpcore
sees bytes that wait in the socket, not those that came with the reply; h11 keeps these, and no public way leads to it.
"""

from __future__ import annotations

from typing import Any


async def close_if_surplus(transport: Any, stream: object) -> None:
    """Close the connection that a reply came over, if there is more than the reply. Call it when the reply's body is closed.

    Args:
        transport: The ``AsyncHTTPTransport`` of httpx or httpx2 that sent the request.
        stream: The reply's ``network_stream`` extension.
    """
    pool = getattr(transport, "_pool", None)
    for connection in getattr(pool, "connections", ()):
        inner = getattr(connection, "_connection", None)
        if inner is not None and getattr(inner, "_network_stream", None) is stream:
            state = getattr(inner, "_h11_state", None)
            if state is not None and state.trailing_data[0]:
                await connection.aclose()
            return

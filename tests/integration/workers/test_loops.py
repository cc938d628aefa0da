"""One client in several event loops: a program that calls asyncio.run for each request would fail from the second on."""

from __future__ import annotations

import asyncio

import httpx
import httpx2
import pytest

from warmgate.standin import StandIn
from warmgate.workers import AsyncStickyTransport, AsyncStickyTransport2, WorkerPool


@pytest.mark.parametrize(
    ("library", "transport"), [(httpx, AsyncStickyTransport), (httpx2, AsyncStickyTransport2)], ids=["httpx", "httpx2"]
)
def test_a_client_serves_every_event_loop_of_a_program_and_leaves_no_connection_open(library, transport):
    """Connections belong to the loop that opened them; an unclosed one would be a ResourceWarning, which is an error here."""
    with StandIn() as worker:
        pool = WorkerPool([worker.url])
        client = library.AsyncClient(transport=transport(pool), base_url="http://session.invalid")
        for _ in range(3):
            assert asyncio.run(client.get("/v1/models", headers={"X-Session-ID": "s"})).status_code == 200
        asyncio.run(client.aclose())

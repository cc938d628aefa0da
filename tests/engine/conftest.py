"""Fixtures that hand a real vLLM to a test.

Booting a server costs half a minute, so servers are shared: `vllm_qwen3` lives as long as the test run, and `vllm_server(...)` gives a running
server to whoever asks for the same options again. Tests that need a cold prefix use a `cache_salt` or text of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.rig.home import engine_python
from tests.engine.rig.server import COMPACT_JSON, EngineStartError, ServerOptions, VllmServer

#: Servers that run beside `vllm_qwen3` at most. One more fits in memory (3 GB each), two cores bear no more.
_SPARE_SERVERS = 2


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine_all: boots a server of its own or takes long; runs with `make test-engine-all`")


@pytest.fixture(scope="session")
def vllm_installed() -> None:
    """Fails, never skips: a test run without an engine must not look like a passed one."""
    if not (engine_python().parent.parent / ".warmgate-installed").is_file():
        pytest.fail(f"no vLLM in {engine_python().parent.parent}: `make test-engine` installs it", pytrace=False)


@pytest.fixture(scope="session")
def vllm_qwen3(vllm_installed: None) -> Iterator[VllmServer]:
    """The server most tests share: tiny Qwen3, blocks of 32, a 1 GiB cache that nothing in the tests fills, cached tokens reported.

    Where a JSON schema binds it, it writes JSON without white space.
    """
    server = _started(ServerOptions(extra=COMPACT_JSON))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def _spares(vllm_installed: None) -> Iterator[dict[ServerOptions, VllmServer]]:
    running: dict[ServerOptions, VllmServer] = {}
    yield running
    for server in running.values():
        server.stop()


@pytest.fixture
def vllm_server(_spares: dict[ServerOptions, VllmServer]) -> Iterator[Callable[..., VllmServer]]:
    """`vllm_server(model="qwen3", kv_events=True, …)`: a running server with these `ServerOptions`.

    A later call with equal options gets the same server, warm; `fresh=True` boots a new one, stopped when the test ends.
    """
    own: list[VllmServer] = []

    def get(*, fresh: bool = False, **options: Any) -> VllmServer:
        wanted = replace(ServerOptions(), **options)
        if fresh:
            own.append(_started(wanted))
            return own[-1]
        if wanted in _spares:
            _spares[wanted] = _spares.pop(wanted)  # most recently used last
        else:
            while len(_spares) >= _SPARE_SERVERS:
                _spares.pop(next(iter(_spares))).stop()
            _spares[wanted] = _started(wanted)
        return _spares[wanted]

    yield get
    for server in own:
        server.stop()


def _started(options: ServerOptions) -> VllmServer:
    server = VllmServer(options)
    try:
        server.start()
    except EngineStartError as error:
        pytest.fail(str(error), pytrace=False)
    if os.environ.get("WARMGATE_ENGINE_VERBOSE"):
        print(f"\nvLLM {options.version} {server.model} up in {server.boot_seconds:.0f} s at {server.url}, log {server.log}")
    return server

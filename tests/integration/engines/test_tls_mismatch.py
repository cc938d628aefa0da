"""TLS on one side alone, and servers that decide nothing: one line that says so, whichever engine asks."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.engines.leaks import nothing_left
from warmgate.cli.app import run
from warmgate.engines import AskRequest, Deadline, Decisions, PrefixRead, RoundTrip, SystemOne
from warmgate.engines._base import BaseEngine
from warmgate.engines.faults import speaks_tls
from warmgate.errors import DeadlineExceeded, EngineError, RouteAbsent, Unreachable
from warmgate.questions import Noul

CERTIFICATE = Path(__file__).parents[2] / "data/tls/server.pem"
REQUEST = AskRequest(questions={"q": Noul(instructions="Is a shell needed?")}, state="x", model="m")
ENGINES = [SystemOne, Decisions, PrefixRead, RoundTrip]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Python's own file server: 501 and a page to a POST."""

    def log_message(self, *_: object) -> None:
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:  # failed handshakes are what is tried here
        pass


@contextmanager
def web(*, tls: bool = False) -> Iterator[str]:
    with QuietServer(("127.0.0.1", 0), Quiet) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def fault(engine: type[BaseEngine], url: str) -> EngineError:
    async with nothing_left():
        async with engine(url) as one:  # type: ignore[call-arg]
            with pytest.raises(EngineError) as caught:
                await one.ask(REQUEST, deadline=Deadline(5))
    return caught.value


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "q.json").write_text(json.dumps({"q": {"type": "noul", "instructions": "Is a shell needed?"}}))
    (tmp_path / "s.txt").write_text("x")
    return ["decide", "--model", "m", "--questions", str(tmp_path / "q.json"), "--state", str(tmp_path / "s.txt"), "--worker"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_https_to_a_plain_port(engine: type[BaseEngine]):
    with web() as place:
        error = await fault(engine, f"https://{place}")
    assert isinstance(error, Unreachable)
    assert not error.retryable
    assert "the server has no TLS there" in error.what
    assert error.mend == "write http:// instead of https://"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_certificate_nobody_trusts(engine: type[BaseEngine]):
    with web(tls=True) as place:
        error = await fault(engine, f"https://{place}")
    assert isinstance(error, Unreachable)
    assert not error.retryable
    assert "the certificate is not trusted" in error.what
    assert "SSL_CERT_FILE" in (error.mend or "")


@pytest.mark.parametrize("engine", ENGINES)
async def test_plain_http_to_a_tls_port(engine: type[BaseEngine]):
    """The server hangs up without a word; the line can only say what may be meant."""
    with web(tls=True) as place:
        error = await fault(engine, f"http://{place}")
    assert isinstance(error, Unreachable)
    assert "https://" in (error.mend or "")


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_file_server_is_no_model_without_a_read_strategy(engine: type[BaseEngine]):
    with web() as place:
        error = await fault(engine, f"http://{place}")
    assert isinstance(error, RouteAbsent)
    assert "501: what answers there is no decision server" in error.what


def test_decide_tries_a_handshake_and_says_it_for_sure(command: list[str], capsys: pytest.CaptureFixture[str]):
    with web(tls=True) as place:
        assert run([*command, f"http://{place}"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["outcome"] == "no_answer"
    assert err == (
        f"warmgate: no answer to q: http://{place}: http:// was asked for, but the server has TLS there; write https://{place}\n"
    )


def test_decide_says_that_there_is_no_tls(command: list[str], capsys: pytest.CaptureFixture[str]):
    with web() as place:
        assert run([*command, f"https://{place}"]) == 3
    err = capsys.readouterr().err
    assert "the server has no TLS there; write http:// instead of https://" in err
    assert err.count("\n") == 1


async def test_only_a_finished_handshake_counts():
    """A server that hangs up, one that speaks plain HTTP and a dead port have no TLS; and the question ends in time."""
    with web() as place:
        assert not await speaks_tls(f"http://{place}", Deadline(5))
    with web(tls=True) as place:
        assert await speaks_tls(f"http://{place}", Deadline(5))
        assert not await speaks_tls(f"https://{place}", Deadline(5))  # known already
    assert not await speaks_tls(f"http://{place}", Deadline(5))
    with mute() as place:
        assert not await speaks_tls(f"http://{place}", Deadline(0.2))


@contextmanager
def mute() -> Iterator[str]:
    """A port where connections are made, by the system, and nobody ever says anything."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_handshake_cut_off_by_the_deadline_leaves_no_socket(engine: type[BaseEngine]):
    """A server that accepts and says nothing would cost a socket at each decision, until there are none left."""
    with mute() as place:
        async with nothing_left():
            async with engine(f"https://{place}") as one:  # type: ignore[call-arg]
                for _ in range(3):
                    with pytest.raises(DeadlineExceeded):
                        await one.ask(REQUEST, deadline=Deadline(0.15))

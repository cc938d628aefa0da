"""If these fail, a user whose endpoint is down, hung or something else gets a traceback, an endless wait or the wrong advice."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import time

import pytest

from warmgate.doctor import CHECKS, EndpointReport, Options, examine
from warmgate.standin import StandIn

from .servers import Plain, dead_port, raw, redirecting, self_signed, web


def doctor(url: str, seconds: float = 20.0) -> EndpointReport:
    return asyncio.run(examine([url], Options(), seconds=seconds)).endpoints[0]


def reason(found: EndpointReport) -> tuple[str, str]:
    """Why it is unreachable, and how to mend it; all other checks must be skipped for it."""
    assert found.exit_code == 3
    assert not found.reachable
    assert [check.name for check in found.checks] == [name for name in CHECKS if name != "cors_origin"]
    assert {check.status for check in found.checks[1:]} == {"skip"}
    assert {check.seen for check in found.checks[1:]} == {"the endpoint does not answer"}
    assert found.tokens_sent == 0
    return found.checks[0].seen, found.checks[0].mend or ""


def test_a_dead_port():
    port = dead_port()
    assert reason(doctor(f"http://127.0.0.1:{port}")) == (
        f"connection refused: nothing listens on 127.0.0.1:{port}",
        "start the server, or check the port",
    )


def test_a_name_that_does_not_resolve():
    assert "does not resolve" in reason(doctor("http://nonesuch.invalid:8000"))[0]


def test_a_server_that_never_answers():
    """The overall deadline holds, whatever hangs."""

    def silent(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with raw(silent) as url:
        begun = time.monotonic()
        seen, mend = reason(doctor(url, seconds=1.0))
        assert time.monotonic() - begun < 2.0
    assert "no reply within 1 s" in seen
    assert "log" in mend


def test_a_server_that_drips():
    """A reply that never ends is no reply."""

    def drip(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.05)

    with raw(drip) as url:
        begun = time.monotonic()
        reason(doctor(url, seconds=1.0))
        assert time.monotonic() - begun < 2.0


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00\x01\x02\xff" * 50, b"HTTP/9 yes\r\n\r\n", b"+OK ready\r\n"])
def test_a_server_that_speaks_something_else(garbage):
    def speak(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(garbage)

    with raw(speak) as url:
        seen, mend = reason(doctor(url))
    assert "HTTP" in seen
    assert "port" in mend


def test_a_connection_that_is_reset():
    def reset(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    with raw(reset) as url:
        assert "reset" in reason(doctor(url))[0]


def test_a_connection_that_is_closed_without_a_word():
    with raw(lambda connection: None) as url:
        assert "closed the connection" in reason(doctor(url))[0]


def test_plain_http_where_tls_was_asked_for():
    with web(Plain) as url:
        seen, mend = reason(doctor(url.replace("http:", "https:")))
    assert "TLS" in seen
    assert "http://" in mend


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_where_plain_http_was_asked_for_and_a_certificate_nobody_trusts(tmp_path):
    with web(Plain, self_signed(tmp_path)) as url:
        seen, mend = reason(doctor(url))
        assert "not trusted" in seen
        assert "SSL_CERT_FILE" in mend
        assert "https://" in reason(doctor(url.replace("https:", "http:")))[1]


def test_a_plain_web_server():
    """`python -m http.server` answers 501 to POST: that is no model without a read strategy."""
    with web(Plain) as url:
        found = doctor(url)
    assert found.exit_code == 1
    assert found.facts.server == "none"
    by_name = {check.name: check for check in found.checks}
    assert by_name["reachable"].status == "pass"
    assert by_name["models"].status == "fail"
    assert "SimpleHTTP" in by_name["models"].seen
    assert by_name["route"].seen == "not a model server"
    assert found.tokens_sent == 0


def test_a_redirect():
    with StandIn() as worker, web(redirecting(worker.url)) as url:
        found = doctor(url)
    assert found.exit_code == 1
    assert worker.url in found.checks[0].seen
    assert "give the URL" in (found.checks[0].mend or "")


def test_one_dead_endpoint_does_not_hide_a_live_one():
    """Endpoints are independent; the worst sets the exit code."""
    with StandIn() as worker:
        report = asyncio.run(examine([f"http://127.0.0.1:{dead_port()}", worker.url, f"{worker.url}/v1"], Options(), seconds=20))
    assert [endpoint.exit_code for endpoint in report.endpoints] == [3, 0], "a URL given twice is examined once"
    assert report.exit_code == 3

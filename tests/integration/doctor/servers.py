"""Small servers that are no vLLM, each on a real socket, each a context manager that yields its URL."""

from __future__ import annotations

import http.server
import socket
import socketserver
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def raw(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A TCP server that does `answer` with every connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the client left
                answer(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def web(handler: type[http.server.BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """An HTTP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Plain(http.server.SimpleHTTPRequestHandler):
    """What `python -m http.server` runs, silent."""

    def log_message(self, *_: object) -> None:
        pass


def redirecting(target: str) -> type[http.server.BaseHTTPRequestHandler]:
    """A server that sends every GET elsewhere."""

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(308)
            self.send_header("Location", target + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Redirect


def gateway(worker: str, hidden: frozenset[str]) -> type[http.server.BaseHTTPRequestHandler]:
    """A reverse proxy before `worker` that hides some routes and drops X-Request-Id, as gateways do."""

    class Gateway(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        server_version = "some-gateway/1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))) or None
            if self.path in hidden:
                self._reply(404, {}, b'{"error": "unknown route"}')
                return
            headers = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "x-request-id", "connection")}
            request = urllib.request.Request(worker + self.path, data=body, headers=headers, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    self._reply(reply.status, dict(reply.headers), reply.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._reply(error.code, dict(error.headers), error.read())

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def do_OPTIONS(self) -> None:
            self._pass_on()

        def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for key, value in headers.items():
                if key.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date", "keep-alive"):
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Gateway


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server context whose certificate nobody trusts."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2", "-nodes"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-keyout", str(key), "-out", str(certificate), *subject],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def dead_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

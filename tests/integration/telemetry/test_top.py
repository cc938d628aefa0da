"""`warmgate top` against endpoints that are down, silent, endless or somebody else's: one line and exit code 3, soon."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from warmgate.cli import top
from warmgate.errors import MalformedAnswer, Unreachable

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


@contextmanager
def answering(*pieces: bytes, every_s: float = 0.0, repeat: bool = False) -> Iterator[str]:
    """A server that sends these to everyone, then hangs until it is told to end."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, suppress(OSError):
                    peer.recv(65536)
                    while not ended.is_set():
                        for piece in pieces:
                            peer.sendall(piece)
                            ended.wait(every_s)
                        if not repeat:
                            break
                    ended.wait()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


@pytest.mark.parametrize(
    ("pieces", "every_s"),
    [((b"",), 0.0), ((HEAD, b"x-a: b\r\n"), 0.05), ((HEAD + b"\r\n", b"warmgate_x 1\n"), 0.05)],
    ids=["silent", "head without end", "body without end"],
)
def test_a_page_that_does_not_end(pieces: tuple[bytes, ...], every_s: float, monkeypatch: pytest.MonkeyPatch):
    """Each piece comes in time, the page never: the view would stand still for good."""
    monkeypatch.setattr(top, "PATIENCE_S", 0.5)
    first, *more = pieces
    with answering(first, *more * 200, every_s=every_s) as url, pytest.raises(Unreachable, match="no whole page"):
        top.fetch(url)


def test_a_page_without_bounds(monkeypatch: pytest.MonkeyPatch):
    """100 MB of it, or a few kB that unpack to as much, would fill the operator's memory."""
    monkeypatch.setattr(top, "MAX_BYTES", 1 << 20)
    packed = gzip.compress(b"warmgate_x 1\n" * 1_000_000)
    with (
        answering(HEAD + b"\r\n", *[b"warmgate_x 1\n" * 10_000] * 12) as plain,
        answering(HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed) as small,
    ):
        for url in (plain, small):
            with pytest.raises(MalformedAnswer, match="larger than 1 MiB"):
                top.fetch(url)


@pytest.mark.parametrize("body", [b"vllm:prompt_tokens_total 5\n", b"<html>", b"\xff\x00" * 50, b""])
def test_a_page_of_others(body: bytes):
    with (
        answering(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body) as url,
        pytest.raises(MalformedAnswer, match="without warmgate"),
    ):
        top.fetch(url)


@pytest.mark.parametrize("junk", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"])
def test_no_http(junk: bytes):
    with answering(junk) as url, pytest.raises(Unreachable, match="cannot be read"):
        top.fetch(url)


def test_nobody_there_is_said_without_the_password():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable) as caught:
        top.fetch(f"http://user:hunter2@127.0.0.1:{port}/metrics")
    assert "hunter2" not in str(caught.value)
    assert caught.value.mend

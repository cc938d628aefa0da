"""What a broken exchange means: nobody there, TLS on one side alone, a certificate nobody trusts, or something that is not HTTP.

httpx and httpx2 raise the same classes from two packages; here they are told apart by name and cause, so that both paths speak alike.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

from warmgate.engines.deadline import Deadline
from warmgate.errors import EngineError, MalformedAnswer, Unreachable, one_line

NO_TLS_THERE = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""OpenSSL's words for a reply that is no TLS at all."""

_ALERT = r"\x15\x03"
"""How a TLS server's alert begins, as h11 quotes it: it was asked in plain text."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and everything that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            for inner in group.exceptions:
                yield from causes(inner)
        error = error.__cause__ or error.__context__


def tls_fault(error: BaseException) -> tuple[str, str] | None:
    """What went wrong with TLS, and how to mend it; None where nothing did."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = one_line(cause.verify_message or str(cause), 100)
            return (
                f"TLS: the certificate is not trusted ({reason})",
                "name the CA's file in SSL_CERT_FILE, or use the name the certificate is for",
            )
        if isinstance(cause, ssl.SSLError):
            if (cause.reason or "") in NO_TLS_THERE:
                return "https:// was asked for, but the server has no TLS there", "write http:// instead of https://"
            return f"TLS: no handshake ({one_line(cause.reason or str(cause), 80)})", "check the server's certificate and TLS versions"
    return None


def has_tls(worker: str) -> tuple[str, str]:
    """What to say where http:// was asked for and the server speaks TLS."""
    return "http:// was asked for, but the server has TLS there", f"write https://{urlsplit(worker).netloc}"


def fault_of(fault: BaseException, *, worker: str, request_id: str) -> EngineError:
    """The error for what an HTTP client raised before there was a whole reply."""
    tls = tls_fault(fault)
    if tls is not None:
        what, mend = tls
        return Unreachable(what, where=worker, mend=mend, request_id=request_id, retryable=False)
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes(fault)):
        what, mend = "connection refused: nothing listens there", "start the worker, or check the port"
        return Unreachable(what, where=worker, mend=mend, request_id=request_id)
    words = one_line(str(fault), 160) or type(fault).__name__
    names = {kind.__name__ for kind in type(fault).__mro__}
    broken = "disconnected" in words or "closed connection" in words  # no reply, or half of one
    if not broken and _ALERT in words:
        what, mend = has_tls(worker)
        return Unreachable(what, where=worker, mend=mend, request_id=request_id, retryable=False)
    if broken or ("TransportError" in names and "RemoteProtocolError" not in names) or "APIConnectionError" in names:
        mend = "check that the worker runs there"
        if worker.startswith("http://") and (broken or names & {"ReadError", "WriteError"}):
            mend += "; write https:// if the server has TLS"
        return Unreachable(f"no reply ({words})", where=worker, mend=mend, request_id=request_id)
    return MalformedAnswer(
        f"the reply is not HTTP ({words})", where=worker, mend="check the worker's URL: http or https?", request_id=request_id
    )


async def speaks_tls(worker: str, deadline: Deadline) -> bool:
    """Whether a server asked by ``http://`` completes a TLS handshake: told from one that crashed, which hangs up just the same.

    For diagnosis: opens a connection of its own. Nothing is sent over it, and no certificate is checked.
    """
    parts = urlsplit(worker)
    if parts.scheme != "http" or not parts.hostname:
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(min(1.0, deadline.remaining())):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, ssl=context)
    except (OSError, TimeoutError, ValueError):
        return False
    writer.transport.abort()
    return True

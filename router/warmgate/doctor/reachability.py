"""Does anything answer there? DNS, the TCP connection, TLS, silence and foreign protocols are told apart."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from ipaddress import ip_address

import httpx

from warmgate.doctor.check import Check, failed, passed, warned
from warmgate.doctor.visit import PATIENCE_S, Visit
from warmgate.engines.deadline import Deadline
from warmgate.engines.faults import causes, has_tls, speaks_tls, tls_fault
from warmgate.engines.http import CONNECT_S
from warmgate.errors import DeadlineExceeded, EngineError, MalformedAnswer, one_line

NAME = "reachable"


async def reachable(visit: Visit) -> Check:
    """The one check that all others need."""
    where = visit.where("GET", "/health")
    try:
        visit.addresses = await resolve(visit.host, visit.port, visit.deadline.within(PATIENCE_S))
    except TimeoutError:
        return failed(NAME, f"no name server answered for {visit.host}", mend="check DNS, or give an address", where=visit.url)
    except OSError as fault:
        return failed(
            NAME, f"the name {visit.host} does not resolve ({one_line(str(fault), 80)})", mend="check the host name", where=visit.url
        )
    try:
        begun = time.monotonic()
        reply = await visit.get("/health")
    except EngineError as error:
        seen, mend = await _why(error, visit)
        return failed(NAME, seen, mend=mend, where=where)
    took = time.monotonic() - begun
    if 300 <= reply.status < 400:
        target = one_line(reply.headers.get("location", "elsewhere"), 120)
        return warned(NAME, f"redirects to {target}; redirects are not followed", mend="give the URL it redirects to", where=where)
    shown = ", ".join(visit.addresses[:3]) if visit.host not in visit.addresses else ""
    return passed(NAME, f"answers in {took * 1000:.0f} ms" + (f" ({shown})" if shown else ""), where=visit.url)


async def _why(error: EngineError, visit: Visit) -> tuple[str, str]:
    """What stood in the way, and how to mend it."""
    place = f"{visit.host}:{visit.port}"
    tls = tls_fault(error)
    if tls is not None:
        return tls
    if not isinstance(error, DeadlineExceeded) and await speaks_tls(visit.url, visit.deadline):
        return has_tls(visit.url)
    for cause in causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return f"connection refused: nothing listens on {place}", "start the server, or check the port"
        if isinstance(cause, httpx.ConnectTimeout):
            return (
                f"no connection within {CONNECT_S:.0f} s: packets to {place} are dropped",
                "check the address and the firewall; proxies from the environment are not used",
            )
        if isinstance(cause, httpx.RemoteProtocolError) and "disconnected" in str(cause):
            return (
                "closed the connection without an HTTP reply: it crashed, or it speaks another protocol",
                "check the port, and the server's log",
            )
        if isinstance(cause, ConnectionResetError | BrokenPipeError):
            return (
                "the connection was reset before a reply",
                "check what listens there",
            )
    if isinstance(error, DeadlineExceeded):
        return (
            f"connected, but no reply within {min(PATIENCE_S, visit.deadline.seconds):.0f} s",
            "the server hangs or still loads its model: see its log",
        )
    if isinstance(error, MalformedAnswer):
        return f"what answers does not speak HTTP: {error.what}", "check the port"
    return error.what, error.mend or "check the address"


async def resolve(host: str, port: int, deadline: Deadline) -> tuple[str, ...]:
    """The addresses of a host.

    In a daemon thread: a name server that does not answer would otherwise hold the process at its end (the loop waits for its own).

    Raises:
        OSError: No such name.
        TimeoutError: No answer in time.
    """
    try:
        return (str(ip_address(host)),)
    except ValueError:
        pass  # a name
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def settle(addresses: tuple[str, ...], fault: OSError | None) -> None:
        if not answer.done():
            answer.set_exception(fault) if fault else answer.set_result(addresses)

    def ask() -> None:
        found: tuple[str, ...] = ()
        fault: OSError | None = None
        try:
            found = tuple(dict.fromkeys(str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except OSError as error:
            fault = error
        except UnicodeError as error:  # a label longer than 63 characters
            fault = OSError(str(error))
        try:
            loop.call_soon_threadsafe(settle, found, fault)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    threading.Thread(target=ask, name="warmgate-doctor-dns", daemon=True).start()
    async with asyncio.timeout(deadline.remaining()):
        return await answer


def is_loopback(addresses: tuple[str, ...]) -> bool:
    """Whether all addresses are this machine's own."""
    return bool(addresses) and all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)


async def listens_beyond_loopback(port: int, deadline: Deadline) -> str | None:
    """The address by which other machines reach this one, if the port is open there too; else None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket: this picks a route and sends nothing
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    if ip_address(address).is_loopback:
        return None
    try:
        async with asyncio.timeout(min(1.0, deadline.remaining())):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return None
    writer.close()
    return address

"""Where an address points: loopback, the cloud's metadata service, or elsewhere; and whether its spelling deceives."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from warmgate_policies.shell.findings import UNKNOWN

METADATA = (
    "169.254.169.254",
    "metadata.google.internal",
    "metadata",
    "100.100.100.200",
    "fd00:ec2::254",
    "169.254.170.2",
    "metadata.azure.com",
    "192.0.0.192",
)
_URL = re.compile(
    r"(?i)\b(?:https?|ftps?|wss?|git|ssh|s3|gs|rsync|sftp|scp|ldap|tftp|telnet|gopher|redis|rediss|"
    r"postgres|postgresql|mysql|mongodb|mongodb\+srv|amqp|grpc|tcp)://[^\s'\"<>|)\\]+"
)


def host_of(text: str) -> str:
    """The host of a URL, or of ``host:port/path``, lower case."""
    address = text if "://" in text else "//" + text.lstrip("/")
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Also the spellings that resolvers accept: ``0x7f.1``, ``2130706433``."""
    host = host.strip("[]")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not re.fullmatch(r"[0-9a-fx.]+", host) or not host:
        return None
    try:
        parts = [
            int(part, 16 if part.startswith("0x") else 8 if len(part) > 1 and part.startswith("0") else 10) for part in host.split(".")
        ]
    except ValueError:
        return None
    if len(parts) > 4 or any(part < 0 for part in parts):
        return None
    value = 0
    for part in parts[:-1]:
        if part > 255:
            return None
        value = value * 256 + part
    value = value * 256 ** (5 - len(parts)) + parts[-1]
    return ipaddress.IPv4Address(value) if value < 2**32 else None


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    host = host.lower().strip("[]").rstrip(".")
    if host in ("localhost", "ip6-localhost") or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and (
        address.is_loopback
        or (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None and address.ipv4_mapped.is_loopback)
    )


def is_anywhere(host: str) -> bool:
    """Whether binding to this address serves every interface."""
    address = _address(host.lower().strip("[]"))
    return host in ("*", "0", "0.0.0.0", "::", "[::]") or (address is not None and address.is_unspecified)  # noqa: S104  compared, never bound


def is_metadata(host: str) -> bool:
    """Whether it is a cloud's metadata service, in any spelling of the address."""
    host = host.lower().strip("[]").rstrip(".")
    if host in METADATA:
        return True
    address = _address(host)
    return address is not None and str(address) in METADATA


def judge_host(host: str) -> str:
    """``loopback``, ``metadata``, ``lookalike``, ``unknown`` or ``remote``."""
    if UNKNOWN in host or not host:
        return "unknown"
    if not host.isascii() or host.startswith("xn--") or ".xn--" in host:
        return "lookalike"
    if is_loopback(host) or is_anywhere(host):
        return "loopback"
    return "metadata" if is_metadata(host) else "remote"


def urls_in(text: str) -> list[str]:
    """Addresses written out in a text."""
    return _URL.findall(text)

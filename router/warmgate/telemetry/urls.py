"""Workers' URLs as they may be shown: without credentials."""

from __future__ import annotations


def bare(url: str) -> str:
    """A URL without user and password; what is no URL stays as it is."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else url


def host(url: str) -> str:
    """Host and port of a URL; what is no URL stays as it is."""
    return bare(url).partition("://")[2] or url

"""API keys that must appear in no message: servers send them back in their errors.

A key is remembered when a client is made with it, and masked wherever a server's words reach an error.
"""

from __future__ import annotations

import re
from threading import Lock

MASK = "***"
WINDOW = 8
"""Characters of a key that give it away. A server may quote a part of it, or spell its first letters otherwise."""

_known: set[str] = set()
_lock = Lock()


def remember(key: str) -> None:
    """Mask ``key`` from now on."""
    with _lock:
        _known.add(key)


def mask(text: str) -> str:
    """``text`` with every remembered key, and every stretch of :data:`WINDOW` or more of its characters, replaced by :data:`MASK`."""
    with _lock:
        known = tuple(_known)
    for key in known:
        if len(key) <= WINDOW:  # a short key stands in many words
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(key)}(?![A-Za-z0-9])", MASK, text)
            continue
        for start in range(len(key) - WINDOW + 1):
            while (at := text.find(key[start : start + WINDOW])) >= 0:
                end, last = at + WINDOW, start + WINDOW
                while end < len(text) and last < len(key) and text[end] == key[last]:
                    end, last = end + 1, last + 1
                text = text[:at] + MASK + text[end:]
    return text

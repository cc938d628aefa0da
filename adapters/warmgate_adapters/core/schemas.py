"""One object for each tool schema: that a list of hundreds is the one of a turn ago is then seen without looking into it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import msgspec

KEPT = 16_384
"""Schemas remembered, of all agents of a process; one that was forgotten is compared by its content."""

_lock = threading.Lock()
_known: OrderedDict[bytes, dict[str, Any]] = OrderedDict()


def one_of_each(schema: dict[str, Any]) -> dict[str, Any]:
    """The first object that was met with this very content, in this very order of keys. Nobody may change it."""
    try:
        key = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError):
        return schema
    with _lock:
        found = _known.setdefault(key, schema)
        _known.move_to_end(key)
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return found

"""What answers there: its health, its release, its models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from warmgate.doctor.check import Check, failed, passed, skipped, warned
from warmgate.doctor.visit import Visit, object_of
from warmgate.engines.http import Reply
from warmgate.errors import EngineError, one_line

FIRST = (0, 32)
"""The first vLLM release with ``/v1/systemone``."""
TRIED = (0, 32)
"""The newest release this code was run against; 0.33 is known from its source."""
KNOWN = (0, 33)

_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
_SHOWN_MODELS = 4


async def health(visit: Visit) -> Check:
    """``GET /health``: 200 from a worker that can compute."""
    name, where = "health", visit.where("GET", "/health")
    reply = await visit.get("/health")
    if reply.status == 200:
        return passed(name, "200", where=where)
    if reply.status == 503:
        return failed(
            name, "503: the engine is dead or still loads", mend="see the server's log; restart it if its engine died", where=where
        )
    if reply.status in (404, 405):
        return warned(
            name, f"{reply.status}: no such route", mend="a gateway or another server; watch its health by its own means", where=where
        )
    if reply.status in (401, 403):
        return warned(name, f"{reply.status}: closed", mend="open /health to the gate, which watches workers by it", where=where)
    return warned(name, f"answers {reply.status}", mend="see the server's log", where=where)


async def version(visit: Visit) -> Check:
    """``GET /version``: which release, and what that means for decisions."""
    name, where = "version", visit.where("GET", "/version")
    reply = await visit.get("/version")
    found = object_of(reply).get("version") if reply.status == 200 else None
    if not isinstance(found, str) or not found:
        if reply.status != 200:
            return skipped(name, f"not told: /version answers {reply.status}", where=where)
        return skipped(name, "not told: /version has no version", where=where)
    found = one_line(found, 60)
    visit.facts.version = found
    release = release_of(found)
    visit.facts.standin = "x-warmgate-standin" in reply.headers
    if release is None:
        return warned(
            name, f"{found}: no release number; a build of somebody's own", mend="nothing here is known about it; see route", where=where
        )
    if release < FIRST:
        return warned(name, f"{found}: before 0.32, no decision route", mend="upgrade vLLM to 0.32 or newer", where=where)
    if visit.facts.standin:
        return passed(name, f"{found}, spoken by a stand-in: answers are made up, wire and cache rules are vLLM's", where=where)
    if release <= TRIED:
        return passed(name, found, where=where)
    if release <= KNOWN:
        return passed(
            name, f"{found}: known from its source and a stand-in, not run against; refuses request fields it does not know", where=where
        )
    return warned(name, f"{found}: newer than what this warmgate knows", mend="upgrade warmgate if answers look odd", where=where)


def release_of(version: str) -> tuple[int, int] | None:
    """Major and minor of ``0.32.0``, ``0.33.0rc1``, ``0.32.1.dev5+gabc``; None for a development build (``0.1.dev…``) or no number."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(dev)?|\b)", version)
    if found is None or found[3]:
        return None
    return int(found[1]), int(found[2])


async def models(visit: Visit) -> Check:
    """``GET /v1/models``: a model server at all? Which models, and the one to ask."""
    name, where = "models", visit.where("GET", "/v1/models")
    reply = await visit.get("/v1/models")
    if reply.status in (401, 403):
        visit.denied = True
        visit.facts.server = "vllm" if visit.facts.version else "other"
        return skipped(name, f"{reply.status}: closed without the right API key; see api_key", where=where)
    rows = _rows(reply)
    if 300 <= reply.status < 400:
        visit.facts.server = "none"
        return failed(name, f"{reply.status}: redirects are not followed", mend="give the URL it redirects to; see reachable", where=where)
    if rows is None:
        if await _is_vllm(visit):
            visit.facts.server = "vllm"
            return failed(name, f"/v1/models answers {reply.status} and lists nothing", mend="see the server's log", where=where)
        visit.facts.server = "none"
        software = one_line(reply.headers.get("server", ""), 60)
        return failed(
            name,
            f"no model server: /v1/models answers {reply.status}" + (f", the server is {software}" if software else ""),
            mend="check host and port; the URL is the server's root, with or without /v1",
            where=where,
        )
    visit.facts.server = await _kind(visit, rows)
    ids = [one_line(str(row["id"]), 100) for row in rows]
    if not ids:
        return failed(name, "serves no model", mend="see the server's log", where=where)
    row = rows[0]
    if visit.options.model is not None:
        if visit.options.model not in [row["id"] for row in rows]:
            return failed(
                name, f"{visit.options.model!r} is not served; served: {_listed(ids)}", mend="name one of these with --model", where=where
            )
        row = next(row for row in rows if row["id"] == visit.options.model)
    visit.facts.model = str(row["id"])
    length = row.get("max_model_len")
    if isinstance(length, int) and not isinstance(length, bool) and length > 0:
        visit.facts.max_model_len = length
    adapters = sum(bool(row.get("parent")) for row in rows)
    seen = _listed(ids) + (f" ({adapters} of them adapters)" if adapters else "")
    if visit.facts.max_model_len:
        seen += f", at most {visit.facts.max_model_len:,} tokens"
    if len(ids) > 1:
        seen += f"; asking {one_line(visit.facts.model, 100)}"
    return passed(name, seen, where=where)


def _rows(reply: Reply) -> list[dict[str, Any]] | None:
    """The listed models, or None where the reply lists none."""
    data: object = object_of(reply).get("data") if reply.status == 200 else None
    if not isinstance(data, list):
        return None
    rows = [cast("dict[str, Any]", row) for row in cast("list[object]", data) if isinstance(row, dict)]
    return [row for row in rows if isinstance(row.get("id"), str) and row["id"]]


async def _is_vllm(visit: Visit) -> bool:
    """Whether the routes that need no key are vLLM's."""
    try:
        found = object_of(await visit.get("/version")).get("version")
        return isinstance(found, str) and b"vllm:" in (await visit.get("/metrics")).body
    except EngineError:
        return False


async def _kind(visit: Visit, rows: Sequence[dict[str, Any]]) -> str:
    owners = {str(row.get("owned_by")).lower() for row in rows}
    for owner, kind in _OWNERS.items():
        if owner in owners:
            return kind
    return "vllm" if await _is_vllm(visit) else "other"


def _listed(ids: Sequence[str]) -> str:
    more = len(ids) - _SHOWN_MODELS
    return ", ".join(ids[:_SHOWN_MODELS]) + (f" and {more} more" if more > 0 else "")

"""Which web pages may talk to the endpoint from a browser, by the rules of the Fetch standard.

vLLM 0.32 lets nobody in unless ``--allowed-origins`` says so; up to 0.31 it let in everybody. Callers that are no browsers do not care.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from warmgate.doctor.cache import METRICS_PATH
from warmgate.doctor.check import Check, failed, passed, skipped, warned
from warmgate.doctor.visit import Visit
from warmgate.engines.http import Reply
from warmgate.errors import EngineError, OptionError, one_line

ENDPOINTS = (
    ("POST", "/v1/systemone"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("GET", "/v1/models"),
    ("GET", METRICS_PATH),
    ("GET", "/health"),
    ("GET", "/version"),
)
"""Every route that warmgate uses."""

STRANGER = "https://stranger.example"
"""An origin nobody owns (RFC 2606): whoever lets it in lets in any site."""


def check_origin(text: str) -> str:
    """A browser origin as a header carries it.

    Raises:
        OptionError: Not ``scheme://host[:port]``.
    """
    if text == "null":  # what a page from a file or a sandboxed frame sends
        return text
    wrong = OptionError(
        f"{one_line(text, 80)!r} is not an origin", where="--origin", mend="write scheme://host[:port], without a path or slash at its end"
    )
    try:
        parts = urlsplit(text)
        bare = f"{parts.scheme}://{parts.netloc}"
        if not parts.scheme or not parts.hostname or parts.username is not None or bare != text or parts.port == 0:
            raise wrong
    except ValueError:
        raise wrong from None
    if not text.isascii() or not text.isprintable() or text != text.lower() or " " in text:
        raise OptionError(
            f"{one_line(text, 80)!r} is not written as browsers send it", where="--origin", mend="lower case, punycode for other scripts"
        )
    return text


@dataclass(frozen=True, slots=True)
class _Answer:
    """Whether one route lets a page of an origin in, and what it said."""

    method: str
    path: str
    allowed: bool
    why: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def preflight_allows(reply: Reply, origin: str, headers: Iterable[str]) -> tuple[bool, str]:
    """Whether a browser would go on after this answer to a preflight for a GET or POST, and why not.

    GET and POST need no ``Access-Control-Allow-Methods``; ``*`` in ``Access-Control-Allow-Headers`` does not cover Authorization.
    """
    if not 200 <= reply.status < 300:
        return False, f"the preflight gets {reply.status}"
    if not _names(reply.headers, origin):
        return False, "no Access-Control-Allow-Origin for it"
    granted = {word.strip().lower() for word in reply.headers.get("access-control-allow-headers", "").split(",")}
    refused = [name for name in headers if name not in granted and ("*" not in granted or name == "authorization")]
    return (False, f"the header {refused[0]} is not allowed") if refused else (True, "allowed")


def _names(headers: Mapping[str, str], origin: str) -> bool:
    return headers.get("access-control-allow-origin") in ("*", origin)


async def _ask(visit: Visit, origin: str) -> list[_Answer]:
    """What every route says to pages of an origin. A GET without a key is sent as it is, as a browser does."""
    keyed = bool(visit.facts.key_demanded)
    wanted = ["content-type", "authorization"] if keyed else ["content-type"]
    plain = visit.new_line(headers={"Origin": origin})
    flights = {
        method: visit.new_line(
            headers={"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": ",".join(sorted(wanted))}
        )
        for method in ("GET", "POST")
    }

    async def one(method: str, path: str) -> _Answer:
        try:
            if method == "GET" and not (keyed and path.startswith("/v1")):
                reply = await visit.call("GET", path, line=plain)
                if reply.status in (404, 405):
                    return _Answer(method, path, False, f"no such route ({reply.status})")
                return _Answer(method, path, _names(reply.headers, origin), "no Access-Control-Allow-Origin for it")
            reply = await visit.call("OPTIONS", path, line=flights[method])
            return _Answer(method, path, *preflight_allows(reply, origin, wanted))
        except EngineError as error:
            return _Answer(method, path, False, error.what)

    return list(await asyncio.gather(*(one(method, path) for method, path in ENDPOINTS)))


def _flag(visit: Visit, *origins: str) -> str:
    listed = msgspec.json.encode(origins).decode()
    if visit.facts.gateway:
        return f"set the allowed origins in the gateway; on vLLM itself the flag is --allowed-origins '{listed}'"
    return f"start vLLM with --allowed-origins '{listed}' (the list replaces the default: name every origin)"


async def stranger(visit: Visit) -> Check:
    """Whether a page of any site can use the endpoint from its visitors' browsers."""
    name, where = "cors_stranger", f"origin {STRANGER}"
    answers = await _ask(visit, STRANGER)
    open_ = [answer for answer in answers if answer.allowed]
    if not open_:
        return passed(name, f"no route lets in pages of other sites ({answers[0]}: {answers[0].why})", where=where)
    if visit.facts.key_demanded:
        return warned(
            name,
            f"open to pages of any site, though a key is demanded: {_listed(open_)}",
            mend=_flag(visit, "https://your.app"),
            where=where,
        )
    return warned(
        name,
        f"open to pages of any site, from inside the browser of whoever can reach this address: {_listed(open_)}",
        mend=_flag(visit, "https://your.app"),
        where=where,
    )


async def origin(visit: Visit, origin: str) -> Check:
    """Whether pages of an origin that should be let in are, on every route."""
    name, where = "cors_origin", f"origin {origin}"
    answers = await _ask(visit, origin)
    exists = [answer for answer in answers if not answer.why.startswith("no such route")]
    shut = [answer for answer in exists if not answer.allowed]
    if not exists:
        return skipped(name, "no route answers", where=where)
    if not shut:
        return passed(name, f"let in on all {len(exists)} routes", where=where)
    whys = sorted({answer.why for answer in shut})
    return failed(name, f"blocked on {_listed(shut)}: {'; '.join(whys[:3])}", mend=_flag(visit, *visit.options.origins), where=where)


def _listed(answers: list[_Answer]) -> str:
    return "every route" if len(answers) == len(ENDPOINTS) else ", ".join(map(str, answers))

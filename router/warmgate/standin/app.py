"""From a request to a reply: routes, API keys, browser origins and faults, in the order in which vLLM's layers see a request."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from warmgate.errors import OptionError
from warmgate.standin import listing
from warmgate.standin.chat import chat
from warmgate.standin.completions import completions
from warmgate.standin.decisions import decisions
from warmgate.standin.replies import Refused, Reply, not_allowed, not_found, refusal, unauthorized
from warmgate.standin.served import Request, Served, hold
from warmgate.standin.systemone import Decider, systemone
from warmgate.standin.tokens import detokenize, tokenize

Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]

MARK = ("x-warmgate-standin", "1")
"""On every response: nobody shall take a stand-in for a model."""

GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""Paths that need a key when keys are set (``vllm/entrypoints/serve/middleware/authenticate.py``)."""

PREFLIGHT_VARY = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network"
TEXT_ROUTES = ("/tokenize", "/detokenize")
"""POSTs that no engine runs."""

METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"


class App:
    """The routes of one stand-in.

    Args:
        served: What it claims to serve.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        decider = Decider(served)
        self.decider = decider
        options = served.options
        default = () if served.since("0.32") else ("*",)
        self._origins = default if options.allowed_origins is None else options.allowed_origins
        self._keys = [key.encode() for key in options.api_keys]
        routes: dict[str, tuple[str, Handler]] = {
            "/health": ("GET", lambda r: listing.health(served, r)),
            "/ping": ("GET", lambda r: listing.health(served, r)),
            "/load": ("GET", lambda r: listing.load(served, r)),
            "/version": ("GET", lambda r: listing.version(served, r)),
            "/metrics": ("GET", lambda r: listing.show_metrics(served, r)),
            "/kv_event_sources": ("GET", lambda r: listing.kv_event_sources(served, r)),
            "/v1/models": ("GET", lambda r: listing.models(served, r)),
            "/tokenize": ("POST", lambda r: tokenize(served, r)),
            "/detokenize": ("POST", lambda r: detokenize(served, r)),
        }
        if not served.style.pooling:
            routes["/v1/chat/completions"] = ("POST", lambda r: chat(served, r))
            routes["/v1/completions"] = ("POST", lambda r: completions(served, r))
        if served.since("0.32"):
            routes["/v1/systemone"] = ("POST", lambda r: systemone(decider, r))
        if served.since("0.33"):
            routes["/v1/decisions"] = ("POST", lambda r: decisions(decider, r))
        self._routes = routes

    async def __call__(self, request: Request) -> Reply:
        """The reply to a request; whatever goes wrong on the way becomes a reply too."""
        try:
            request.plan = self.served.faults.plan(request.method, request.path, request.headers.get("x-standin-fault"))
            reply = await self._reply(request)
            request.plan.apply(reply)
        except Refused as refused:
            reply = refused.reply
        except OptionError as fault:
            reply = refusal(str(fault)).reply
        except Exception as fault:  # noqa: BLE001 -- vLLM's last resort too: an envelope, never a dropped connection
            reply = refusal(f"{type(fault).__name__}: {fault}", 500, "InternalServerError").reply
        reply.headers += [MARK, *self._cross_origin(request.headers)]
        return reply

    async def _reply(self, request: Request) -> Reply:
        spoilt = request.plan.refuse()
        if spoilt is not None:
            await hold(request.plan)
            return spoilt
        self._authorize(request)
        headers = request.headers
        if request.method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            return self._preflight(headers)
        route = self._routes.get(request.path)
        if route is None:
            raise not_found()
        method, handler = route
        if request.method != method:
            raise not_allowed([method])
        if method == "GET" or request.path in TEXT_ROUTES:  # the others hold blocks meanwhile
            await hold(request.plan)
        return await handler(request)

    def _authorize(self, request: Request) -> None:
        if not self._keys or request.method == "OPTIONS" or not request.path.startswith(GUARDED):
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = key.encode("latin-1", "replace")
        if scheme.lower() != "bearer" or not any(hmac.compare_digest(given, known) for known in self._keys):
            raise unauthorized()

    def _preflight(self, headers: Mapping[str, str]) -> Reply:
        origin = headers["origin"]
        answer = [("vary", PREFLIGHT_VARY), ("access-control-allow-methods", METHODS), ("access-control-max-age", "600")]
        failures: list[str] = []
        if "*" in self._origins:
            answer.append(("access-control-allow-origin", "*"))
        elif origin in self._origins:
            answer.append(("access-control-allow-origin", origin))
        else:
            failures.append("origin")
        if headers["access-control-request-method"] not in METHODS.split(", "):
            failures.append("method")
        if "access-control-request-headers" in headers:
            answer.append(("access-control-allow-headers", headers["access-control-request-headers"]))
        if "access-control-request-private-network" in headers:
            failures.append("private-network")
        text = "Disallowed CORS " + ", ".join(failures) if failures else "OK"
        return Reply(400 if failures else 200, body=text.encode(), content_type="text/plain; charset=utf-8", headers=answer)

    def _cross_origin(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        origin = headers.get("origin")
        if origin is not None and "access-control-request-method" in headers:
            return []
        vary = ("vary", "Origin")
        if origin is None or not {origin, "*"} & set(self._origins):
            return [vary]
        return [("access-control-allow-origin", "*" if "*" in self._origins else origin), vary]

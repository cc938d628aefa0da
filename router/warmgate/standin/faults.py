"""Faults on demand: what each is called, when it strikes, and how it spoils a reply.

``NAME[=VALUE][@PATH]``: for the whole server by ``--fault``, for one request by the header ``x-standin-fault``, from a test by
``worker.fault("429=0.05", times=2)``. Several at once are joined by commas; a slow server can also answer nonsense.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from warmgate.errors import OptionError
from warmgate.standin.replies import Reply
from warmgate.standin.shapes import as_object
from warmgate.standin.spoil import SPOILERS

HEADER = "x-standin-fault"

STATUSES = (400, 401, 403, 404, 422, 429, 500, 501, 502, 503, 529)

FAULTS: dict[str, str] = {
    "slow": "answers after VALUE seconds (2); the request counts as running and holds its cache blocks meanwhile",
    "hang": "takes the request and never answers",
    "reset": "resets the connection once the request is read",
    "close": "closes the connection once the request is read, without a byte",
    "half_headers": "sends half of the response head, then closes",
    "half_body": "announces the whole body, sends half of it, then closes",
    "drip_feed": "sends the response one byte every VALUE seconds (0.05)",
    "huge_body": "sends a JSON body of VALUE megabytes (64)",
    "empty_body": "status 200 and nothing in the body",
    "garbage": "status 200 and a body that is not JSON",
    "not_utf8": "status 200 and JSON whose text is not UTF-8",
    "not_http": "answers with bytes that are not HTTP",
    "wrong_content_type": "the right body, called text/html",
    "wrong_types": "numbers as texts, texts as numbers, objects as lists",
    "out_of_range": "probabilities above 1 and below 0, log-probabilities above 0",
    "nan": "probabilities that are NaN, written as Python writes them",
    "missing_answer": "the last answer is missing",
    "extra_fields": "fields nobody has heard of, everywhere",
    "wrong_ids": "answers to questions that nobody asked",
    "bad_sum": "probabilities that add up to 0.5",
    "wrong_argmax": "the choice named is not the most probable one",
    **{str(status): f"status {status} in the usual envelope" for status in STATUSES},
}
FAULTS["429"] += "; Retry-After and retry-after-ms of VALUE seconds (1)"
FAULTS["502"] = "status 502 with a gateway's HTML page"
FAULTS["503"] += "; no Retry-After unless VALUE gives one, as vLLM"
FAULTS["529"] = "status 529 (overloaded), as TypeSafe's own service"

TRANSPORT = frozenset({"reset", "close", "half_headers", "half_body", "drip_feed", "not_http"})
DEFAULTS = {"slow": 2.0, "drip_feed": 0.05, "huge_body": 64.0, "429": 1.0}


@dataclass(slots=True)
class Fault:
    """One fault that is switched on.

    Attributes:
        name: A key of :data:`FAULTS`.
        value: Its number, where it takes one.
        path: Only requests to this path; ``None`` for every POST.
        times: How often it strikes before it is spent; ``None`` for always.
    """

    name: str
    value: float | None = None
    path: str | None = None
    times: int | None = None


@dataclass(slots=True)
class Plan:
    """What happens to one request.

    Attributes:
        delay: Seconds before the answer; infinite for ``hang``.
        transport: Faults of the connection, by name, with their values.
        spoil: Faults of the content, by name, with their values.
    """

    delay: float = 0.0
    transport: dict[str, float] = field(default_factory=dict[str, float])
    spoil: dict[str, float | None] = field(default_factory=dict[str, float | None])

    def refuse(self) -> Reply | None:
        """The reply that replaces the real one, for statuses and bodies that need no answer."""
        for name, value in self.spoil.items():
            if name.isdigit():
                return _status(int(name), value)
            if name == "garbage":
                return Reply(body=b"<p>Everything is fine, here are your answers: {yes}</p>")
            if name == "not_utf8":
                return Reply(body=b'{"id":"decision-\xff\xfe","answers":{}}')
            if name == "empty_body":
                return Reply(body=b"")
            if name == "huge_body":
                return Reply(body=b'{"answers":{},"padding":"' + b"x" * int((value or DEFAULTS["huge_body"]) * 1_000_000) + b'"}')
        return None

    def apply(self, reply: Reply) -> None:
        """Spoil a good reply where this plan says so."""
        for name in self.spoil:
            if name == "wrong_content_type":
                reply.content_type = "text/html; charset=utf-8"
            elif reply.status == 200 and (payload := as_object(reply.payload)):
                SPOILERS[name](payload)


class Faults:
    """Every fault that is switched on, oldest first.

    Args:
        standing: Faults of the whole server, as ``NAME[=VALUE][@PATH]``.

    Raises:
        OptionError: A fault is unknown or its value is not a number.
    """

    def __init__(self, standing: Iterable[str] = ()) -> None:
        self._active: list[Fault] = [fault for text in standing for fault in parse(text)]

    def add(self, text: str, times: int | None = None, path: str | None = None) -> None:
        """Switch faults on, for ``times`` requests or until :meth:`clear`."""
        for fault in parse(text):
            self._active.append(Fault(fault.name, fault.value, fault.path or path, times))

    def clear(self) -> None:
        """Switch all of them off."""
        self._active.clear()

    def plan(self, method: str, path: str, header: str | None) -> Plan:
        """What happens to a request; counted faults that strike it are used up by one.

        Raises:
            OptionError: The header names an unknown fault.
        """
        plan = Plan()
        for fault in parse(header) if header else ():
            _join(plan, fault)
        for fault in list(self._active):
            if fault.path != path if fault.path is not None else method != "POST":
                continue
            if fault.times is not None:
                if fault.times <= 0:
                    continue
                fault.times -= 1
                if fault.times == 0 and fault in self._active:
                    self._active.remove(fault)
            _join(plan, fault)
        return plan


def parse(text: str) -> list[Fault]:
    """Read ``NAME[=VALUE][@PATH]``, several joined by commas.

    Raises:
        OptionError: A fault is unknown, or its value is not a number from 0 to 100,000.
    """
    faults: list[Fault] = []
    for part in text.split(","):
        named, _, path = part.strip().partition("@")
        name, _, number = named.partition("=")
        if name not in FAULTS:
            raise OptionError(f"no fault is called {name!r}", where="--fault", mend="`warmgate standin --fault list` names them")
        value: float | None = None
        if number:
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if not 0 <= value <= 100_000:
                raise OptionError(f"{number!r} is not a number of seconds or megabytes", where=f"--fault {name}")
        faults.append(Fault(name, value, path or None))
    return faults


def _join(plan: Plan, fault: Fault) -> None:
    if fault.name == "hang":
        plan.delay = math.inf
    elif fault.name == "slow":
        plan.delay += DEFAULTS["slow"] if fault.value is None else fault.value
    elif fault.name in TRANSPORT:
        plan.transport[fault.name] = DEFAULTS.get(fault.name, 0.0) if fault.value is None else fault.value
    else:
        plan.spoil[fault.name] = fault.value


def _status(status: int, value: float | None) -> Reply:
    message = "the stand-in was told to answer so"
    envelope = {"error": {"message": message, "type": _KINDS.get(status, "InternalServerError"), "param": None, "code": status}}
    reply = Reply(status, envelope)
    if status == 401:
        reply.payload = {"error": "Unauthorized"}
    elif status == 404:
        reply.payload = {"detail": "Not Found"}
    elif status == 422:
        reply.payload = {"detail": [{"type": "value_error", "loc": ["body", "questions"], "msg": message, "input": None}]}
    elif status == 502:
        reply = Reply(status, body=b"<html><body><h1>502 Bad Gateway</h1></body></html>", content_type="text/html")
    elif status == 529:
        reply.payload = {"detail": {"error_type": "overloaded_error", "message": message}}
    wait = DEFAULTS["429"] if status == 429 and value is None else value
    if wait is not None and status in (429, 503, 529):
        reply.headers = [("retry-after", str(math.ceil(wait))), ("retry-after-ms", str(round(wait * 1000)))]
    return reply


_KINDS = {
    400: "BadRequestError",
    403: "Forbidden",
    429: "Too Many Requests",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}

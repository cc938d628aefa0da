"""Every error that warmgate raises on purpose.

::

    WarmgateError            code   raised by
    ├── InputError           WG1xx  anything a user hands in; the command line exits 2
    │   ├── TraceError       WG110  warmgate.replay: a trace that cannot be read
    │   ├── TokenizerError   WG120  a tokenizer.json that cannot be loaded
    │   ├── TemplateError    WG130  a chat template that cannot be parsed or rendered
    │   ├── OptionError      WG140  options that contradict each other or the input
    │   └── QuestionError    WG150  a question, or a state, that cannot be asked of a dialect
    ├── OutputError          WG190  a report that cannot be written
    └── EngineError          WG300  warmgate.engines: a worker gave no answer; the command line exits 3
        ├── BadRequest       WG310  400, 413, 415, 422: the worker refused the request
        ├── Unauthorized     WG311  401, 403: the API key is missing, wrong or not allowed
        ├── UnknownModel     WG312  404 that speaks of the model
        ├── RouteAbsent      WG313  404, 405: the server has no such route
        ├── NotSupported     WG314  501, or an engine that cannot read this model
        ├── Overloaded       WG320  429, 503, 529: retried while the deadline allows
        ├── Unreachable      WG321  no connection, or it broke: retried while the deadline allows
        ├── ServerFault      WG322  any other status (502 and 504 are retried: a gateway's broken connection)
        ├── DeadlineExceeded WG330  the time given was up
        ├── MalformedAnswer  WG340  a reply that is not an answer to what was asked
        └── Refused          WG341  the model declined to answer

A message is one line: what is wrong, where, and how to mend it.
"""

from __future__ import annotations

from typing import ClassVar

from warmgate.secret import mask


class WarmgateError(Exception):
    """Base of the tree.

    Args:
        what: What is wrong, in one sentence without a full stop.
        where: File, line, URL or option it concerns.
        mend: What the reader can do about it.
    """

    code: ClassVar[str] = "WG000"
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str | None = None, mend: str | None = None) -> None:
        self.what = one_line(what)
        self.where = one_line(where) if where is not None else None
        self.mend = one_line(mend) if mend is not None else None
        super().__init__(str(self))

    def __str__(self) -> str:
        """One line: ``where: what; mend``."""
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.mend}" if self.mend else line

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process borders whole (worker pools pickle them)."""
        return (_rebuild, (type(self), self.what, self.where, self.mend))


def _rebuild(cls: type[WarmgateError], what: str, where: str | None, mend: str | None) -> WarmgateError:
    return cls(what, where=where, mend=mend)


class InputError(WarmgateError):
    """Something the user handed in cannot be used."""

    code = "WG100"
    exit_code = 2


class TraceError(InputError):
    """A recorded trace cannot be read. Raised by the readers in :mod:`warmgate.replay`."""

    code = "WG110"


class TokenizerError(InputError):
    """A ``tokenizer.json`` cannot be loaded or used."""

    code = "WG120"


class TemplateError(InputError):
    """A chat template cannot be parsed, or refused the conversation it was given."""

    code = "WG130"


class OptionError(InputError):
    """Options contradict each other or the input."""

    code = "WG140"


class QuestionError(InputError):
    """A question cannot be asked: its shape, a name, or a limit of the dialect it would be sent in.

    Args:
        what: What is wrong.
        question: Id of the question, where one is at fault.
        field: The field at fault, such as ``criteria`` or ``criteria.fs``.
        limit: The limit that was passed, in the unit the message names.
        dialect: The dialect that sets the limit; None where warmgate itself does.
        mend: What the reader can do about it.
    """

    code = "WG150"

    def __init__(
        self,
        what: str,
        *,
        question: str | None = None,
        field: str | None = None,
        limit: int | None = None,
        dialect: str | None = None,
        mend: str | None = None,
    ) -> None:
        self.question = question
        self.field = field
        self.limit = limit
        self.dialect = dialect
        where = None if question is None else f"question {question!r}"
        if field is not None:
            where = f"{where}, {field}" if where else field
        super().__init__(f"{what} (dialect {dialect})" if dialect else what, where=where, mend=mend)

    def __reduce__(self) -> tuple[object, ...]:
        """See :meth:`WarmgateError.__reduce__`."""
        return (_restore, (type(self), str(self), self.__dict__.copy()))


class OutputError(WarmgateError):
    """A report cannot be written."""

    code = "WG190"
    exit_code = 2


class EngineError(WarmgateError):
    """A worker gave no answer. Raised by every engine in :mod:`warmgate.engines`.

    Args:
        what: What is wrong, in our words.
        where: The worker (base URL) it concerns.
        mend: What the reader can do about it.
        status: HTTP status, where there was a reply.
        server_words: The server's own message, one line of at most 400 characters, or None.
        request_id: The X-Request-Id that was sent, to find the request in the server's log.
        retry_after_s: Seconds the server asked to wait, or None.
        retryable: Whether the same request may succeed later; without it, the class says.
    """

    code = "WG300"
    exit_code = 3
    retries: ClassVar[bool] = False

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        mend: str | None = None,
        status: int | None = None,
        server_words: str | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        self.status = status
        what = mask(what)
        self.server_words = mask(one_line(server_words)) if server_words else None
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.retryable = self.retries if retryable is None else retryable
        said = f'{what} (the server said: "{self.server_words}")' if self.server_words else what
        super().__init__(said, where=where, mend=mend)

    def __reduce__(self) -> tuple[object, ...]:
        """See :meth:`WarmgateError.__reduce__`."""
        return (_restore, (type(self), str(self), self.__dict__.copy()))


class BadRequest(EngineError):
    """The worker refused the request as invalid (400, 413, 415, 422). Never retried."""

    code = "WG310"


class Unauthorized(EngineError):
    """The API key is missing, wrong or not allowed here (401, 403). Never retried."""

    code = "WG311"


class UnknownModel(EngineError):
    """The server does not serve the model (a 404 that speaks of the model). Never retried."""

    code = "WG312"


class RouteAbsent(EngineError):
    """The server has no such route (404 of the router, 405). Never retried."""

    code = "WG313"


class NotSupported(EngineError):
    """The server cannot read this model that way (501), or an engine cannot. Final: never retried."""

    code = "WG314"


class Overloaded(EngineError):
    """The server has no room now (429, 503, 529). Retried while the deadline allows."""

    code = "WG320"
    retries = True


class Unreachable(EngineError):
    """No connection to the worker, or it broke before the reply was whole. Retried while the deadline allows."""

    code = "WG321"
    retries = True


class ServerFault(EngineError):
    """A status that no other class covers: 3xx, 5xx and the rest."""

    code = "WG322"


class DeadlineExceeded(EngineError):
    """The time given was up. The worker may still be computing."""

    code = "WG330"


class MalformedAnswer(EngineError):
    """A reply that is not an answer to what was asked: not JSON, wrong types, missing labels, no distribution."""

    code = "WG340"


class Refused(EngineError):
    """The model declined to answer."""

    code = "WG341"


def _restore(cls: type[WarmgateError], text: str, state: dict[str, object]) -> WarmgateError:
    """An error as it was before pickling, whatever arguments its class takes."""
    error = cls.__new__(cls)
    error.args = (text,)
    error.__dict__.update(state)
    return error


def one_line(text: str, limit: int = 400) -> str:
    r"""Fold ``text`` into one printable line of at most ``limit`` characters.

    Control characters (a hostile file name or trace may carry terminal escapes) become spaces; bytes of a file name that are no UTF-8
    are spelt ``\xff``.
    """
    folded = " ".join("".join(c if c.isprintable() else undecoded(c) or " " for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def undecoded(character: str) -> str:
    r"""How a byte that Python could not decode is spelt (``\xff``); in text it is half a surrogate pair. Empty for any other character."""
    return f"\\x{ord(character) - 0xDC00:02x}" if "\udc80" <= character <= "\udcff" else ""

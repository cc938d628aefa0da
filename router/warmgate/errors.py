"""Every error that warmgate raises on purpose.

::

    WarmgateError            code   raised by
    ├── InputError           WG1xx  anything a user hands in; the command line exits 2
    │   ├── TraceError       WG110  warmgate.replay: a trace that cannot be read
    │   ├── TokenizerError   WG120  a tokenizer.json that cannot be loaded
    │   ├── TemplateError    WG130  a chat template that cannot be parsed or rendered
    │   └── OptionError      WG140  options that contradict each other or the input
    └── OutputError          WG190  a report that cannot be written

A message is one line: what is wrong, where, and how to mend it.
"""

from __future__ import annotations

from typing import ClassVar


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


class OutputError(WarmgateError):
    """A report cannot be written."""

    code = "WG190"
    exit_code = 2


def one_line(text: str, limit: int = 400) -> str:
    """Fold ``text`` into one printable line of at most ``limit`` characters.

    Control characters (a hostile file name or trace may carry terminal escapes) become spaces.
    """
    folded = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"

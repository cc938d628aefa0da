"""The command group, and how every command's faults reach the user: one line on stderr and an exit code.

The code is the same whatever becomes of the line: stderr may be closed or full. Where standard output cannot be written the code is 2,
where its reader has gone (``| head``) 0. ``WARMGATE_DEBUG=1`` prints the traceback of a fault of our own.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

import click

from warmgate import __version__
from warmgate.errors import WarmgateError, one_line

UNANSWERED = {"decide": 3, "doctor": 3}
"""Exit code of a fault of our own, where a command has one for "no answer". The others exit with 2."""

_FULL = {errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF, errno.EAGAIN}
_WIDEST = 10_000


class _Group(click.Group):
    """Lists commands with the whole of their first sentence, folded, not cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(1000)) for name, command in found if command is not None])


class _Ended(SystemExit):
    """A signal asked the process to end."""


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="A gating router for agent graphs: decisions that ride on the agent's own prompt prefix.",
)
@click.version_option(__version__, message="warmgate %(version)s")
def app() -> None:
    """The root of the command line; commands register themselves on it."""


def say(line: str) -> None:
    """One line for people on stderr, safe against control characters in names. Goes nowhere where stderr cannot be written."""
    _tell(f"warmgate: {one_line(line, 2000)}\n")


def prepare() -> None:
    """Make this process fit to run a command, whatever it was started with. For the process that belongs to the command line alone."""
    for number in (0, 1, 2):  # closed ones would be taken by the next file that is opened, and prints would go there
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        if not (size.isdecimal() and 0 < int(size[:9]) <= _WIDEST):  # rich prints nothing at all on 0 columns
            os.environ.pop(name, None)
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.errors == "strict":
        reconfigure(errors="replace")  # a sign that the output's encoding lacks costs itself


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code; faults become one line on stderr, never a traceback."""
    command = arguments[0] if arguments else ""
    try:
        with _ending():
            return _run(arguments)
    except _Ended as ended:
        say("terminated")
        return 128 + int(str(ended.code))
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    except BaseException as fault:  # noqa: BLE001 -- the last resort: tokenizers in Rust panic with a BaseException
        return _failed(fault, command)


def _run(arguments: Sequence[str]) -> int:
    from warmgate.cli import calibrate, decide, demo, doctor, replay, shell, standin, top

    for module in (demo, replay, decide, doctor, shell, calibrate, top, standin):
        app.add_command(module.command)
    if sys.stdout is None:
        say("standard output is closed; redirect it to a file or /dev/null")
        return 2
    if not arguments and "_WARMGATE_COMPLETE" not in os.environ:
        with app.make_context("warmgate", [], resilient_parsing=True) as context:
            _tell(f"{app.get_help(context)}\n")
        return 2
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except WarmgateError as fault:
        say(str(fault))
        return fault.exit_code
    except click.UsageError as fault:
        path = " ".join(["warmgate", *(name for name in arguments[:1] if name in app.commands)])  # click does not always know
        say(f"{fault.format_message().rstrip('.')}; see `{path} --help`")
        return 2
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _mute(sys.stdout)
        return 0
    except _Ended:
        raise
    except SystemExit as fault:
        _mute(sys.stdout)
        if isinstance(fault.__context__, BrokenPipeError):  # rich's way to end on one
            return 0
        return fault.code if isinstance(fault.code, int) else 2
    except OSError as fault:
        if fault.filename is not None or fault.errno not in _FULL:
            raise
        _mute(sys.stdout)
        say(f"standard output: cannot be written ({fault.strerror or fault})")
        return 2
    return code if isinstance(code, int) else 0


def _invoke(arguments: Sequence[str]) -> Any:
    if "_WARMGATE_COMPLETE" in os.environ:  # a shell asks what could follow
        return app.main(args=list(arguments), prog_name="warmgate")
    try:  # not by click's own main: it takes any broken pipe, a worker's too, for the end of a good run with exit code 1
        with app.make_context("warmgate", list(arguments)) as context:
            return app.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code


def _failed(fault: BaseException, command: str) -> int:
    """A fault of our own, told in one line. Returns the exit code."""
    with suppress(BaseException):
        if os.environ.get("WARMGATE_DEBUG", "0") not in ("", "0"):
            _tell("".join(traceback.format_exception(fault)))
        last = [frame for frame in traceback.extract_tb(fault.__traceback__) if f"{os.sep}warmgate" in frame.filename][-1:]
        place = "".join(f" at {os.path.basename(frame.filename)}:{frame.lineno}" for frame in last)  # noqa: PTH119
        if isinstance(fault, MemoryError):
            traceback.clear_frames(fault.__traceback__)
        said = one_line(str(fault), 300) or ("out of memory" if isinstance(fault, MemoryError) else "no reason given")
        where = f" in {command}" if command in app.commands else ""
        say(f"internal error{where}: {type(fault).__name__}: {said}{place}; please report it with what WARMGATE_DEBUG=1 prints")
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    return UNANSWERED.get(command, 2)


@contextmanager
def _ending() -> Generator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that nothing half-written stays behind. A second one ends at once."""
    taken: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                taken[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for taken_one, before in taken.items():
            signal.signal(taken_one, before)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise _Ended(number)


def _tell(text: str) -> None:
    """Write to stderr, or nowhere."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        _mute(stream)


def _mute(stream: IO[str]) -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush does not fail as well and change the exit code."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)

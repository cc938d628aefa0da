"""The command group, and how every command's faults reach the user: one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from warmgate import __version__
from warmgate.errors import WarmgateError, one_line


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="A gating router for agent graphs: decisions that ride on the agent's own prompt prefix.",
)
@click.version_option(__version__, message="warmgate %(version)s")
def app() -> None:
    """The root of the command line; commands register themselves on it."""


def say(line: str) -> None:
    """One line for people on stderr, safe against control characters in names."""
    sys.stderr.write(f"warmgate: {one_line(line, 2000)}\n")


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code; faults become one line on stderr, never a traceback."""
    from warmgate.cli import decide, doctor, replay, standin

    app.add_command(replay.command)
    app.add_command(decide.command)
    app.add_command(doctor.command)
    app.add_command(standin.command)
    if sys.stdout is None:
        say("standard output is closed; write to a file with --json PATH")
        return 2
    try:
        code = app.main(args=list(arguments), prog_name="warmgate", standalone_mode=False)
        sys.stdout.flush()
    except WarmgateError as fault:
        say(str(fault))
        return fault.exit_code
    except click.exceptions.NoArgsIsHelpError as fault:
        click.echo(fault.format_message(), err=True)
        return 2
    except click.UsageError as fault:
        command = fault.ctx.command_path if fault.ctx is not None else "warmgate"
        say(f"{fault.format_message().rstrip('.')}; see `{command} --help`")
        return 2
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _mute()
        return 0
    except SystemExit:  # how click ends on a broken pipe
        _mute()
        return 0
    except OSError as fault:
        _mute()
        say(f"standard output: cannot be written ({fault.strerror or fault})")
        return 2
    return code if isinstance(code, int) else 0


def _mute() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""The command group, and how every command's faults reach the user: one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
import typer

from warmgate import __version__
from warmgate.errors import WarmgateError, one_line

app = typer.Typer(
    name="warmgate",
    help="A gating router for agent graphs: decisions that ride on the agent's own prompt prefix.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"warmgate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and exit."),
) -> None:
    """A gating router for agent graphs: decisions that ride on the agent's own prompt prefix."""


def say(line: str) -> None:
    """One line for people on stderr, safe against control characters in names."""
    sys.stderr.write(f"warmgate: {one_line(line, 2000)}\n")


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code; faults become one line on stderr, never a traceback."""
    from warmgate.cli import replay  # noqa: F401 -- registers its command

    try:
        code = app(args=list(arguments), prog_name="warmgate", standalone_mode=False)
        sys.stdout.flush()
    except WarmgateError as fault:
        say(str(fault))
        return fault.exit_code
    except click.exceptions.NoArgsIsHelpError as fault:
        typer.echo(fault.ctx.get_help())
        return 2
    except click.UsageError as fault:
        say(f"{fault.format_message().rstrip('.')}; see `{_command(fault)} --help`")
        return 2
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _command(fault: click.UsageError) -> str:
    return fault.ctx.command_path if fault.ctx is not None else "warmgate"

"""The command line ``warmgate``: a file a command, one line an error."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code. The parser is loaded here, so that importing this module costs nothing."""
    from warmgate.cli.app import run

    sys.exit(run(sys.argv[1:]))

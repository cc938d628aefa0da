"""The command line ``warmgate``: a file a command, one line an error."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code. The parser is loaded here, so that importing this module costs nothing."""
    try:
        from warmgate.cli.app import prepare, run

        prepare()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while Python was still loading it
        code = 130
    sys.exit(code)

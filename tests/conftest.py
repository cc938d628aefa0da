"""What every test process starts from."""

from __future__ import annotations

import signal

# a shell that starts tests in the background has them, and all they start, ignore Ctrl-C and hang-ups
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

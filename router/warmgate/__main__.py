"""``python -m warmgate``."""

from warmgate.cli import main

main()

"""API keys come from the environment, never from the command line, where every user of the machine could read them."""

from __future__ import annotations

import os

from warmgate.errors import OptionError


def api_key(name: str | None) -> str | None:
    """The key in the variable that ``--api-key-env`` names; ``None`` where the option was not given.

    Raises:
        OptionError: The variable is not set, or empty.
    """
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise OptionError(f"the environment variable {name} is {'not set' if value is None else 'empty'}", where="--api-key-env")
    return value

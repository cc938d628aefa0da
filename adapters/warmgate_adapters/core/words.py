"""What models read: short, and the same for the same cause, since it becomes part of the prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NAMED = 20
"""Tools named in one text."""


def unmounted(name: str, mounted: Sequence[str]) -> str:
    """For a call to a tool that is not mounted."""
    has = f"Mounted now: {_list(mounted)}." if mounted else "No tool is mounted now."
    return (
        f"{name} is not mounted, so it was not run. This call counts as asking for it to be mounted; until it is, use what you have. {has}"
    )


def unknown(name: str, mounted: Sequence[str]) -> str:
    """For a call to a tool that does not exist."""
    return f"There is no tool {name}, so nothing was run. Mounted now: {_list(mounted)}."


def denied(reason: str) -> str:
    """For a call that the policy denies."""
    return (
        f"Not run, since the policy denies it: {_sentence(reason)} Do not reach for the same end another way; tell the user what you need."
    )


def refused(message: str = "") -> str:
    """For a call that a person refused."""
    said = f" They said: {_sentence(message)}" if message.strip() else ""
    return f"Not run: a person refused this call.{said} Do not propose it again unless the user asks for it."


def unattended(reason: str) -> str:
    """For a call that needs a person where there is none."""
    return f"Not run: it needs a person's approval and nobody is there to give it. The reason: {_sentence(reason)}"


def changed(name: str) -> str:
    """For a call that is not the one that was judged."""
    return f"Not run: the call to {name} is not the one that was judged. Propose it as it is to be run."


def announcement(tools: Sequence[Mapping[str, Any]]) -> str:
    """The message that adds tools to a conversation whose list of tools stays as it is: one schema a line."""
    lines = [json.dumps(tool, ensure_ascii=False, separators=(", ", ": ")) for tool in tools]
    return "\n".join(("These tools are available from now on, besides the ones you have. Call them in the same way.", *lines))


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _sentence(said: str) -> str:
    said = " ".join(said.split())
    return said if said.endswith((".", "!", "?")) else f"{said}."

"""One agent LLM call about to happen, as the gate sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmgate.errors import OptionError

MAX_SESSION = 4096
"""Characters of a session key. Longer ones are a mistake (a whole prompt handed in as key), and keys are hashed before they are stored."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call that the model proposed and nothing has run yet.

    Attributes:
        id: The call's id in the conversation.
        name: Name of the tool.
        arguments: Its arguments: parsed, or the text the model wrote.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Turn:
    """What a decision is about.

    Attributes:
        session: Key of the agent conversation. Hashed before it is stored anywhere.
        messages: The messages of the agent's next call, in OpenAI's shape.
        tools: Every tool schema the agent could be given, in its canonical order.
        proposed_calls: Tool calls to judge before they run.
        template_kwargs: What the agent's call hands to the chat template.
        cache_salt: Cache namespace of the agent's call (per tenant); the decision carries the same.
        model: Model or LoRA of the agent's call, where it is not the settings' one.
        user_turn: Counts the user's turns of this session; a mount decided in a user turn is reused inside its tool loop. ``None``: counted
            from the messages.

    Raises:
        OptionError: The session key is empty or absurdly long.
    """

    session: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    proposed_calls: Sequence[ProposedCall] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache_salt: str | None = None
    model: str | None = None
    user_turn: int | None = None

    def __post_init__(self) -> None:
        if not self.session or len(self.session) > MAX_SESSION:
            raise OptionError(f"a session key has 1 to {MAX_SESSION} characters, not {len(self.session)}", where="Turn.session")

    @property
    def user_turns(self) -> int:
        """Which user turn this is, from 1."""
        if self.user_turn is not None:
            return self.user_turn
        return [m.get("role") for m in self.messages].count("user")  # asked every turn: a third of the time of a generator

"""What an adapter's tests bring: agents built with its framework, and what that framework can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from warmgate.gate import Gate

Capability = Literal["ask", "edit", "restart", "sync", "stream", "tamper", "announce", "cancel"]
"""What a framework can do.

``ask``: a run stops for a person and goes on with the answer. ``edit``: a person may change a call. ``restart``: it goes on in another
process. ``sync``: there is a blocking API. ``stream``: text arrives in pieces. ``tamper``: code of the user's may change a call that was
judged. ``announce``: tools can be added by a message. ``cancel``: a run can be cancelled.
"""

EVERYTHING: frozenset[Capability] = frozenset(("ask", "edit", "restart", "sync", "stream", "tamper", "announce", "cancel"))


@dataclass(frozen=True, slots=True)
class Agent:
    """What an agent is built from.

    Attributes:
        gate: Its gate; the model is ``gate.settings.model`` on the session's worker.
        tools: Functions from named text arguments to text, with docstrings.
        session: The conversation's id: thread, group.
        store: A folder for what must outlive the process.
        on_ask: ``deny``: nobody is there to approve.
        tamper: Changes a call's arguments between its judgement and its execution, as a middleware of the user's might.
        sync: Use the framework's blocking API.
        reply_tokens: Most tokens of a reply: a model with made-up weights does not stop by itself.
    """

    gate: Gate
    tools: Sequence[Callable[..., str]]
    session: str
    store: Path
    on_ask: Literal["ask", "deny"] = "ask"
    tamper: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    sync: bool = False
    reply_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer about one call.

    Attributes:
        type: The word.
        args: Of the edited call.
    """

    type: Literal["approve", "edit", "reject"]
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Told:
    """Where a run came to rest.

    Attributes:
        results: Every tool result of the conversation, in order, as the model got it.
        asked: Calls that wait for a person: tool and arguments.
        final: The model's last text; ``None`` where a person is waited for.
        pieces: The text as it was streamed.
    """

    results: Sequence[str]
    asked: Sequence[tuple[str, Mapping[str, Any]]] = ()
    final: str | None = None
    pieces: Sequence[str] = ()


class Conversation(ABC):
    """One conversation with an agent."""

    @abstractmethod
    async def say(self, text: str, *, stream: bool = False) -> Told:
        """Say something, and run until the agent answers or a person is asked."""

    async def answer(self, answers: Sequence[Answer]) -> Told:
        """Answer all calls that wait, in their order, and run on."""
        raise NotImplementedError

    async def close(self) -> None:  # noqa: B027 -- most have nothing to close
        """Close connections."""


class Driver(ABC):
    """Builds agents.

    Attributes:
        capabilities: What the framework can do.
        whyever: Capability it lacks → why, as it is to be read in a skipped test.
    """

    capabilities: ClassVar[frozenset[Capability]] = EVERYTHING
    whyever: ClassVar[Mapping[Capability, str]] = {}

    @abstractmethod
    async def open(self, agent: Agent) -> Conversation:
        """An agent in its conversation; one that was stored before goes on."""

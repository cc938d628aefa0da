"""Conversations of agents, the same ones on every machine: prose, schemas, tool calls and tool results from the rig's seeded corpus."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.engine.rig import tiny_models
from tests.engine.rig.corpus import training_text

Message = dict[str, Any]

TOOL_NAMES = ("read", "write", "run", "search", "list", "fetch", "test", "plan")


@cache
def documents() -> tuple[str, ...]:
    """Pieces of text of about 80 tokens."""
    return tuple(training_text(1800))


@cache
def counter() -> Callable[[str], int]:
    """Counts tokens as the served model does."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_models.build("qwen3") / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def prose(draw: random.Random, tokens: int) -> str:
    """Text of at least ``tokens`` tokens, and at most a document more."""
    text = ""
    while (missing := tokens - counter()(text)) > 0:
        text += "\n".join(draw.choice(documents()) for _ in range(max(1, missing // 120))) + "\n"
    return text


def tools(draw: random.Random, names: tuple[str, ...] = TOOL_NAMES) -> list[Message]:
    """Schemas of about 120 tokens each."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": prose(draw, 40).strip(),
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"type": "string", "description": prose(draw, 20).strip()}, "limit": {"type": "integer"}},
                    "required": ["path"],
                },
            },
        }
        for name in names
    ]


@dataclass
class Talk:
    """One session.

    Attributes:
        name: Session key.
        tools: Schemas, in the order sent.
        start: System prompt and first user message.
        news: What each later turn adds before its call: the agent's last answer, and a tool's result or the user's next message.
    """

    name: str
    tools: list[Message]
    start: list[Message]
    news: list[list[Message]] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return 1 + len(self.news)

    def at(self, turn: int) -> list[Message]:
        """The messages of the agent's call of a turn, from 0."""
        return [*self.start, *(message for news in self.news[:turn] for message in news)]


def talk(name: str, *, system: str, catalogue: list[Message], turns: int, first: int, each: int) -> Talk:
    """A session whose first user message has about ``first`` tokens and each of whose turns adds about ``each``.

    Every third turn is the user's, the others are a tool's result inside a tool loop.
    """
    draw = random.Random(name)
    made = Talk(name, catalogue, [{"role": "system", "content": system}, {"role": "user", "content": f"{name}: {prose(draw, first)}"}])
    for number in range(1, turns):
        if number % 3 == 0:
            answer: list[Message] = [{"role": "assistant", "content": prose(draw, each // 3).strip()}]
            made.news.append([*answer, {"role": "user", "content": prose(draw, each - each // 3)}])
        else:
            call = {"name": draw.choice(TOOL_NAMES), "arguments": f'{{"path": "src/part_{draw.randrange(99)}.py"}}'}
            asks: Message = {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}]}
            made.news.append([asks, {"role": "tool", "tool_call_id": f"c{number}", "content": prose(draw, each)}])
    return made

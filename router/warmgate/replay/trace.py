"""What every reader yields: one :class:`Call` per LLM request of a recorded trace.

A call carries its prompt in the richest form its format records: block hashes, text, or nothing at all (provider usage alone).
Counts are tokens, times are seconds. A field that the format does not record stays ``None``: readers never guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Message: TypeAlias = Mapping[str, Any]
"""A chat message in OpenAI's shape: ``role``, ``content`` (text or parts), ``tool_calls``, ``tool_call_id``, ``name``."""

MAX_TOKENS = 1 << 34
"""A token count above this (17 billion in one request) is a broken record, not a prompt."""

MAX_QUESTIONS = 1024
"""Gate questions asked before one call; more are a broken record, or an option out of range."""

MAX_QUESTION_TOKENS = 1 << 20
"""Tokens of one question as an option, and of all questions before a call as a trace records them."""


@dataclass(slots=True)
class Usage:
    """What the provider or engine itself reported for one call.

    Attributes:
        prompt_tokens: All tokens of the prompt, cached ones included.
        cached_tokens: Tokens of the prompt that came from a prefix cache.
        output_tokens: Generated tokens.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(slots=True)
class BlockPrompt:
    """A prompt known by the hashes of its blocks alone.

    Attributes:
        block_size: Tokens per block.
        hashes: One id per block from the front of the prompt. An id names the block *and* everything before it, as prefix
            caches hash. A last, partial block may have an id too (Mooncake) or not (WEKA).
        tokens: Tokens of the whole prompt.
    """

    block_size: int
    hashes: Sequence[int]
    tokens: int


@dataclass(slots=True)
class TextPrompt:
    """A prompt known by its text, in the shape of an OpenAI chat request.

    Attributes:
        messages: The conversation so far, without the answer. Readers that grow one conversation share the message objects
            between calls, so that each is rendered and tokenised once.
        tools: Tool schemas in the order sent.
        template_kwargs: What the request handed to the chat template (``enable_thinking`` …).
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Stored:
    """A prompt that was sent to an engine and is no call of an agent: a gate's read. Its blocks are in the cache from then on.

    Attributes:
        model: Model name.
        namespace: As :attr:`Call.namespace`.
        prompt: Its blocks.
        worker: Worker that served it, where recorded.
    """

    model: str
    namespace: str
    prompt: BlockPrompt
    worker: str | None = None


@dataclass(slots=True)
class Call:
    """One LLM request of a recorded trace.

    Attributes:
        session: Key of the agent conversation (a sub-agent is a session of its own).
        model: Model name, or ``""`` where the format has none.
        prompt: The prompt, or ``None`` where only usage was recorded.
        usage: What the provider reported.
        namespace: What else separates caches beside the model (LoRA name, cache salt), as one text.
        response: The assistant message that answered, in OpenAI's shape, where recorded.
        started: When the request was sent. Seconds on the trace's own clock.
        ended: When the answer was complete. Same clock.
        worker: Worker that served it, where recorded.
        line: Line (or element) of the file it came from, from 1.
        questions: Gate questions asked before this call, where the trace records gates.
        question_tokens: Tokens of these questions together.
        stored: What was stored since the call before it in the file, in order, where the trace records gates.
        shared: Shared tokens as whoever recorded it knew them: they may have heard of sequences that the trace does not hold.
        survived: Predicted cached tokens, where none were reported and the recorder predicted some.
        cause: Why the rest of the reusable tokens was not cached, as the recorder knew.
    """

    session: str
    model: str
    prompt: BlockPrompt | TextPrompt | None
    usage: Usage = field(default_factory=Usage)
    namespace: str = ""
    response: Message | None = None
    started: float | None = None
    ended: float | None = None
    worker: str | None = None
    line: int | None = None
    questions: int | None = None
    question_tokens: int | None = None
    stored: Sequence[Stored] = ()
    shared: int | None = None
    survived: int | None = None
    cause: str | None = None

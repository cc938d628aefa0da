"""What an examination learns: facts for programs, and what its probes brought back."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from warmgate.answers import Answers
from warmgate.engines.http import Reply


class Facts(msgspec.Struct, kw_only=True):
    """What was learnt, for programs. None: not known.

    Attributes:
        server: ``vllm``, ``sglang``, ``llamacpp``, or ``other`` for any that lists models; ``none`` for no model server.
        version: As the server gives it.
        standin: Whether it says that it is a stand-in.
        model: The model that was asked.
        max_model_len: Longest prompt and reply, in tokens.
        style: How it is read, a name of :mod:`warmgate.doctor.styles`.
        gateway: Whether a gateway answers in a worker's place.
        key_demanded: Whether /v1 asks for an API key.
        prefix_caching: Whether the prefix cache is on, as the server states it.
        block_size: Tokens in a cache block, as the server states it.
        hit_granularity: Tokens that hits are a multiple of, as measured.
        capacity_tokens: Tokens one engine's cache holds.
        cache_dtype: As the server states it; ``auto`` is the model's own.
        engines: Engines (data-parallel ranks) behind the address.
        recurrent: Whether the server states that layers keep recurrent state.
        window: Sliding window in tokens, where every layer has one.
        block_size_given: Whether ``--block-size`` was given on the server's command line.
        retention_interval: As the server states it, in tokens: 0 keeps states at the ends of prompts alone, -1 keeps all.
        cached_tokens_reported: Whether ``usage`` carries cached tokens.
        reads_use_cache: Whether decisions look into the prefix cache.
        shorter_prefix: When a prompt that shares a proper prefix of an earlier one finds it: ``first`` request, ``second`` one,
            ``planted`` (only a prefix sent on its own), ``never``.
        request_id: How X-Request-Id comes back: ``header``, ``body`` (in the decision's id), ``lost``.
        label_mass: Question type → share of the probability that fell on the labels.
        hop_s: Shortest round trip of a request that computes nothing, in seconds.
        decision_s: Seconds of the probe decision.
    """

    server: str | None = None
    version: str | None = None
    standin: bool = False
    model: str | None = None
    max_model_len: int | None = None
    style: str | None = None
    gateway: bool | None = None
    key_demanded: bool | None = None
    prefix_caching: bool | None = None
    block_size: int | None = None
    hit_granularity: int | None = None
    capacity_tokens: int | None = None
    cache_dtype: str | None = None
    engines: int | None = None
    recurrent: bool | None = None
    window: int | None = None
    block_size_given: bool | None = None
    retention_interval: int | None = None
    cached_tokens_reported: bool | None = None
    reads_use_cache: bool | None = None
    shorter_prefix: str | None = None
    request_id: str | None = None
    label_mass: dict[str, float] | None = None
    hop_s: float | None = None
    decision_s: float | None = None


@dataclass(slots=True)
class Tally:
    """What the examination cost the endpoint."""

    requests: int = 0
    tokens: int = 0
    """Prompt and output tokens, as the server's ``usage`` counts them."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The probe decision as it came back."""

    request_id: str
    """The X-Request-Id that was sent."""
    answers: Answers
    reply: Reply


@dataclass(frozen=True, slots=True)
class Sent:
    """One prompt of known length, and what the cache knew of it.

    Attributes:
        tokens: Its length.
        cached: Tokens served from the prefix cache; None where neither usage nor counters tell.
        basis: ``usage`` or ``counters``.
    """

    tokens: int
    cached: int | None
    basis: str


@dataclass(slots=True)
class Reuse:
    """The prompts of :mod:`warmgate.doctor.trial`; None where one was not sent."""

    why_not: str | None = None
    """Why the experiment was not made, or broke off."""
    details: bool | None = None
    """Whether ``usage`` carried cached tokens."""
    shared: int = 0
    """Length of the prefix that the shorter prompts share with the first."""
    unit: str = "tokens"
    """What ``shared`` counts: words where the server takes no token ids."""
    repeat: Sent | None = None
    """The first prompt again, unchanged."""
    again: Sent | None = None
    """The first prompt a third time, where the second found nothing."""
    first: Sent | None = None
    """Another prompt that shares a proper prefix with it."""
    second: Sent | None = None
    """A third that shares the same prefix."""
    planted: Sent | None = None
    """A prompt whose prefix was sent on its own before."""

"""The result of a replay, and its JSON form ``warmgate.replay/1``.

Field names are a contract. Counts are tokens unless the name says otherwise; ratios lie between 0 and 1 except
``compute_ratio``; ``None`` means that the trace cannot know.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from warmgate.errors import undecoded
from warmgate.foreign import items, mapping

Basis = Literal["measured", "predicted"]
Tokenizer = Literal["exact", "scaled", "none"]

SCHEMA = "warmgate.replay/1"


class Outside(msgspec.Struct):
    """Tokens that no cache could have served, shown apart from losses.

    Attributes:
        divergence: Tokens of the session's previous prompt that this prompt no longer extends.
        namespace_change: Tokens shared with a sequence of another namespace (model, LoRA, salt) only.
        rounding: L − R: shared tokens below the hit granularity, and the last token, which is always computed.
    """

    divergence: int = 0
    namespace_change: int = 0
    rounding: int = 0


class Totals(msgspec.Struct):
    """Sums over calls. ``basis`` names, per field, whether it was measured or predicted."""

    calls: int = 0
    prompt_tokens: int = 0
    reusable_tokens: int | None = None
    survived_tokens: int | None = None
    survival: float | None = None
    hit_rate: float | None = None
    intra_call_reuse: int = 0
    surplus_tokens: int = 0
    lost_tokens: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    outside: Outside = msgspec.field(default_factory=Outside)
    reported_cached_tokens: int | None = None
    basis: dict[str, Basis] = msgspec.field(default_factory=dict[str, Basis])


class TraceResult(msgspec.Struct):
    """One trace file. ``notes`` are sentences for people: what was skipped, estimated or could not be known."""

    path: str
    format: str
    sessions: int
    calls: int
    prompt_tokens: int
    skipped_lines: int
    totals: Totals
    block_size: int | None = None
    tokenizer: Tokenizer = "none"
    notes: list[str] = msgspec.field(default_factory=list[str])


class TaxMs(msgspec.Struct):
    """Milliseconds the gate adds, its two parts kept apart. A part without its rate is ``None``."""

    hop: float | None
    prefill: float | None


class Scenario(msgspec.Struct):
    """One way to gate the recorded calls, priced on the same trace.

    Attributes:
        name: ``none``, ``separate``, ``json`` or ``aligned``.
        route: ``sticky``, ``random`` or ``round_robin``.
        gate: ``none``, ``shared`` (the agent's own workers) or ``sidecar`` (a pool of its own).
        computed_tokens: Tokens the engines computed for prompts: agent calls and gate reads together.
        floor_tokens: The agent's tokens that no earlier sequence held, block rounding included, plus each question's own tokens.
        compute_ratio: computed / floor.
        survival: ΣS/ΣR of the agent's own calls in this scenario.
        tax_tokens: computed − computed of ``none`` on the same route and cache.
        tax_ms: With ``--prefill-rate`` or ``--hop-ms``.
        tax_money: With ``--price-per-mtok``, in its currency.
        gate_tokens: The part of ``computed_tokens`` that gate reads computed.
        reusable_tokens: ΣR of the agent's own calls in this scenario; reads that went before them count as stored.
        survived_tokens: ΣS of the same.
    """

    name: str
    route: str
    gate: str
    computed_tokens: int
    floor_tokens: int
    compute_ratio: float | None
    survival: float | None
    tax_tokens: int
    tax_ms: TaxMs | None = None
    tax_money: float | None = None
    gate_tokens: int = 0
    reusable_tokens: int = 0
    survived_tokens: int = 0


class DivergedAt(msgspec.Struct):
    """Where a prompt parts from the session's previous one. ``message`` is an index from 0 (None inside tools or unknown)."""

    message: int | None
    field: str | None
    token: int | None


class CallRow(msgspec.Struct):
    """One call. ``lost`` is R − S in tokens, ``cause`` its one cause, ``why`` a sentence for people about a divergence.

    Attributes:
        diverged_tokens: Tokens of the session's previous prompt given up by a divergence; their sum is ``outside.divergence``.
        trace: Index into ``traces``.
    """

    session: str
    index: int
    model: str
    prompt_tokens: int | None
    reusable: int | None
    survived: int | None
    basis: Basis | None
    lost: int
    cause: str | None
    diverged_at: DivergedAt | None
    why: str | None
    trace: int = 0
    diverged_tokens: int = 0


class Refusal(msgspec.Struct):
    """A named trace that could not be read, with the line a user sees."""

    path: str
    reason: str


class Replay(msgspec.Struct):
    """The whole result."""

    schema: str
    block_size: int | None
    tokenizer: Tokenizer
    traces: list[TraceResult]
    totals: Totals
    scenarios: list[Scenario]
    calls: list[CallRow]
    options: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """What the figures rest on: workers, route, questions, question_tokens, gate_model, kv_tokens, rates."""
    refused: list[Refusal] = msgspec.field(default_factory=list[Refusal])
    notes: list[str] = msgspec.field(default_factory=list[str])

    def to_json(self) -> bytes:
        r"""UTF-8 JSON of this result, newline at the end. Bytes of a file name that are no UTF-8 are spelt ``\xff``."""
        try:
            return msgspec.json.encode(self) + b"\n"
        except UnicodeEncodeError:
            return msgspec.json.encode(_encodable(msgspec.to_builtins(self))) + b"\n"


def _encodable(value: Any) -> Any:
    """The same value without halves of surrogate pairs, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return value if value.isascii() else "".join(undecoded(c) or ("\ufffd" if "\ud800" <= c <= "\udfff" else c) for c in value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in mapping(value).items()}
    return [_encodable(one) for one in items(value)] if isinstance(value, list) else value

"""Cached tokens as the answer to an agent's call reports them, whichever client or framework hands it over.

Five shapes: OpenAI chat (``prompt_tokens_details``), OpenAI Responses and the Agents SDK (``input_tokens_details``), Anthropic (cached
tokens *beside* the input), LangChain (``usage_metadata``). Objects or mappings; the usage itself, or the answer that holds it. Nothing
raises: what cannot be read is ``None``, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from warmgate.foreign import items

Shape: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "langchain", "agents_sdk", "none"]

MAX_TOKENS = 1 << 34
"""A count above this is a broken record, not a prompt."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What one answer reports. Counts are tokens; ``None`` where it does not say.

    Attributes:
        prompt_tokens: The whole prompt, cached tokens included.
        cached_tokens: Those that came from the prefix cache.
        created_tokens: Those newly written to it, where the provider says.
        output_tokens: Generated tokens.
        requests: Engine requests these counts sum up; above 1 they tell nothing about a single prompt.
        shape: Whose fields they were.
        problem: Why counts are missing or were refused; one clause, or ``None``.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    created_tokens: int | None = None
    output_tokens: int | None = None
    requests: int = 1
    shape: Shape = "none"
    problem: str | None = None

    @property
    def measured(self) -> bool:
        """Whether this says how many tokens of one prompt were cached."""
        return self.cached_tokens is not None and self.prompt_tokens is not None and self.requests == 1


def reported(answer: Any) -> Reported:
    """Usage of an answer.

    Args:
        answer: A usage object or mapping of the shapes above, or what holds one: a chat completion, a Response, an Anthropic message, an
            ``AIMessage``, an Agents SDK ``ModelResponse``, or the last of several (a ``RunResult``).
    """
    usage = _usage_of(answer)
    if usage is None:
        return Reported(problem="the answer carries no usage (streams need stream_options.include_usage)")
    for shape, read in (("openai_chat", _chat), ("langchain", _langchain), ("anthropic", _anthropic), ("openai_responses", _responses)):
        found = read(usage)
        if found is not None:
            return _checked(found, "agents_sdk" if shape == "openai_responses" and _get(usage, "requests") is not None else shape)
    return Reported(problem="the usage names no prompt tokens")


_Counts: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""Prompt, cached, created, output, requests, unchecked."""


def _chat(usage: Any) -> _Counts | None:
    prompt = _get(usage, "prompt_tokens")
    if prompt is None:
        return None
    details = _get(usage, "prompt_tokens_details")
    cached = _get(details, "cached_tokens")
    if cached is None:
        cached = _get(usage, "cache_read_input_tokens")  # LiteLLM writes Anthropic's name into inclusive counts
    if cached is None:
        cached = _get(usage, "prompt_cache_hit_tokens")  # DeepSeek
    created = _get(details, "created_cache_tokens")
    return prompt, cached, created, _get(usage, "completion_tokens"), None


def _langchain(usage: Any) -> _Counts | None:
    details = _get(usage, "input_token_details")
    prompt = _get(usage, "input_tokens")
    if prompt is None or (details is None and (_get(usage, "total_tokens") is None or _get(usage, "input_tokens_details") is not None)):
        return None
    if details is None and _get(usage, "requests") is not None:
        return None
    return prompt, _get(details, "cache_read"), _get(details, "cache_creation"), _get(usage, "output_tokens"), None


def _anthropic(usage: Any) -> _Counts | None:
    read, created = _get(usage, "cache_read_input_tokens"), _get(usage, "cache_creation_input_tokens")
    fresh = _get(usage, "input_tokens")
    if fresh is None or (read is None and created is None):
        return None
    parts = [part for part in (fresh, read, created) if part is not None]
    return (sum(parts) if all(_whole(p) for p in parts) else fresh), read, created, _get(usage, "output_tokens"), None


def _responses(usage: Any) -> _Counts | None:
    prompt = _get(usage, "input_tokens")
    if prompt is None:
        return None
    details = _get(usage, "input_tokens_details")
    cached = _get(details, "cached_tokens")
    return prompt, cached, _get(details, "cache_write_tokens"), _get(usage, "output_tokens"), _get(usage, "requests")


def _checked(counts: _Counts, shape: Any) -> Reported:
    prompt, cached, created, output, requests = counts
    for name, value in (("prompt", prompt), ("cached", cached), ("created", created), ("output", output), ("requests", requests)):
        if value is not None and not _whole(value):
            return Reported(shape=shape, problem=f"its count of {name} tokens is no whole number from 0")
    if not prompt:
        return Reported(output_tokens=output, shape=shape, problem="its prompt has no tokens (a stream without usage reports 0)")
    if cached is not None and cached > prompt:
        return Reported(shape=shape, problem="more tokens cached than sent")
    problem = None if cached is not None else "cached tokens are not reported (vLLM: --enable-prompt-tokens-details)"
    return Reported(prompt, cached, created, output, 1 if requests is None else requests, shape, problem)


def _usage_of(answer: Any) -> Any:
    """The usage within an answer, at most three levels down."""
    for _ in range(3):
        if answer is None:
            return None
        if any(_get(answer, name) is not None for name in ("prompt_tokens", "input_tokens")):
            return answer
        held = _get(answer, "usage_metadata")  # LangChain; on the message itself, so before the provider's own counts
        if held is None:
            held = _get(answer, "usage")
        if held is None:
            held = _get(_get(answer, "response_metadata"), "token_usage")
        if held is None:
            held = _last(_get(answer, "raw_responses"))  # Agents SDK: one per model call of the run
        answer = held
    return None


def _last(values: Any) -> Any:
    listed: list[Any] = list(items(values))
    return listed[-1] if listed else None


def _get(value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 -- a foreign property may raise anything; an answer must never break an agent
        return None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS

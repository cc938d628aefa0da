"""Token counts of one call under any of the names that providers, frameworks and trace stores give them.

Two families exist. In the inclusive one the prompt's count holds the cached tokens (OpenAI, LangChain's ``usage_metadata``,
Gemini, the OTel GenAI conventions, OpenInference). In the exclusive one it leaves them out and the cached and newly cached ones stand
beside it (Anthropic's own ``usage``, and Langfuse's ``usageDetails``, which split every count into parts).
:class:`~warmgate.replay.trace.Usage` is inclusive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warmgate.replay.readers._fields import Unusable, count, dig, mapping
from warmgate.replay.trace import MAX_TOKENS, Usage

_PROMPT = (
    ("prompt_tokens",),
    ("input_tokens",),
    ("prompt_token_count",),
    ("promptTokenCount",),
    ("promptTokens",),
    ("inputTokens",),
)
_OUTPUT = (
    ("completion_tokens",),
    ("output_tokens",),
    ("candidates_token_count",),
    ("candidatesTokenCount",),
    ("completionTokens",),
    ("outputTokens",),
)
_CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_token_details", "cache_read"),  # LangSmith's run
    ("input_tokens_details", "cached_tokens"),
    ("input_token_details", "cache_read"),
    ("prompt_cache_hit_tokens",),  # DeepSeek
    ("cached_input_tokens",),
    ("cachedInputTokens",),
    ("cached_content_token_count",),
    ("cachedContentTokenCount",),
    ("cached_tokens",),
)
_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"


def usage(value: Any) -> Usage:
    """Counts in a provider's or framework's ``usage`` object.

    Raises:
        Unusable: A count is no whole number, negative or absurd, or more tokens were cached than sent.
    """
    body = mapping(value)
    prompt = _named(body, _PROMPT)
    output = _named(body, _OUTPUT)
    cached = _named(body, _CACHED)
    written = count(dig(body, "input_token_details", "cache_creation"), "cache_creation")
    if "input_tokens" in body and body.get("prompt_tokens") is None and (_READ in body or _WRITTEN in body):
        read = count(body.get(_READ), _READ)
        new = count(body.get(_WRITTEN), _WRITTEN)
        return made(None if prompt is None else prompt + (read or 0) + (new or 0), read, output)
    if cached is None:
        cached = count(body.get(_READ), _READ)  # LiteLLM writes Anthropic's name into OpenAI's inclusive counts
    if "input_token_details" in body:  # before langchain-anthropic 0.2 the cached tokens were left out
        prompt = _included(prompt, cached, written)
    return made(prompt, cached, output)


def langfuse_usage(value: Any) -> Usage:
    """Counts in Langfuse's ``usageDetails``, an open mapping of names to counts.

    ``input`` leaves the parts named beside it out, as Langfuse's price rules need it, except where a framework's own counts came in
    unsplit: ``total`` tells which.

    Raises:
        Unusable: See :func:`usage`.
    """
    body = mapping(value)
    if body.get("input") is None and any(body.get(path[0]) is not None for path in _PROMPT):
        return usage(body)
    sent, output, total = (count(body.get(name), name) for name in ("input", "output", "total"))
    read = write = None
    parts = outputs = 0
    for name, number in body.items():
        if name in ("input", "output", "total") or number is None:
            continue
        tokens = count(number, name)
        assert tokens is not None
        if name.startswith(("output", "completion")):
            outputs += tokens
        elif "creation" in name or "write" in name:
            write = (write or 0) + tokens
        elif "cache" in name:
            read = tokens if read is None else max(read, tokens)
        elif name.startswith("input"):
            parts += tokens
    if sent is None:
        return made(None, read, output)
    whole = sent + (read or 0) + (write or 0) + parts
    if _READ not in body and _WRITTEN not in body:  # Anthropic's own names always stand beside ``input``
        if total is not None and output is not None:
            said = sent if total == sent + output else total - output - outputs
            whole = said if sent <= said <= whole else whole
        elif any(name.startswith("prompt_details") for name in body):  # OpenInference's, always inside ``input``
            whole = sent
    if total is not None and output is not None and total >= whole + output:
        output = total - whole  # with the parts that were split off it
    return made(_included(whole, read, write), read, output)


def attribute_usage(attributes: dict[str, Any]) -> Usage:
    """Counts in span attributes: OTel GenAI (current and deprecated names), OpenInference, the AI SDK.

    Raises:
        Unusable: See :func:`usage`.
    """
    a = attributes
    prompt = _either(
        a,
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    )
    output = _either(
        a,
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
    )
    cached = _either(
        a,
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.input_tokens.cached",
        "gen_ai.usage.cached_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "gen_ai.usage.details.cache_read_input_tokens",
        "gen_ai.usage.details.cached_tokens",
        "llm.token_count.prompt_details.cache_read",
        "llm.usage.cache_read_input_tokens",
        "ai.usage.cachedInputTokens",
    )
    written = _either(
        a,
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_input_tokens",
        "llm.token_count.prompt_details.cache_write",
        "llm.usage.cache_creation_input_tokens",
    )
    return made(_included(prompt, cached, written), cached, output)


def made(prompt: int | None, cached: int | None, output: int | None) -> Usage:
    """A usage of counts already checked one by one. A prompt of 0 tokens was not counted (a stream without usage reports 0).

    Raises:
        Unusable: More tokens were cached than sent.
    """
    if not prompt:
        if cached:
            raise Unusable(f"{cached} cached tokens of a prompt without tokens")
        return Usage(None, None, output or None)
    if prompt > MAX_TOKENS:
        raise Unusable("its prompt's tokens are absurdly many")
    if cached is not None and cached > prompt:
        raise Unusable(f"{cached} cached tokens of a prompt of {prompt}")
    return Usage(prompt, cached, output)


def filled(first: Usage, second: Usage) -> Usage:
    """``first``, with what it lacks from another record of the same call, where the two do not contradict each other."""
    prompt = second.prompt_tokens if first.prompt_tokens is None else first.prompt_tokens
    cached = first.cached_tokens
    if cached is None and prompt == second.prompt_tokens:
        cached = second.cached_tokens
    output = second.output_tokens if first.output_tokens is None else first.output_tokens
    return Usage(prompt, cached, output)


def _included(prompt: int | None, cached: int | None, written: int | None) -> int | None:
    """A prompt's count with its cached tokens, where it cannot hold them since there are more of them than of it."""
    return prompt + cached + (written or 0) if prompt and cached is not None and cached > prompt else prompt


def _named(body: dict[str, Any], paths: Iterable[tuple[str, ...]]) -> int | None:
    for path in paths:
        if (value := dig(body, *path)) is not None:
            return count(value, ".".join(path))
    return None


def _either(attributes: dict[str, Any], *names: str) -> int | None:
    for name in names:
        if attributes.get(name) is not None:
            return count(attributes[name], name)
    return None

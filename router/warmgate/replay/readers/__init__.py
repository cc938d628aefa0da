"""Readers of recorded traces, one module a format."""

from __future__ import annotations

from functools import cache

from warmgate.replay.readers._base import Reader


@cache
def readers() -> tuple[Reader, ...]:
    """Every reader, in the order in which they are asked whether a trace is theirs: the most telling format first."""
    from warmgate.replay.readers import (
        claude_code,
        codex,
        langfuse,
        langgraph,
        langsmith,
        mooncake,
        openai_agents,
        openai_chat,
        openhands,
        otel,
        sweagent,
        taubench,
        warmgate_decisions,
        warmgate_trace,
        weka,
    )

    return (
        warmgate_trace.READER,
        weka.READER,
        mooncake.READER,
        claude_code.READER,
        codex.READER,
        langfuse.READER,
        warmgate_decisions.READER,
        langsmith.READER,
        otel.READER,
        openai_agents.READER,
        langgraph.READER,
        sweagent.READER,
        taubench.READER,
        openhands.READER,
        openai_chat.READER,
    )

"""How questions get answered. One engine a module; names are loaded when first used, since the openai client takes half a second.

=================  ===========================================================  ==========================================
engine             asks                                                         for
=================  ===========================================================  ==========================================
``systemone``      ``POST /v1/systemone``                                       models with a read strategy
``decisions``      ``POST /v1/decisions``                                       OpenAI's shape, vLLM 0.33's, SGLang's own
``prefix_read``    ``POST /v1/completions``, one token with label logprobs      any model on vLLM, on the agent's prompt
``round_trip``     ``POST /v1/chat/completions``, a JSON schema                 a small local model, any server
``chain``          the others, in order, under one deadline                     the gate
=================  ===========================================================  ==========================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmgate.engines._base import AgentPrompt, AskRequest, Engine
    from warmgate.engines.breaker import Breakers
    from warmgate.engines.chain import Chain, ChainResult, Step
    from warmgate.engines.deadline import Deadline
    from warmgate.engines.decisions import Decisions
    from warmgate.engines.http import Http
    from warmgate.engines.portal import Portal, get_portal
    from warmgate.engines.prefix_read import PrefixRead
    from warmgate.engines.retry import RetryPolicy
    from warmgate.engines.round_trip import RoundTrip
    from warmgate.engines.systemone import SystemOne

_HOME = {
    "AgentPrompt": "_base",
    "AskRequest": "_base",
    "Breakers": "breaker",
    "Chain": "chain",
    "ChainResult": "chain",
    "Deadline": "deadline",
    "Decisions": "decisions",
    "Engine": "_base",
    "Http": "http",
    "Portal": "portal",
    "PrefixRead": "prefix_read",
    "RetryPolicy": "retry",
    "RoundTrip": "round_trip",
    "Step": "chain",
    "SystemOne": "systemone",
    "get_portal": "portal",
}
__all__ = [
    "AgentPrompt",
    "AskRequest",
    "Breakers",
    "Chain",
    "ChainResult",
    "Deadline",
    "Decisions",
    "Engine",
    "Http",
    "Portal",
    "PrefixRead",
    "RetryPolicy",
    "RoundTrip",
    "Step",
    "SystemOne",
    "get_portal",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

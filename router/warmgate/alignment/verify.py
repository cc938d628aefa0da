"""Does a decision's prompt begin with the agent's, by the server's own token ids? Asked once for each kind of turn of a (model, template).

Equal text is no proof: a tokenizer may merge across the seam, the server may render the agent's request otherwise than the template at hand
does, and a text made from ids may not come back to them. So the server tokenizes both requests as it would serve them, and the ids are
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from warmgate.alignment.plan import State, decision_messages
from warmgate.alignment.remote import Ids, Remote
from warmgate.engines.together import together
from warmgate.errors import EngineError, RouteAbsent

BLOCK = 16
"""Tokens of a cache block where the worker does not say: the usual one, and the strictest of those in use."""

QUESTION = "Question: Which?\nA: one\nB: two\nAnswer with the letter of one option only."
"""Stands for the question: what follows the state in the prompt of a choice."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        outcome: ``same``: the ids agree up to the agent's last whole block. ``differs``: they do not. ``skipped``: nobody could tell.
        shared: Leading tokens in common.
        agent_tokens: Tokens of the agent's prompt without its generation prompt.
        text_agrees: Whether the agent's text tokenizes to the agent's ids: engines that extend the text may do so.
        reason: Why, where it is not ``same``.
        for_good: Whether asking again cannot change a ``skipped``.
    """

    outcome: Literal["same", "differs", "skipped"]
    shared: int = 0
    agent_tokens: int = 0
    text_agrees: bool | None = None
    reason: str | None = None
    for_good: bool = True


def kind_of_turn(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], template_kwargs: Mapping[str, Any]
) -> tuple[object, ...]:
    """What templates treat differently: each kind is checked once."""
    roles = {message.get("role") for message in messages}
    calls = any(message.get("tool_calls") for message in messages)
    return bool(tools), "system" in roles, "tool" in roles, calls, repr(sorted(template_kwargs.items(), key=lambda item: item[0]))


async def verify(
    remote: Remote,
    state: State,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    template_kwargs: Mapping[str, Any],
    gate_kwargs: Mapping[str, Any],
    *,
    block: int | None = None,
) -> Checked:
    """Compare the decision's ids with the agent's.

    Args:
        remote: The server that will serve both.
        state: The planned state; one that is not aligned has only its text checked.
        messages: The agent's messages, as the client would send them.
        tools: Its tools.
        template_kwargs: Its template arguments.
        gate_kwargs: The decision's.
        block: Tokens of a cache block.
    """
    size = block or BLOCK
    work = [remote.chat_ids(messages, tools, template_kwargs, add_generation_prompt=False), remote.ids(state.text)]
    if state.kind == "aligned":
        decision = decision_messages(state.instructions, state.state, QUESTION)
        work.append(remote.chat_ids(decision, None, gate_kwargs))
    try:
        agent, own, *rest = await together(work)
    except RouteAbsent:
        return Checked("skipped", reason="this server has no /tokenize, so the alignment was not checked by token ids")
    except EngineError as fault:
        return Checked("skipped", reason=f"the alignment was not checked by token ids: {fault.what}", for_good=False)
    if not rest:
        return Checked("same", 0, len(agent), own == agent)
    shared = common(agent, rest[0])
    if shared // size >= len(agent) // size:
        return Checked("same", shared, len(agent), own == agent)
    why = f"by the server's own ids the decision shares {shared:,} of the agent's {len(agent):,} tokens, short of its last block of {size}"
    return Checked("differs", shared, len(agent), own == agent, why)


def common(a: Ids, b: Ids) -> int:
    """Length of the common prefix."""
    most = min(len(a), len(b))
    if a[:most] == b[:most]:
        return most
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)

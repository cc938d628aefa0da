"""``warmgate shell --worker``: a grey case is asked of a model, under a calibrated policy file. Without the file no model lifts an ask."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warmgate.errors import WarmgateError, one_line

if TYPE_CHECKING:
    from warmgate.answers import Answer
    from warmgate.policy import Judgement
    from warmgate_policies.shell import Facts

SECONDS = 5.0
"""For the whole question: a person waits. Later than that it is ask."""


def asked(
    text: str, cwd: str | None, facts: Facts, extra: tuple[str, ...], *, worker: str, model: str | None, calibrated: str, key: str | None
) -> Judgement:
    """The judgement of a command, by the rules and, where these leave a grey case, by the worker's model.

    Raises:
        InputError: The policy file cannot be used, or is of other rules.
        OptionError: The address of the worker is none.
    """
    from warmgate.turn import ProposedCall, Turn
    from warmgate_policies.shell import ShellPolicy

    policy = ShellPolicy(facts, extra_packs=extra, calibrated=calibrated)
    call = ProposedCall("call", "bash", {"command": text, **({"cwd": cwd} if cwd is not None else {})})
    judged = policy.judge(call, Turn("shell", []))
    if judged.verdict != "ask" or judged.question is None:
        return judged
    answer, why = _answer(judged.question, dict(judged.facts or {}), worker, model, key)
    if answer is None:
        return replace(judged, reason=f"{judged.reason} (no model was heard: {one_line(why, 160)})")
    settled = policy.settle(call, judged, answer)
    return settled if settled.verdict in ("ask", "allow") else judged


def _answer(question: Any, facts: dict[str, Any], worker: str, model: str | None, key: str | None) -> tuple[Answer | None, str]:
    """The model's answer, or why there is none."""
    from warmgate.engines import Chain, Deadline
    from warmgate.engines._base import AskRequest
    from warmgate.engines.systemone import SystemOne

    engine = SystemOne(worker, api_key=key)
    request = AskRequest(questions={"call": question}, state=facts, model=model, check_order=True)

    async def ask() -> tuple[Answer | None, str]:
        async with Chain([engine]) as chain:
            result = await chain.ask(request, deadline=Deadline(SECONDS))
        return result.answers.get("call"), result.reason or "no answer"

    try:
        return asyncio.run(ask())
    except WarmgateError as fault:
        return None, str(fault)

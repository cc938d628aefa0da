"""SWE-agent trajectories (``.traj``): every assistant message of the history answers one call, sent with the history before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import Unusable, count, dig, items, mapping, mappings, parsed, text
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers._messages import Chat, add, answer, prompt, role_of
from warmgate.replay.trace import Call, Message, TextPrompt


class SWEAgentReader:
    """Reads a trajectory document, also one of a retrying agent with several attempts."""

    name = "sweagent"
    title = "SWE-agent trajectory (.traj)"

    def recognises(self, head: Head) -> bool:
        """Whether the document is a trajectory with its history."""
        document = mapping(head.document)
        return _is_run(document) or any(map(_is_run, mappings(document.get("attempts"))))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield one call for each answer of each agent.

        Raises:
            TraceError: No message of the history is an answer.
        """
        document = mapping(source.head.document)
        attempts = [one for one in mappings(document.get("attempts")) if _is_run(one)]
        many = len(attempts) > 1
        model = _model(document)
        total = 0
        runs = attempts or [document]
        for number, run in enumerate(runs, 1):
            prefix = f"attempt-{number}/" if many else ""
            for call in _sent(run, source) or _calls(run, source):
                total += 1
                call.session, call.model = prefix + call.session, model
                yield call
        if not total:
            raise TraceError(
                "a SWE-agent trajectory whose history holds no answer of a model",
                where=source.skipped.path,
                mend="hand in a trajectory of a finished run",
            )
        if any("tool_calls" in one for run in runs for one in mappings(run.get("history"))):
            source.notes.append("SWE-agent leaves the tools it sends out of a trajectory: the prompts here are shorter by them")
        _note_stats(document, source, total)


def _is_run(document: dict[str, Any]) -> bool:
    entries = [*mappings(document.get("history")), *mappings(document.get("trajectory"))]
    return "history" in document and "trajectory" in document and any("role" in one or "action" in one for one in entries)


def _model(document: dict[str, Any]) -> str:
    return text(dig(parsed(document.get("replay_config")), "agent", "model", "name")) or ""


def _sent(run: dict[str, Any], source: Source) -> list[Call]:
    """Calls by the steps' own ``query``, the messages as sent, which SWE-agent records since version 1.1."""
    steps = mappings(run.get("trajectory"))
    if not steps or not all(isinstance(step.get("query"), list) for step in steps):
        return []
    calls: list[Call] = []
    for line, step in enumerate(steps, 1):
        try:
            found = prompt(step["query"])
            if found is None:
                source.skipped(line, "its query holds no messages")
                continue
            agent = text(mapping(next(iter(items(step["query"])), None)).get("agent")) or "main"
            calls.append(Call(agent, "", TextPrompt(found.messages), response=answer(step.get("response")), line=line))
        except Unusable as fault:
            source.skipped(line, fault.why)
    return calls


def _calls(run: dict[str, Any], source: Source) -> Iterator[Call]:
    grown: dict[str, list[Message]] = {}
    for line, entry in enumerate(items(run.get("history")), 1):
        one = mapping(entry)
        if role_of(one) is None:
            source.skipped(line, "the entry of the history is no message")
            continue
        made: list[Chat] = []
        try:
            add(made, one)
        except Unusable as fault:
            source.skipped(line, fault.why)
            continue
        agent = text(one.get("agent")) or "main"
        messages = grown.setdefault(agent, [])
        # a demonstration's answers are part of what was sent, not calls
        if role_of(one) == "assistant" and not one.get("is_demo"):
            if not messages:
                source.skipped(line, "an answer with nothing before it: its prompt is not in the history")
                continue
            yield Call(agent, "", TextPrompt(Grown(messages, len(messages))), response=made[0], line=line)
        messages.extend(made)


def _note_stats(document: dict[str, Any], source: Source, calls: int) -> None:
    stats = mapping(dig(document, "info", "model_stats"))
    try:
        sent, made = count(stats.get("tokens_sent"), "tokens_sent"), count(stats.get("api_calls"), "api_calls")
    except Unusable:
        return
    if sent:
        if made == calls:
            source.prompt_tokens = sent
        source.notes.append(
            f"its model_stats count {sent} tokens sent over {made if made is not None else 'an unknown number of'} calls "
            f"({calls} are in the history); a call's own share is not recorded, and history processors may have sent less than the history"
        )


READER = SWEAgentReader()

"""tau-bench results: a JSON list of ``{task_id, trial, traj[]}``; each assistant message of a trajectory answers one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import Unusable, items, key, mapping, mostly, records, samples
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers._messages import Chat, add, has_messages, role_of
from warmgate.replay.trace import Call, Message, TextPrompt


class TauBenchReader:
    """Reads what tau-bench's ``run.py`` writes."""

    name = "taubench"
    title = "tau-bench results (JSON)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are trajectories of tasks."""
        return mostly("task_id" in one and has_messages(one.get("traj")) for one in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield one call for each answer, a task and trial after the other.

        Raises:
            TraceError: No trajectory holds an answer.
        """
        sessions: dict[str, int] = {}
        total = 0
        for number, record in records(source):
            body = mapping(record)
            if not isinstance(body.get("traj"), list):
                source.skipped(number, "it is no trajectory of a task")
                continue
            name = f"task-{key(body.get('task_id')) or number}/trial-{key(body.get('trial')) or 0}"
            sessions[name] = times = sessions.get(name, 0) + 1
            for call in _calls(items(body["traj"]), name if times == 1 else f"{name}#{times}", number, source):
                total += 1
                yield call
        if not total:
            raise TraceError("tau-bench results without an answer of a model", where=source.skipped.path, mend="hand in a finished run")
        source.notes.append("tau-bench leaves the tools it sends out of its results: the prompts here are shorter by them")


def _calls(traj: list[Any], session: str, line: int, source: Source) -> Iterator[Call]:
    messages: list[Message] = []
    for entry in traj:
        made: list[Chat] = []
        try:
            add(made, entry)
        except Unusable as fault:
            source.skipped(line, fault.why)
            continue
        if not made:
            source.skipped(line, "an entry of the trajectory is no message")
            continue
        if role_of(mapping(entry)) == "assistant" and messages:  # an opening phrase answers nothing
            yield Call(session, "", TextPrompt(Grown(messages, len(messages))), response=made[0], line=line)
        messages.extend(made)


READER = TauBenchReader()

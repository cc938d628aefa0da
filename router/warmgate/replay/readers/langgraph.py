"""LangGraph: recorded stream chunks (``{mode, chunk}``) and checkpoints (``{config, checkpoint, …}``), both JSON Lines.

A graph's state is a list of messages, and each AI message in it answers one LLM call, whose prompt is the messages before it. The same
message turns up in many chunks and checkpoints; its id tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import (
    Unusable,
    compact,
    dig,
    first_text,
    items,
    key,
    mapping,
    mappings,
    mostly,
    records,
    samples,
    seconds,
    text,
)
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers._messages import Chat, add, role_of
from warmgate.replay.readers._spans import subgraph
from warmgate.replay.readers._usage import filled, usage
from warmgate.replay.trace import Call, Message, TextPrompt, Usage

MODES = frozenset({"values", "updates", "checkpoints", "tasks", "messages", "debug", "custom"})

Thread = tuple[str | None, str]
"""``thread_id`` (``None`` where a chunk does not say) and ``checkpoint_ns``: one conversation."""


@dataclass(slots=True)
class _State:
    """A list of messages that a thread held at one time.

    Attributes:
        line: Where it was read.
        thread: Whose it is.
        messages: As recorded.
        at: When, in seconds.
        step: Order of checkpoints of one time.
        whole: Everything the thread held; false for what one node added.
        given: The state a run began with, so that answers in it may have been handed in.
        task: The task whose input or result it is.
    """

    line: int
    thread: Thread
    messages: list[dict[str, Any]]
    at: float | None = None
    step: int = 0
    whole: bool = True
    given: bool = True
    task: str | None = None


class LangGraphReader:
    """Reads streams and checkpoints of LangGraph."""

    name = "langgraph"
    title = "LangGraph stream or checkpoints (JSON Lines)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are stream chunks or checkpoints."""
        return mostly(_mode(one) is not None or _is_checkpoint(one) for one in samples(head))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield one call for each AI message, in the order they came about.

        Raises:
            TraceError: No state holds an AI message.
        """
        states: list[_State] = []
        streamed: list[_State] = []
        for number, record in records(source):
            mode = _mode(mapping(record))
            (streamed if mode == "messages" else states).extend(_states(number, mapping(record), mode, source))
        known = {s.thread[0] for s in (*states, *streamed) if s.thread[0] is not None}
        alone = known.pop() if len(known) == 1 else "thread"
        if any(s.step for s in states):  # checkpoints are listed newest first
            states.sort(key=lambda s: (s.at or 0.0, s.step))
        calls = _Calls(source)
        for state in (*states, *streamed):  # pieces of streamed messages last: they know no prompt
            calls.take(state, (state.thread[0] or alone, state.thread[1]))
        if not calls.found:
            raise TraceError(
                "a LangGraph recording without an AI message that a model wrote: it holds no LLM call",
                where=source.skipped.path,
                mend='record with stream_mode=["values", "updates", "checkpoints"] while the model runs',
            )
        source.notes.append("LangGraph keeps messages alone: tools and any system prompt that the model's node adds are not in the prompts")
        yield from calls.found.values()


def _mode(one: dict[str, Any]) -> str | None:
    """The stream mode of a chunk, in the first or second version of the stream's format."""
    first, second = text(one.get("mode")), text(one.get("type"))
    if first in MODES and "chunk" in one:
        return first
    return second if second in MODES and "ns" in one and "data" in one else None


def _is_checkpoint(one: dict[str, Any]) -> bool:
    return isinstance(dig(one, "config", "configurable"), dict) and isinstance(one.get("checkpoint"), dict)


def _states(line: int, record: dict[str, Any], mode: str | None, source: Source) -> Iterator[_State]:
    if _is_checkpoint(record):
        checkpoint, metadata = mapping(record["checkpoint"]), mapping(record.get("metadata"))
        step = metadata.get("step")
        number = step if isinstance(step, int) and abs(step) < 1 << 40 else 1
        given = number <= 0 or metadata.get("source") == "input"
        for messages in _lists(checkpoint.get("channel_values")):
            at = seconds(checkpoint.get("ts"))
            yield _State(line, _thread(record["config"]), messages, at, number + 2 if number > -2 else 1, given=given)
        return
    if mode is None:
        source.skipped(line, "it is neither a stream chunk nor a checkpoint of LangGraph")
        return
    chunk = record.get("chunk", record.get("data"))
    if mode == "debug":
        mode = {"checkpoint": "checkpoints", "task": "tasks", "task_result": "tasks"}.get(str(dig(chunk, "type")), "custom")
        chunk = dig(chunk, "payload")
    if mode == "messages":
        yield from _streamed(line, chunk)
        return
    body = mapping(chunk)
    namespace = "|".join(filter(None, map(text, items(record.get("ns") or record.get("namespace")))))
    thread = _thread(body.get("config"))
    thread = (thread[0], thread[1] or namespace)
    at = seconds(body.get("ts"))
    if mode in ("values", "checkpoints"):
        for messages in _lists(chunk if mode == "values" else body.get("values")):
            yield _State(line, thread, messages, at)
    elif mode == "updates":
        for update in body.values():
            for messages in _added(update):
                yield _State(line, thread, messages, at, whole=False)
    elif mode == "tasks":
        task = key(body.get("id"))
        for messages in _lists(body.get("input")):
            yield _State(line, thread, messages, at, task=task)
        for messages in _added(body.get("result")):
            yield _State(line, thread, messages, at, whole=False, task=task)


def _streamed(line: int, chunk: Any) -> Iterator[_State]:
    """A message (or a piece of one) of mode ``messages``: only its token counts are of use, when no state holds it."""
    pair = items(chunk)
    message, metadata = mapping(next(iter(pair), None)), mapping(pair[1] if len(pair) > 1 else None)
    if role_of(message) == "assistant" and _body(message).get("usage_metadata"):
        thread = (key(metadata.get("thread_id")), subgraph(metadata.get("langgraph_checkpoint_ns")) or "")
        yield _State(line, thread, [message], whole=False)


def _thread(config: Any) -> Thread:
    configurable = mapping(dig(config, "configurable"))
    return key(configurable.get("thread_id")), text(configurable.get("checkpoint_ns")) or ""


def _lists(state: Any) -> Iterator[list[dict[str, Any]]]:
    """Lists of messages in a state: ``messages``, else any field that is one, else the state itself."""
    body = mapping(state)
    fields = [body["messages"]] if "messages" in body else [state, *body.values()]
    for value in fields:
        entries = mappings([value] if "messages" in body and isinstance(value, dict) else value)
        if entries and any(role_of(one) is not None for one in entries):
            yield entries


def _added(update: Any) -> Iterator[list[dict[str, Any]]]:
    """Lists of messages in what a node gave back: one update, or a list of them."""
    found = list(_lists(update))
    yield from found
    if not found:
        for one in items(update):
            yield from _lists(one)


def _body(message: dict[str, Any]) -> dict[str, Any]:
    return mapping(message.get("kwargs")) if message.get("lc") == 1 else mapping(message.get("data")) or message


@dataclass(slots=True)
class _Calls:
    """Collects a call for each AI message seen, each once."""

    source: Source
    found: dict[str, Call] = field(default_factory=dict[str, Call])
    _known: dict[Thread, list[Message]] = field(default_factory=dict[Thread, list[Message]])
    _keys: dict[Thread, list[str]] = field(default_factory=dict[Thread, list[str]])
    _inputs: dict[str, list[Message]] = field(default_factory=dict[str, list[Message]])
    _cache: dict[str, list[Chat]] = field(default_factory=dict[str, list[Chat]])
    _broken: set[str] = field(default_factory=set[str])

    def take(self, state: _State, thread: Thread) -> None:
        """Look through one state for AI messages not seen before."""
        try:
            idents = [_ident(one) for one in state.messages]
        except Unusable as fault:
            self.source.skipped(state.line, fault.why)
            return
        if state.whole:
            self._whole(state, thread, idents)
        else:
            self._part(state, thread, idents)

    def _whole(self, state: _State, thread: Thread, idents: list[str]) -> None:
        before, keys = self._known.get(thread), self._keys.get(thread, [])
        # states mostly go on from the one before: keep its list, so that prompts share it
        grown = before is not None and idents[: len(keys)] == keys
        start = len(keys) if grown else 0
        messages: list[Message] = before if grown and before is not None else []
        old = set(keys)
        side_by_side: int | None = None
        for one, ident in zip(state.messages[start:], idents[start:], strict=True):
            size = len(messages)
            if role_of(one) != "assistant" or ident in old:
                side_by_side = None
            elif before is None:
                if not state.given or _produced(one):
                    self._call(one, ident, thread, state, Grown(messages, size))
            else:
                # new answers in a row come from nodes that ran at once: none of them saw the others
                side_by_side = size if side_by_side is None else side_by_side
                self._call(one, ident, thread, state, Grown(messages, side_by_side))
            messages.extend(self._chat(one, ident))
        if state.task is not None:
            self._inputs[state.task] = messages
        if state.task is None or grown or before is None:
            self._known[thread], self._keys[thread] = messages, idents

    def _part(self, state: _State, thread: Thread, idents: list[str]) -> None:
        """What a node added: its first answer saw the node's input, or else the thread; a later one also what came before it here."""
        seen = self._inputs.get(state.task) if state.task is not None else None
        messages = self._known.get(thread) if seen is None else seen
        for number, (one, ident) in enumerate(zip(state.messages, idents, strict=True), 1):
            if role_of(one) == "assistant":
                self._call(one, ident, thread, state, None if messages is None else Grown(messages, len(messages)))
            if messages is not None and number < len(idents):
                messages = [*messages, *self._chat(one, ident)]

    def _call(self, one: dict[str, Any], ident: str, thread: Thread, state: _State, prompt: Grown | None) -> None:
        if (known := self.found.get(ident)) is not None:
            if prompt and (known.prompt is None or (state.task is not None and not state.whole)):
                known.prompt = TextPrompt(prompt)  # a task's own input is the surest
            return
        if ident in self._broken:
            return
        body = _body(one)
        more = mapping(body.get("response_metadata"))
        try:
            counted = filled(usage(body.get("usage_metadata")), _metadata_usage(more))
        except Unusable as fault:
            self._broken.add(ident)
            self.source.skipped(state.line, fault.why)
            return
        self.found[ident] = Call(
            session="/".join(filter(None, thread)),
            model=first_text(more.get("model_name"), more.get("model"), more.get("ls_model_name")) or "",
            prompt=TextPrompt(prompt) if prompt else None,
            usage=counted,
            response=next(iter(self._chat(one, ident)), None),
            ended=state.at,
            line=state.line,
        )

    def _chat(self, one: dict[str, Any], ident: str) -> list[Chat]:
        if ident not in self._cache:
            made: list[Chat] = []
            add(made, one)
            self._cache[ident] = made
        return self._cache[ident]


def _ident(message: dict[str, Any]) -> str:
    """A message's id, else its content: a message without an id is the same one where it says the same."""
    return text(_body(message).get("id")) or compact(message)


def _produced(message: dict[str, Any]) -> bool:
    """Whether a message that stood in the first state was written by a model, not handed in as an example."""
    body = _body(message)
    return bool(body.get("usage_metadata") or body.get("response_metadata"))


def _metadata_usage(more: dict[str, Any]) -> Usage:
    """Counts as the provider wrote them, for models whose integration fills no ``usage_metadata``."""
    return usage(more.get("token_usage") or more.get("usage") or more.get("usage_metadata"))


READER = LangGraphReader()

"""OpenHands V1 event logs: prompts rebuilt from the events before each LLM response, counts from what the log adds up.

After ``openhands.sdk``: events of one ``llm_response_id`` are one response; a ``Condensation`` takes events out of the model's view
and puts a summary in; ``stats`` updates carry sums over all calls so far, and in ``per_turn_token`` the tokens of the last call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from warmgate.errors import TraceError
from warmgate.replay.readers._base import Head, Source
from warmgate.replay.readers._fields import (
    Unusable,
    count,
    dig,
    first_text,
    items,
    mapping,
    mappings,
    mostly,
    records,
    samples,
    seconds,
    text,
)
from warmgate.replay.readers._history import Grown
from warmgate.replay.readers._messages import Chat, add
from warmgate.replay.readers._parts import pieces, tool_calls, tool_message
from warmgate.replay.readers._tools import tool_schemas
from warmgate.replay.readers._usage import made
from warmgate.replay.trace import Call, Message, TextPrompt, Usage

SOURCES = frozenset({"agent", "user", "environment", "hook"})
_RESULTS = frozenset({"ObservationEvent", "UserRejectObservation", "AgentErrorEvent"})


class OpenHandsReader:
    """Reads a V1 event log: JSON Lines, a list, or a page ``{items: […]}`` of the agent server."""

    name = "openhands"
    title = "OpenHands V1 event log (JSON Lines)"

    def recognises(self, head: Head) -> bool:
        """Whether the records are events."""
        page = mapping(head.document).get("items")
        return mostly(map(_is_event, mappings(page)[:20] if page is not None else samples(head)))

    def read(self, source: Source) -> Iterator[Call]:
        """Yield LLM calls in the log's order.

        Raises:
            TraceError: The log holds neither a response nor counts that grow.
        """
        log = _Log(source)
        page = mapping(source.head.document).get("items")
        total = 0
        seen: set[str] = set()
        for number, record in enumerate(items(page), 1) if isinstance(page, list) else records(source):
            event = mapping(record)
            if not isinstance(event.get("kind"), str):
                source.skipped(number, "it is no event")
                continue
            if (ident := text(event.get("id"))) is not None:
                if ident in seen:
                    source.skipped(number, f"a second event with the id {ident[:64]}")
                    continue
                seen.add(ident)
            try:
                for call in log.take(number, event):
                    total += 1
                    yield call
            except Unusable as fault:
                source.skipped(number, fault.why)
        for call in log.rest():
            total += 1
            yield call
        if not total:
            raise TraceError(
                "an OpenHands event log without an LLM response and without token counts that grow",
                where=source.skipped.path,
                mend="hand in the log of a conversation in which the agent acted",
            )
        if log.excerpt:
            source.notes.append("the log does not begin with the system prompt: prompts cannot be rebuilt, token counts alone are used")


def _is_event(one: dict[str, Any]) -> bool:
    kind = text(one.get("kind")) or ""
    return text(one.get("source")) in SOURCES and (kind in _RESULTS or kind.endswith("Event") or kind.startswith("Condensation"))


@dataclass(slots=True)
class _Log:
    """The model's view of the conversation so far, and the calls not yet complete.

    A call has two halves, its events and its counts, written in either order; which comes first shows at the first counts.
    """

    source: Source
    excerpt: bool = False
    _view: list[Message] = field(default_factory=list[Message])
    _ids: list[str] = field(default_factory=list[str])
    _tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _system: bool = False
    _response: str | None = None
    _open: Call | None = None
    _counted: Call | None = None
    _counts_first: bool | None = None
    _sums: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    _model: str = ""

    def take(self, line: int, event: dict[str, Any]) -> Iterator[Call]:
        """Follow one event; yields calls that it completes."""
        kind, ident = text(event["kind"]) or "", text(event.get("id")) or f"#{line}"
        if kind == "ConversationStateUpdateEvent":
            yield from self._update(line, event)
        elif kind == "SystemPromptEvent":
            more = text(dig(event, "dynamic_context", "text"))
            said = (text(dig(event, "system_prompt", "text")) or "") + (f"\n\n{more}" if more else "")
            self._add(ident, {"role": "system", "content": said})
            self._tools, self._system = tool_schemas(event.get("tools")), True
        elif kind == "MessageEvent":
            yield from self._message(line, ident, event)
        elif kind == "ActionEvent":
            yield from self._action(line, ident, event)
        elif kind in _RESULTS:
            self._add(ident, _result(event))
        elif kind == "Condensation":
            self._condense(event)

    def rest(self) -> Iterator[Call]:
        """The calls that the log's end leaves half."""
        for call in (self._counted, self._open):
            if call is not None:
                yield from self._out(call)

    def _add(self, ident: str, message: Message) -> None:
        self._view.append(message)
        self._ids.append(ident)

    def _message(self, line: int, ident: str, event: dict[str, Any]) -> Iterator[Call]:
        found: list[Chat] = []
        add(found, event.get("llm_message"))
        more = pieces(event.get("extended_content")).joined()
        if found and isinstance(more, str) and isinstance(found[0]["content"], str):
            found[0]["content"] += more
        response = text(event.get("llm_response_id"))
        if found and found[0]["role"] == "assistant" and event.get("source") == "agent":
            yield from self._answered(line, response or ident, found[0], event)
        for message in found:
            self._add(ident, message)

    def _action(self, line: int, ident: str, event: dict[str, Any]) -> Iterator[Call]:
        calls = tool_calls([event.get("tool_call")])
        response = text(event.get("llm_response_id")) or ident
        if response == self._response and self._view and self._view[-1].get("role") == "assistant":
            last = dict(self._view[-1])  # a further tool call of the same response
            last["tool_calls"] = [*items(last.get("tool_calls")), *calls]
            self._view[-1] = last
            if self._open is not None:
                self._open.response = last
            return
        message: Chat = {"role": "assistant", "content": pieces(event.get("thought")).joined()}
        if thought := text(event.get("reasoning_content")):
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        yield from self._answered(line, response, message, event)
        self._add(ident, message)

    def _answered(self, line: int, response: str, message: Chat, event: dict[str, Any]) -> Iterator[Call]:
        """A response begins."""
        if response == self._response:
            return
        if self._open is not None:
            yield from self._out(self._open)
            self._open = None
        self._response = response
        prompt = None
        if self._system and any(m.get("role") == "user" for m in self._view):
            prompt = TextPrompt(Grown(self._view, len(self._view)), self._tools)
        else:
            self.excerpt = True
        call = Call("conversation", self._model, prompt, response=message, ended=seconds(event.get("timestamp")), line=line)
        if self._counted is not None:
            call.usage, call.model = self._counted.usage, self._counted.model or call.model
            self._counted = None
        self._open = call

    def _out(self, call: Call) -> Iterator[Call]:
        if call.prompt is None and call.usage == Usage():
            self.source.skipped(call.line, "its prompt is not in the log and no counts can be told to be its")
        else:
            yield call

    def _condense(self, event: dict[str, Any]) -> None:
        """Forget events and put the summary where they stood; a new list, since earlier prompts keep the old one."""
        gone = {one for one in items(event.get("forgotten_event_ids") or event.get("forgotten_events")) if isinstance(one, str)}
        kept = [(i, m) for i, m in zip(self._ids, self._view, strict=True) if i not in gone]
        summary, at = text(event.get("summary")), event.get("summary_offset")
        if summary is not None:
            place = at if isinstance(at, int) and 0 <= at <= len(kept) else len(kept)
            kept.insert(place, (text(event.get("id")) or "summary", {"role": "user", "content": summary}))
        self._ids, self._view = [i for i, _ in kept], [m for _, m in kept]

    def _update(self, line: int, event: dict[str, Any]) -> Iterator[Call]:
        value = event.get("value")
        stats = value if event.get("key") == "stats" else dig(value, "stats") if event.get("key") == "full_state" else None
        for usage_id, entry in mapping(dig(stats, "usage_to_metrics")).items():
            metrics = mapping(entry)
            sums = mapping(metrics.get("accumulated_token_usage"))
            model = first_text(sums.get("model"), metrics.get("model_name")) or ""
            try:
                counted = self._grown(usage_id, sums)
            except Unusable as fault:
                self.source.skipped(line, fault.why)
                continue
            if counted is None:
                continue
            call = Call("conversation", model, None, counted, ended=seconds(event.get("timestamp")), line=line)
            if usage_id == "condenser":
                call.session += "/condenser"
                yield call
            else:
                self._model = model
                yield from self._pair(call)

    def _pair(self, call: Call) -> Iterator[Call]:
        if self._counts_first is None:
            self._counts_first = self._open is None
        if not self._counts_first and self._open is not None and self._open.usage == Usage():
            self._open.usage, self._open.model = call.usage, call.model or self._open.model
            return
        if self._counted is not None:  # its events are not in the log
            yield from self._out(self._counted)
        if self._open is not None:
            yield from self._out(self._open)
            self._open = None
        self._counted = call

    def _grown(self, usage_id: str, sums: dict[str, Any]) -> Usage | None:
        """Counts of the one call since the sums were last written, or ``None`` where there was none.

        Raises:
            Unusable: The counts are broken, or several calls lie between.
        """
        names = ("prompt_tokens", "completion_tokens", "cache_read_tokens")
        sent, got, cached = (count(sums.get(name), name) or 0 for name in names)
        last = count(sums.get("per_turn_token"), "per_turn_token")
        before = self._sums.get(usage_id, (0, 0, 0))
        if sent < before[0]:  # a new run counts anew
            before = (0, 0, 0)
        self._sums[usage_id] = (sent, got, cached)
        new = (sent - before[0], max(0, got - before[1]), max(0, cached - before[2]))
        if not new[0]:
            return None
        if last and last != new[0] + new[1]:
            raise Unusable(f"its sums grew by {new[0] + new[1]} tokens over several LLM calls (the last had {last})")
        return made(new[0], new[2], new[1])


def _result(event: dict[str, Any]) -> Chat:
    """What a tool gave back, as the model sees it."""
    content = dig(event, "observation", "content")
    if content is None:
        content = first_text(event.get("error"), event.get("rejection_reason")) or mappings(event.get("observation"))
    return tool_message(content or "", event.get("tool_call_id"), event.get("tool_name"))


READER = OpenHandsReader()

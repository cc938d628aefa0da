"""Trees of spans (Langfuse observations, LangSmith runs, agent SDK and OTel spans): which are LLM calls, and whose.

Frameworks, SDKs and engines each record the same request once, nested: an agent's span around a chain's around the chat model's
around the engine's own. The innermost is the call; the ones around it only lend what it lacks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from warmgate.replay.readers._base import Source
from warmgate.replay.readers._fields import in_order, text
from warmgate.replay.readers._history import Threads
from warmgate.replay.readers._messages import with_system
from warmgate.replay.readers._usage import filled
from warmgate.replay.trace import Call, TextPrompt

MAX_DEPTH = 128
"""Spans around a span that are looked at. Real trees are some dozen deep; the cap keeps hostile ones from costing their square."""


@dataclass(slots=True)
class Span:
    """A node of a tree.

    Attributes:
        ident: Unique in the trace file.
        parent: ``ident`` of the span around it.
        tool: A tool runs in it: LLM calls inside belong to the tool, not to a call around it.
        agent: Name of the agent that runs in it.
        system: The agent's system prompt, which its framework may leave out of the calls' own messages.
        sums: Its counts are sums over calls inside, whatever stands between.
        line: Line (or element) of the file it came from, from 1.
    """

    ident: str
    parent: str | None = None
    tool: bool = False
    agent: str | None = None
    system: Any = None
    sums: bool = False
    line: int | None = None


@dataclass(slots=True)
class Found:
    """A span that records an LLM call, or sums of some.

    Attributes:
        span: Its place in the tree.
        call: What it records. ``call.session`` is the conversation's key without agents.
        response_id: The provider's id of the answer.
        previous_id: The provider's id of the answer that this request goes on from.
        broken: It was skipped, and reported so; the spans around it are still no calls of their own.
    """

    span: Span
    call: Call
    response_id: str | None = None
    previous_id: str | None = None
    broken: bool = False


@dataclass(slots=True)
class Forest:
    """Spans by id.

    Attributes:
        spans: By id.
        circles: Those whose parent would have closed a circle. They have none now.
    """

    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    circles: list[Span] = field(default_factory=list[Span])
    _roots: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Forest:
        """Build from spans in any order; of several with one id the first counts."""
        forest = cls()
        for span in spans:
            forest.spans.setdefault(span.ident, span)
        for span in forest.spans.values():
            if span.parent is None or span.parent not in forest.spans:
                span.parent = None
                continue
            child, parent = forest._root(span.ident), forest._root(span.parent)
            if child == parent:
                span.parent = None
                forest.circles.append(span)
            else:
                forest._roots[child] = parent
        return forest

    def _root(self, ident: str) -> str:
        path: list[str] = []
        while (above := self._roots.get(ident)) is not None:
            path.append(ident)
            ident = above
        for one in path:
            self._roots[one] = ident
        return ident

    def above(self, span: Span) -> Iterator[Span]:
        """The spans around one, innermost first."""
        at = self.spans.get(span.parent) if span.parent is not None else None
        for _ in range(MAX_DEPTH):
            if at is None:
                return
            yield at
            at = self.spans.get(at.parent) if at.parent is not None else None

    def agents(self, span: Span) -> tuple[str, ...]:
        """Names of the agents around (and in) a span, outermost first."""
        names = [s.agent for s in (span, *self.above(span)) if s.agent]
        return tuple(reversed(names))


def settle(found: list[Found], forest: Forest, source: Source) -> Iterator[Call]:
    """Turn candidate spans into calls in the order sent: innermost only, each once, with whole prompts and agents' sessions."""
    inside = _inside(found, forest)
    inner = [f for f in found if f.span.ident not in inside and not f.span.sums and not f.broken]
    by_ident = {f.span.ident: f for f in found}
    _tell_circles(forest, by_ident, source)
    for one in inner:
        for span in forest.above(one.span):
            if span.tool:
                break
            if (outer := by_ident.get(span.ident)) is not None and len(inside.get(span.ident, ())) == 1:
                _lend(outer, one)
        if isinstance(one.call.prompt, TextPrompt):
            _add_system(one, forest)
    ordered = [inner[i] for i in in_order([f.call.started for f in inner])]
    repeats = len(ordered)
    ordered = _once(ordered)
    repeats -= len(ordered)
    _continue(ordered, source)
    _name_sessions(ordered, forest)
    if repeats:
        source.notes.append(f"left out, since another span records the same answer (same response id): {many(repeats, 'span')}")
    wrapped = sum(f.span.ident in inside for f in found)
    if wrapped and inner:
        source.notes.append(f"left out, being copies or sums of the LLM calls inside them: {many(wrapped, 'span')}")
    for one in ordered:
        if one.call.prompt is None and one.call.usage.prompt_tokens is None and one.call.usage.output_tokens is None:
            source.skipped(one.call.line, "it records neither a prompt nor token counts")
            continue
        yield one.call


def _tell_circles(forest: Forest, candidates: Container[str], source: Source) -> None:
    """Say which records claim to be inside themselves. What a call records stands all the same, so it is not left out."""
    kept = [span.line for span in forest.circles if span.ident in candidates]
    for span in forest.circles:
        if span.ident not in candidates:
            source.skipped(span.line, "its parents form a circle")
    if kept:
        where = f" (the first at {kept[0]})" if kept[0] is not None else ""
        source.notes.append(f"read as having no parent, since their parents form a circle: {many(len(kept), 'call')}{where}")


def many(count: int, what: str) -> str:
    """A count with its noun."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _inside(found: list[Found], forest: Forest) -> dict[str, set[str]]:
    """Innermost calls by the candidates around them."""
    candidates = {f.span.ident: f for f in found}
    around: dict[str, set[str]] = {}
    for one in found:
        if one.span.sums:
            continue
        through_tool = one.span.tool
        for span in forest.above(one.span):
            outer = candidates.get(span.ident)
            if outer is not None and (span.sums or not through_tool):
                around.setdefault(span.ident, set()).add(one.span.ident)
            through_tool = through_tool or span.tool
    return {ident: calls - around.keys() for ident, calls in around.items()}


def _lend(outer: Found, inner: Found) -> None:
    """Give a call what only the span around it, and around no other call, records."""
    there, here = outer.call, inner.call
    if here.prompt is None:
        here.prompt = there.prompt
    elif isinstance(here.prompt, TextPrompt) and isinstance(there.prompt, TextPrompt) and not here.prompt.tools:
        here.prompt = TextPrompt(here.prompt.messages, there.prompt.tools, here.prompt.template_kwargs)
    here.usage = filled(here.usage, there.usage)
    here.model = here.model or there.model
    here.response = here.response or there.response
    inner.response_id = inner.response_id or outer.response_id
    inner.previous_id = inner.previous_id or outer.previous_id


def _add_system(one: Found, forest: Forest) -> None:
    prompt = one.call.prompt
    assert isinstance(prompt, TextPrompt)
    system = next((s.system for s in forest.above(one.span) if s.agent), None)
    if system is not None:
        one.call.prompt = TextPrompt(with_system(prompt.messages, system), prompt.tools, prompt.template_kwargs)


def _once(ordered: list[Found]) -> list[Found]:
    """Without spans beside each other that record one and the same answer (a framework's and an SDK's or engine's, unlinked)."""
    seen: dict[str, Found] = {}
    kept: list[Found] = []
    for one in ordered:
        first = seen.get(one.response_id) if one.response_id is not None else None
        if first is not None and _at_once(first.call, one.call):
            _lend(one, first)
            continue
        if one.response_id is not None:
            seen[one.response_id] = one
        kept.append(one)
    return kept


def _at_once(first: Call, second: Call) -> bool:
    """Whether two records with one response id can be of one call: fake models give every answer the same id."""
    if first.ended is not None and second.started is not None and second.started > first.ended:
        return False
    return len({c.usage.prompt_tokens for c in (first, second)} - {None}) < 2


def _continue(ordered: list[Found], source: Source) -> None:
    """Rebuild prompts that go on from a response the provider stored."""
    threads = Threads()
    lost = 0
    for one in ordered:
        call = one.call
        if one.previous_id is not None:
            sent = call.prompt if isinstance(call.prompt, TextPrompt) else None
            whole = threads.whole(one.previous_id, sent.messages) if sent else None
            lost += whole is None
            call.prompt = None if whole is None or sent is None else TextPrompt(whole, sent.tools)
        if one.response_id is not None and isinstance(call.prompt, TextPrompt):
            threads.keep(one.response_id, call.prompt.messages, call.response)
    if lost:
        source.notes.append(
            "without a whole prompt, since they go on from a response that only the provider holds (previous_response_id): "
            + many(lost, "call")
        )


def _name_sessions(ordered: list[Found], forest: Forest) -> None:
    """Give each agent of a conversation a session of its own: the key, then the agents below those that all calls share."""
    paths = [forest.agents(f.span) for f in ordered]
    common: dict[str, tuple[str, ...]] = {}
    for one, path in zip(ordered, paths, strict=True):
        before = common.get(one.call.session, path)
        same = 0
        while same < min(len(before), len(path)) and before[same] == path[same]:
            same += 1
        common[one.call.session] = path[:same]
    for one, path in zip(ordered, paths, strict=True):
        one.call.session = "/".join((one.call.session, *path[len(common[one.call.session]) :]))


def subgraph(checkpoint_ns: Any) -> str | None:
    """The LangGraph subgraph a call ran in, from a checkpoint namespace such as ``team:<uuid>|agent:<uuid>``.

    Its last part is the node itself and the ones before it are nodes that hold a graph each; a call of the outermost graph has none.
    """
    parts = (text(checkpoint_ns) or "").split("|")
    return "/".join(part.split(":")[0] for part in parts[:-1]) or None

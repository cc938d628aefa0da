"""Four ways to mount tools, replayed over recorded sessions: what is found of the tools called next, and what each way pays.

The decider is lexical, so that the table is the same on every machine: a toolset is wanted where a word of its name or description was said
lately, or one of its tools was called lately. A trace that does not record its schemas gets the names it calls, grouped by their first word,
with schemas of :data:`SCHEMA_TOKENS` tokens. Prompts are counted as 4 bytes a token. A tool that was missing costs the turn that fetches it:
the recorded agent knew it and is taken to call it all the same, which an agent that was never shown it might not.

Paid, in computed tokens: lists and announcements computed, prefix computed again, questions asked (with the whole conversation once where
they are asked on a prompt without tools), :data:`MISS_TOKENS` for each missing tool, and a tenth of the schema tokens that calls carry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.timing import Lines
from warmgate.answers import Answer, Source
from warmgate.decision import Mounts
from warmgate.engines.wire import wire_question
from warmgate.errors import WarmgateError
from warmgate.questions import Choice, Noul, Question
from warmgate.replay.source import expand, open_trace
from warmgate.replay.trace import TextPrompt
from warmgate.turn import Turn
from warmgate_policies.mounts import Catalogue, MountOptions, ToolMounts, asking, history
from warmgate_policies.mounts.asking import NOTHING, option_of
from warmgate_policies.mounts.price import CACHED_COST

SCHEMA_TOKENS = 250
STRANGERS = 100
MISS_TOKENS = 120
"""Tokens of a refused call and its answer, which a missing tool adds to the conversation."""

SOURCE = Source(engine="lexical", worker="", model=None, dialect="", request_id="", latency_s=0.0)
_WORD = re.compile(r"[a-z]{3,}")


@dataclass
class Step:
    messages: Sequence[Mapping[str, Any]]
    called: list[str]


@dataclass
class Paid:
    """What one way paid on one trace, in tokens."""

    wanted: int = 0
    found: int = 0
    mounts: int = 0
    carried: int = 0
    computed: int = 0
    lost: int = 0
    missed: int = 0
    asked: int = 0
    warm: set[tuple[str, ...]] = field(default_factory=set["tuple[str, ...]"])
    """Lists that an earlier session of the trace offered: their block at the front of the prompt is cached."""

    def offer(self, names: tuple[str, ...], tokens: int) -> None:
        """A list goes to the front of a prompt."""
        self.mounts += 1
        if names not in self.warm:
            self.warm.add(names)
            self.computed += tokens

    @property
    def total(self) -> float:
        return self.computed + self.lost + self.asked + self.missed * MISS_TOKENS + self.carried * CACHED_COST


def run() -> Lines:
    shared = Path("../shared/traces")
    if not shared.is_dir():
        yield "recorded traces are not beside this checkout: our own alone", None
    yield (
        f"{'trace':38} {'way':10} {'recall':>7} {'mounts':>7} {'schemas carried':>16} {'computed':>9} {'questions':>9} {'prefix lost':>12} {'paid':>10}",
        None,
    )
    found = 0
    for path in expand([str(p) for p in (shared, Path("examples/traces")) if p.is_dir()]):
        sessions, schemas = _steps(path)
        calls = [name for steps in sessions.values() for step in steps for name in step.called]
        if len(calls) < 2:
            continue
        found += 1
        tools, recorded = (schemas, "recorded") if schemas else (_made_up(calls), f"{SCHEMA_TOKENS} tokens each, assumed")
        yield from _table(path, tools, recorded, sessions, calls)
        yield from _table(path, [*tools, *_strangers()], f"{recorded}, and {STRANGERS} that it never calls, assumed", sessions, calls)
    yield f"{found} tool-using traces", found > 0


def _strangers() -> list[Mapping[str, Any]]:
    """Tools of other servers, as a company's catalogue has them."""
    return [tool for n in range(STRANGERS // 10) for tool in _made_up([f"server{n}__zz{n}{v}" for v in range(10)])]


def _table(path: str, tools: list[Mapping[str, Any]], recorded: str, sessions: dict[str, list[Step]], calls: list[str]) -> Lines:
    paid = {name: Paid() for name in ("all", "per turn", "append", "ours")}
    for session, steps in sessions.items():
        _all(paid["all"], tools, steps)
        _per_turn(paid["per turn"], tools, steps)
        for name, strategy in (("append", "append"), ("ours", "freeze")):
            _policy(paid[name], tools, steps, session, MountOptions(strategy=strategy))  # type: ignore[arg-type]
    yield f"{Path(path).name[:38]:38} {len(tools)} tools, {recorded}; {len(sessions)} sessions, {len(calls)} tool calls", None
    again = len(set(calls)) < len(calls)  # the bound is on traces that use a tool more than once
    for name, p in paid.items():
        yield (
            f"{'':38} {name:10} {p.found / p.wanted:7.1%} {p.mounts:7,} {p.carried:16,} {p.computed:9,} {p.asked:9,} {p.lost:12,} "
            f"{p.total:10,.0f}",
            None if name != "ours" else p.lost == 0 and (p.total < paid["per turn"].total or not again),
        )


def _steps(path: str) -> tuple[dict[str, list[Step]], list[Mapping[str, Any]]]:
    sessions: dict[str, list[Step]] = {}
    schemas: dict[str, Mapping[str, Any]] = {}
    try:
        with open_trace(path, lambda _line: None) as (reader, source):
            for call in reader.read(source):
                if not isinstance(call.prompt, TextPrompt) or call.response is None:
                    continue
                schemas |= {str(t.get("function", t).get("name")): t for t in call.prompt.tools}
                sessions.setdefault(call.session, []).append(Step(call.prompt.messages, history.called([call.response])))
    except WarmgateError:
        return {}, []
    return sessions, list(schemas.values())


def _made_up(calls: Sequence[str]) -> list[Mapping[str, Any]]:
    words = "x" * (SCHEMA_TOKENS * 4 - 60)
    return [{"function": {"name": name, "description": name.replace("_", " "), "parameters": words}} for name in dict.fromkeys(calls)]


def _answers(questions: Mapping[str, Question], said: str, catalogue: Catalogue, lately: set[str]) -> dict[str, Answer]:
    words = set(_WORD.findall(said.casefold()))

    def wanted(name: str) -> bool:
        toolset = next(t for t in catalogue.toolsets.values() if option_of(t) == name)
        own = set(_WORD.findall(f"{toolset.name} {' '.join(toolset.tools)}".replace("_", " ").casefold()))
        return bool(own & words) or bool(lately & set(toolset.tools))

    found: dict[str, Answer] = {}
    for id_, question in questions.items():
        if isinstance(question, Noul):
            name = next(option_of(t) for t in catalogue.toolsets.values() if f"tools: {option_of(t)}" in question.instructions)
            p = 0.9 if wanted(name) else 0.05
            probabilities: dict[str, float] = {"yes": p, "no": 1 - p}
            value: str | float = p
        else:
            assert isinstance(question, Choice)
            hits = [o for o in question.labels if o != NOTHING and wanted(o)] or [NOTHING]
            probabilities = {o: 1 / len(hits) if o in hits else 0.0 for o in question.labels}
            value = hits[0]
        found[id_] = Answer(
            id=id_, type=question.type, value=value, probabilities=probabilities, confidence=None, server_confidence=None,
            label_mass=1.0, argmax_is_label=True, source=SOURCE,
        )  # fmt: skip
    return found


def _said(messages: Sequence[Mapping[str, Any]]) -> tuple[str, set[str]]:
    recent = messages[-12:]
    return "\n".join(map(history.said, recent)), set(history.called(recent))


def _tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    return len(msgspec.json.encode(list(messages))) // 4


def _asked(questions: Mapping[str, Question]) -> int:
    return sum(len(msgspec.json.encode(wire_question(question))) // 4 for question in questions.values())


def _judge(paid: Paid, had: Sequence[str], step: Step) -> list[str]:
    missing = [name for name in dict.fromkeys(step.called) if name not in had]
    paid.wanted += len(step.called)
    paid.found += sum(name in had for name in step.called)
    paid.missed += len(missing)
    return missing


def _all(paid: Paid, tools: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> None:
    catalogue = Catalogue(tools)
    every = tuple(catalogue.tools)
    paid.offer(every, catalogue.tokens(every))
    for step in steps:
        paid.carried += catalogue.tokens(every)
        _judge(paid, every, step)


def _per_turn(paid: Paid, tools: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> None:
    """What selectors do today: the best tools for this very turn, the list rebuilt, the conversation behind it computed again."""
    catalogue = Catalogue(tools)
    had: tuple[str, ...] | None = None
    for step in steps:
        said, lately = _said(step.messages)
        asked = {t.name: Noul(instructions=f"tools: {option_of(t)}") for t in catalogue.toolsets.values()}
        paid.asked += _asked(asking.questions(list(catalogue.toolsets.values()), limit=64, options=26, context=said))
        answers = _answers(asked, said, catalogue, lately)
        chosen = catalogue.expand([name for name, answer in answers.items() if float(answer.value) > 0.5])
        if chosen != had:
            paid.offer(chosen, catalogue.tokens(chosen))
            if had is not None:
                paid.lost += _tokens(step.messages)
        had = chosen
        paid.carried += catalogue.tokens(had)
        if missing := _judge(paid, had, step):  # the tool was called, so it is fetched: by a list that holds it, and all behind it anew
            had = catalogue.expand([], [*had, *missing])
            paid.offer(had, catalogue.tokens(had))
            paid.lost += _tokens(step.messages)


def _policy(paid: Paid, tools: Sequence[Mapping[str, Any]], steps: Sequence[Step], session: str, options: MountOptions) -> None:
    policy = ToolMounts(options)
    mounts: Mounts | None = None
    there: tuple[str, ...] = ()
    user_turn = 0
    for step in steps:
        said, lately = _said(step.messages)
        turn = Turn(session or "session", step.messages, tools)
        if mounts is None or turn.user_turns != user_turn or policy.wants_again(turn, mounts.tools):
            mounted = None if mounts is None else mounts.tools
            asked = dict(policy.questions(turn, mounted))
            answers = _answers(asked, said, policy.catalogue(turn), lately)
            more = dict(policy.narrow(turn, mounted, answers))
            paid.asked += _asked(asked | more)
            if mounts is None and asked and policy.first_mount(turn) == "bare":
                paid.asked += _tokens(step.messages)
            before = mounts
            mounts = policy.settle(turn, mounted, answers | _answers(more, said, policy.catalogue(turn), lately), widen=True)
            catalogue = policy.catalogue(turn)
            offered = mounts.offered or mounts.tools
            if before is None:
                paid.offer(offered, catalogue.tokens(offered))
            elif offered != (before.offered or before.tools):
                paid.offer(offered, catalogue.tokens(offered))
                paid.lost += _tokens(step.messages)
            if mounts.announce:
                paid.mounts += 1
                paid.computed += catalogue.tokens(mounts.announce)
            there = tuple(dict.fromkeys((*there, *offered, *mounts.announce)))
            user_turn = turn.user_turns
        paid.carried += policy.catalogue(turn).tokens(there)
        missing = _judge(paid, mounts.tools, step)
        if missing:  # the refused call and its answer are in the next prompt; the policy honours it there
            held = policy.settle(
                Turn(session or "session", [*step.messages, {"role": "assistant", "tool_calls": [{"function": {"name": n}} for n in missing]}], tools),
                mounts.tools, {}, widen=True,
            )  # fmt: skip
            paid.mounts += bool(held.announce)
            paid.computed += policy.catalogue(turn).tokens(held.announce)
            there = tuple(dict.fromkeys((*there, *held.announce)))
            mounts = held

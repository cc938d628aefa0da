"""Asking the questions of one decision: which state, on which worker, what it cost, and once more where a worker dies under it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from warmgate.alignment.plan import State, json_state
from warmgate.alignment.planning import Planned
from warmgate.answers import Answer, Usage
from warmgate.decision import Read
from warmgate.engines import AskRequest, ChainResult, Deadline
from warmgate.engines.wire import usage_of, wire_question
from warmgate.errors import EngineError
from warmgate.foreign import sendable
from warmgate.means import Means
from warmgate.prefix.divergence import PromptView
from warmgate.prefix.survival import Outcome as Survived
from warmgate.questions import Question
from warmgate.telemetry.protocol import Asked, ReadSeen, Unpredicted, fallbacks
from warmgate.telemetry.watching import LOOK_S, Sent
from warmgate.trail import entry
from warmgate.turn import Turn
from warmgate.workers.binding import Binding, Outcome, Role
from warmgate.workers.gateway import Gateway
from warmgate.workers.reuse import Finding

AHEAD = 0.4
"""Part of the time left that rendering, checking and planting may take together: the questions must have the rest."""

LOOKING = 0.1
"""Part of the time left that predicting what a read finds may take."""

MEASURING = 0.25
"""Part of the time left that the first decision on a worker waits for its cache to be measured. It goes on beside the decision."""

_OUTCOMES: Mapping[str, Outcome] = {"WG320": "overloaded", "WG321": "reset", "WG322": "fault", "WG330": "timeout", "WG340": "fault"}
"""What an engine's error code says of its worker; every other one is a reply."""

RESTATING = ("systemone", "decisions", "prefix_read")
"""Engines whose prompt begins with the aligned state, a prompt a question."""

AROUND = 40
"""Tokens that stand around a question, at most: markup, how to answer, the generation prompt."""

BYTES_PER_TOKEN = 3
"""Of a question, at least. Where it has more tokens, a plant may be left out that was needed; the call's cached tokens then show it."""

SLACK = 160
"""Tokens allowed for each question where a prompt's length is checked beforehand."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What questions of one's own came to (:meth:`warmgate.gate.Gate.ask`).

    Attributes:
        id: Prefix of the request ids.
        answers: Id of a question → its answer, for those that were answered.
        unanswered: Id of a question → why, for the others.
        usage: Tokens of the requests that answered.
        worker: Base URL that was asked last.
        reads: Requests in the order sent, each aligned or not and why.
        reasons: Sentences for people.
        flags: As a decision's.
        elapsed_s: Seconds.
    """

    id: str
    answers: dict[str, Answer]
    unanswered: dict[str, str]
    usage: Usage
    worker: str
    reads: tuple[Read, ...]
    reasons: tuple[str, ...]
    flags: tuple[str, ...] = ()
    elapsed_s: float = 0.0


class Asker:
    """The questions of one decision.

    Args:
        means: The gate's.
        turn: The turn decided on.
        decision_id: Prefix of the request ids.
        agent: Where the agent's call goes.
        asked: Where the questions go; the same unless a sidecar answers.
        deadline: The decision's.
        owner: The session whose worker it is, where the turn's own key is one that only the books are kept under.
    """

    def __init__(
        self,
        means: Means,
        turn: Turn,
        decision_id: str,
        agent: Binding,
        asked: Binding,
        deadline: Deadline,
        owner: str | None = None,
    ) -> None:
        self._means = means
        self._turn = turn
        self._owner = turn.session if owner is None else owner
        self.id = decision_id
        self._deadline = deadline
        self.agent = agent
        self.asked = asked
        self.sidecar = bool(means.settings.gate_workers)
        self.model = turn.model or means.settings.model
        self.reads: list[Read] = []
        self.reasons: list[str] = []
        self.asked_about: dict[str, Asked] = {}
        self.told: dict[str, Answer] = {}
        self.prompt_tokens: int | None = None
        """Tokens of the agent's prompt, where a read was predicted on it."""

    async def ask(self, questions: Mapping[str, Question], tools: Sequence[Mapping[str, Any]]) -> ChainResult:
        """Ask about the transcript: aligned, and once more as JSON where the model would rather go on with the agent's task.

        Args:
            questions: What to ask.
            tools: The tools that the agent's prompt carries.
        """
        planned, finding = await self.plan(tools)
        state = planned.state
        unaligned = f"not aligned: {state.reason}" if state.reason is not None else None
        said = unaligned in self.reasons
        for note in (*planned.notes, *([unaligned] if unaligned is not None else [])):
            if note not in self.reasons:
                self.reasons.append(note)
        plant = state.kind == "aligned" and finding.plant and await self._needs_planting(planned, finding, questions)
        planted = await self._plant(planned, finding) if plant else None
        result = await self._read(questions, planned, finding, planted)
        if unaligned is not None and not said and self.reads[-1].state == "aligned":
            self.reasons.remove(unaligned)  # asked on the agent's own prompt, whatever the template
        floor = self._means.settings.label_mass_floor
        low = [i for i, a in result.answers.items() if a.label_mass is not None and a.label_mass < floor]
        if state.kind == "aligned" and low and not self._deadline.passed:
            self.reasons.append(f"label mass below {floor:g} on {', '.join(low)}: asked once more with a JSON state")
            other = Planned(json_state(self._turn.messages, "low label mass"))
            again = await self._read({i: questions[i] for i in low}, other, finding, None)
            return ChainResult(
                outcome=result.outcome,
                answers={**result.answers, **again.answers},
                unanswered=result.unanswered,
                steps=result.steps + again.steps,
                usage=result.usage + again.usage,
                elapsed_s=result.elapsed_s + again.elapsed_s,
            )
        return result

    async def facts(self, name: str, question: Question, facts: Mapping[str, Any]) -> ChainResult:
        """Ask about the resolved facts of one call: they are the whole state, as in the labels that thresholds come from."""
        facts = sendable(dict(facts))
        request = replace(self._request({name: question}, facts), request_id=f"{self.id}-{name}")
        self.asked_about[name] = Asked(question, facts, self._means.settings.dialect)
        result = await self._send(request, "facts", None, None, None)
        self.told |= result.answers
        return result

    async def about(self, questions: Mapping[str, Question], state: Any) -> ChainResult:
        """Ask about a state of one's own, as JSON."""
        model = self._turn.model if not self.sidecar else None
        request = replace(self._request(questions, state), model=model, cache_salt=self.salt)
        return await self._send(request, "json", None, None, None)

    async def plan(self, tools: Sequence[Mapping[str, Any]]) -> tuple[Planned, Finding]:
        """The state to ask on, and what is known of the worker's cache."""
        settings, turn = self._means.settings, self._turn
        if self.sidecar:
            why = "a sidecar model answers: nothing is shared with the agent's prompt"
            return Planned(json_state(turn.messages, why)), await self._means.finding(self.asked, settings.gate_model or self.model)
        finding = await self._means.finding(self.asked, self.model, wait_s=self._deadline.remaining() * MEASURING)
        if not finding.pays:
            mend = f"; {finding.mend}" if finding.mend else ""
            why = finding.why if settings.alignment == "off" else f"alignment does not pay on this worker, {finding.why}{mend}"
            return Planned(json_state(turn.messages, why)), finding
        if finding.hits == "unknown":
            self.reasons.append(f"no saving is claimed: {finding.why}")
        remote = self._means.remote(self.asked, self.model, self._deadline.within(self._deadline.remaining() * AHEAD))
        check = settings.alignment == "auto"
        return await self._means.planning.plan(turn, tools, self.model, remote, block=finding.unit, check=check), finding

    async def _needs_planting(self, planned: Planned, finding: Finding, questions: Mapping[str, Question]) -> bool:
        """Whether a state kept at a question's end would lie beyond the shared prefix.

        Such caches keep the last boundary of ``unit`` tokens before a prompt's end. With no boundary between the end of the shared prefix
        and that of the longest question, the first question keeps one inside the prefix, and the others and the agent's call find it.
        """
        if finding.unit is None or self._means.settings.alignment == "plant":
            return True
        prefix = planned.prompt.prefix if planned.prompt is not None else planned.state.text
        shared: int | None
        if isinstance(prefix, str):
            remote = self._means.remote(self.asked, self.model, self._deadline.within(self._deadline.remaining() * AHEAD))
            shared = await self._means.planning.tokens(self._turn, self.model, prefix, remote)
        else:
            shared = len(prefix)
        if shared is None:
            return True
        longest = max(len(msgspec.json.encode(wire_question(question))) for question in questions.values())
        return (shared + AROUND + longest // BYTES_PER_TOKEN) // finding.unit > shared // finding.unit

    async def _plant(self, planned: Planned, finding: Finding) -> int | None:
        """Send the shared prefix on its own, so that its state is kept where it ends. Its tokens, where that was done."""
        prefix = planned.prompt.prefix if planned.prompt is not None else planned.state.text
        body: dict[str, Any] = {"model": self.model, "prompt": prefix, "max_tokens": 1, "temperature": 0}
        if isinstance(prefix, str):
            body["add_special_tokens"] = False  # a rendered prompt writes its own
        if (salt := self._turn.cache_salt or self._means.settings.cache_salt) is not None:
            body["cache_salt"] = salt
        if self._means.settings.priority is not None:
            body["priority"] = self._means.settings.priority
        before, loss = self._means.trails.held(self._turn.session)
        began = time.monotonic()
        tokens: int | None = None
        ledger, why = None, ""
        remote = self._means.remote(self.asked, self.model, self._deadline.within(self._deadline.remaining() * AHEAD))
        try:
            reply = await remote.post("/v1/completions", body, request_id=f"{self.id}-{len(self.reads)}")
            usage = usage_of(msgspec.json.decode(reply).get("usage"))
            tokens = usage.input_tokens
            ledger = entry(tokens, shared=before, unit=finding.unit, cached=usage.cached_tokens, loss=loss)
        except EngineError as fault:
            why = f"the shared prefix was not planted: {fault.what}"
        except (msgspec.DecodeError, AttributeError):
            why = "the shared prefix was not planted: the reply is no completion"
        if why:
            self.reasons.append(why)
        elif tokens is not None:
            self._means.trails.reached(self._turn.session, tokens)
        self.reads.append(
            Read(
                questions=(),
                state="aligned",
                outcome="no_answer" if why else "answered",
                engine="plant",
                worker=self.asked.worker,
                elapsed_s=time.monotonic() - began,
                answers={},
                reason=why or finding.why,
                shared_characters=planned.state.shared_characters,
                ledger=ledger,
            )
        )
        return tokens

    async def _read(self, questions: Mapping[str, Question], planned: Planned, finding: Finding, planted: int | None) -> ChainResult:
        state = planned.state
        request = replace(
            self._request(questions, state.state),
            instructions=state.instructions,
            prompt=planned.prompt if not self.sidecar else None,
            model=self._turn.model if not self.sidecar else None,
            cache_salt=self._turn.cache_salt or self._means.settings.cache_salt,
        )
        if finding.hits == "unread" and (why := await self._too_long(state, finding, len(questions))) is not None:
            self.reasons.append(why)
            return self._refused(questions, state, why)
        return await self._send(request, state.kind, state, finding, planted)

    def _request(self, questions: Mapping[str, Question], state: Any) -> AskRequest:
        return AskRequest(
            questions=questions,
            state=state,
            priority=self._means.settings.priority,
            request_id=f"{self.id}-{len(self.reads)}",
            headers=self.headers(self.asked),
        )

    def headers(self, binding: Binding) -> dict[str, str]:
        """What every call of this session carries to a worker: its session header, and what a gateway hashes."""
        return {**session_headers(self._means.settings.session_header, self._owner, binding), **self._means.tell.headers(self.id)}

    async def _send(
        self,
        request: AskRequest,
        kind: Literal["aligned", "json", "facts"],
        state: State | None,
        finding: Finding | None,
        planted: int | None,
    ) -> ChainResult:
        sent, worker = await self._predicted(request, kind, finding), self.asked.worker
        try:
            result = await self._means.chain(self.asked.worker).ask(request, deadline=self._deadline)
        except BaseException:
            if isinstance(sent, Sent):
                await sent.answered(None)
            self._means.watch.unseen(worker)
            raise
        survival = await sent.answered(result) if isinstance(sent, Sent) else ()
        why = sent.unpredicted if isinstance(sent, Sent) else sent
        if not survival:
            self._means.watch.unseen(worker)
        self._report(result)
        self._note(request, kind, state, finding, planted, result, survival, why)
        if result.outcome == "no_answer" and await self._moved(result, worker):
            result = await self._means.chain(self.asked.worker).ask(
                replace(request, request_id=f"{request.request_id}-again", headers=self.headers(self.asked)), deadline=self._deadline
            )
            self._means.watch.unseen(self.asked.worker)
            self._report(result)
            self._note(request, kind, state, finding, None, result, why="moved")
        return result

    async def _predicted(
        self, request: AskRequest, kind: Literal["aligned", "json", "facts"], finding: Finding | None
    ) -> Sent | Unpredicted:
        """What reads on the agent's prompt should find, where a shorter prefix hits as with full attention; else why that is not told."""
        if self.sidecar:
            return "sidecar"
        if kind != "aligned":
            return kind
        if finding is None or finding.hits not in ("first", "unknown"):
            return "cache"
        remote = self._means.remote(self.asked, self.model, self._deadline.within(self._deadline.remaining() * LOOKING))
        sent = await self._means.watch.asked(self._turn.session, request, self.salt, self.model, remote)
        if isinstance(sent, Sent):
            first = sent.expected[0].prompt
            self.prompt_tokens = first.tokens - (first.question_tokens or 0)
        return sent

    @property
    def salt(self) -> str | None:
        """The cache salt of the agent's call."""
        return self._turn.cache_salt or self._means.settings.cache_salt

    async def foresee(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Look up what the agent's call should find: beside the decision, but within it where the worker itself tells what it stores."""
        turn, worker = self._turn, self.agent
        if turn.proposed_calls and not self.reads:
            return  # calls were judged by rules: a model's call need not follow
        finding = await self._means.finding(worker, self.model)
        if finding.hits not in ("first", "unknown") and self._means.settings.alignment != "off":
            return
        remote = self._means.remote(worker, self.model, Deadline(LOOK_S))

        async def render() -> str | None:
            planned = await self._means.planning.plan(turn, tools, self.model, remote, check=False)
            prefix = planned.prompt.prefix if planned.prompt is not None else planned.state.text
            return prefix if isinstance(prefix, str) and prefix else None

        view = PromptView(turn.messages, tools, turn.template_kwargs)
        look = self._means.watch.coming(self.id, turn.session, render, view, self.salt, self.model, remote)
        await self._means.watch.before(look, worker.worker, self._deadline.remaining() * LOOKING)

    def _report(self, result: ChainResult) -> None:
        """Tell the pool how its workers answered: that is how it learns of a dead one between probes."""
        for step in result.steps:
            if step.outcome in ("answered", "partial"):
                self._means.pool.report(step.worker, "ok")
            elif step.outcome == "failed" and step.code is not None:
                self._means.pool.report(step.worker, _OUTCOMES.get(step.code, "ok"))

    async def _moved(self, result: ChainResult, worker: str) -> bool:
        """Whether the worker that was asked was found dead and the session has another one now, in time to ask there."""
        if self._deadline.passed or not any(s.worker == worker and s.code == "WG321" for s in result.steps):
            return False
        if self.asked.worker != worker:  # a request beside this one found out first
            return True
        role: Role = "gate_workers" if self.sidecar else "workers"
        try:
            async with asyncio.timeout(self._deadline.remaining()):
                if not await self._means.pool.found_dead(worker):
                    return False
                self.asked = await self._means.pool.acquire(self._owner, role, timeout_s=self._deadline.remaining())
        except (TimeoutError, EngineError):
            return False
        if not self.sidecar:
            self.agent = self.asked
            self._means.trails.on(self._turn.session, self.asked)
        if self.asked.worker == worker:
            return False
        self.reasons.append(f"{worker} died under the decision: asked again on {self.asked.worker}")
        return True

    def _note(
        self,
        request: AskRequest,
        kind: Literal["aligned", "json", "facts"],
        state: State | None,
        finding: Finding | None,
        planted: int | None,
        result: ChainResult,
        survival: Sequence[Survived] = (),
        why: Unpredicted | None = None,
    ) -> None:
        request_id = request.request_id or f"{self.id}-{len(self.reads)}"
        engine = next((s.engine for s in result.steps if s.outcome in ("answered", "partial")), None)
        reasons = [w for w in (state.reason if state is not None else None, result.reason) if w]
        shared_characters = state.shared_characters if state is not None else 0
        if engine == "prefix_read" and request.prompt is not None and kind == "json":
            kind = "aligned"  # it extends the agent's own prompt, whatever the template
            prefix = request.prompt.prefix
            shared_characters = len(prefix) if isinstance(prefix, str) else len(state.text) if state is not None else 0
            reasons = [result.reason] if result.reason else []
        aligned = kind == "aligned" and engine in RESTATING
        before, loss = self._means.trails.held(self._turn.session)
        ledger = None
        if engine is not None:
            many = len(request.questions) if engine in RESTATING and not (finding is not None and finding.hits == "unread") else 1
            ledger = entry(
                result.usage.input_tokens,
                reads=many,
                shared=(planted if planted is not None else before) if aligned else None,
                unit=finding.unit if finding is not None else None,
                cached=result.usage.cached_tokens,
                loss=None if planted is not None else loss,
                looked_up=finding is None or finding.hits not in ("unread", "off"),
            )
        if aligned:
            self._means.trails.extended(self._turn.session, "planted" if planted is not None else "read")
        self.reads.append(
            Read(
                questions=tuple(request.questions),
                state=kind,
                outcome=result.outcome,
                engine=engine,
                worker=self.asked.worker,
                elapsed_s=result.elapsed_s,
                answers=result.answers,
                reason="; ".join(reasons),
                shared_characters=shared_characters,
                ledger=ledger,
            )
        )
        tell, worker = self._means.tell, self.asked.worker
        tell.read(
            ReadSeen(
                self.id,
                request_id,
                self._turn.session,
                self.model if not self.sidecar else self._means.settings.gate_model or self.model,
                worker,
                engine,
                result.outcome,
                len(request.questions),
                result.elapsed_s,
                survival,
                why,
            )
        )
        for fallback in fallbacks(self.id, request_id, worker, [(step.engine, step.outcome, step.code) for step in result.steps]):
            tell.fallback(fallback)

    async def _too_long(self, state: State, finding: Finding, questions: int) -> str | None:
        """A pooling model cuts a state that is too long without a word; such a decision is refused instead."""
        limit = finding.max_model_len
        if limit is None or len(state.state) + SLACK * questions < limit:  # a token has at least one byte
            return None
        model = self._means.settings.gate_model or self.model
        try:
            tokens = len(await self._means.remote(self.asked, model, self._deadline).ids(state.state))
        except EngineError:
            return None
        if tokens + SLACK * questions < limit:
            return None
        return f"the state has {tokens:,} tokens, too many with its questions for {model} ({limit:,}), which would cut it: not asked"

    def _refused(self, questions: Mapping[str, Question], state: State, why: str) -> ChainResult:
        self.reads.append(
            Read(
                questions=tuple(questions),
                state=state.kind,
                outcome="no_answer",
                engine=None,
                worker=self.asked.worker,
                elapsed_s=0.0,
                answers={},
                reason=why,
            )
        )
        return ChainResult(
            outcome="no_answer", answers={}, unanswered=dict.fromkeys(questions, why), steps=(), usage=usage_of(None), elapsed_s=0.0
        )


def session_headers(name: str, session: str, binding: Binding) -> dict[str, str]:
    """The session header, in a form that a header can carry, and the binding's own; a gateway's wins where both have one name."""
    found = Gateway("", name, "").headers(session)
    taken = {key.lower() for key in binding.headers}
    return {**{key: value for key, value in found.items() if key.lower() not in taken}, **binding.headers}

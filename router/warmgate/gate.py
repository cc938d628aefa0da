"""The gate: one turn in, one decision out. The only pipeline.

session → worker → questions → state → engine chain → decision. Mounting fails open to the current set, shell safety fails closed to ask.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from secrets import token_hex
from typing import Any, Literal, Self

from warmgate.alignment.markup import Markup
from warmgate.alignment.plan import Planner, State, json_state
from warmgate.alignment.template import ChatTemplate
from warmgate.decision import Decision, Mounts, Read, Verdict, binding_of
from warmgate.engines import AgentPrompt, AskRequest, Breakers, Chain, ChainResult, Deadline
from warmgate.engines.loops import PerLoop
from warmgate.errors import OptionError, WarmgateError
from warmgate.foreign import mapping, text
from warmgate.policy import CallPolicy, Judgement, MountPolicy
from warmgate.questions import Question
from warmgate.settings import Settings
from warmgate.turn import ProposedCall, Turn
from warmgate.workers import WorkerPool
from warmgate.workers.binding import Binding

GROUP = "warmgate.policies"
"""Entry-point group that policy packs register in. A pack's object is called with the settings and returns a policy."""

SESSIONS = 65_536
"""Sessions whose mounts are remembered. A forgotten session starts with every tool mounted."""


class Gate:
    """Decides, for one agent application, before each of its LLM calls and tool calls.

    Args:
        settings: See :class:`~warmgate.settings.Settings`.
        mounts: Which tools to mount; without one the current set is kept.
        calls: Whether a proposed call may run; without one every call is ``ask``.
        template: The agent model's chat template, where it is not in the settings.

    Raises:
        OptionError: A setting cannot be used.
        TemplateError: The chat template cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        mounts: MountPolicy | None = None,
        calls: CallPolicy | None = None,
        template: ChatTemplate | None = None,
    ) -> None:
        self.settings = settings
        self.mounts = mounts
        self.calls = calls
        template = template or (_template(settings) if settings.chat_template is not None else None)
        self.planner = Planner(template) if template is not None else None
        self.markup = Markup.of(self.planner.recipe) if self.planner is not None and self.planner.recipe is not None else None
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key_env else None
        self.pool = WorkerPool(
            settings.workers,
            settings.gate_workers or None,
            affinity=settings.affinity,
            ttl_s=settings.affinity_ttl_s,
            gateway=settings.gateway,
            probe_headers=headers,
        )
        self._breakers = Breakers()
        self._chains: dict[str, Chain] = {}
        self._mounted: OrderedDict[str, tuple[int, tuple[str, ...]]] = OrderedDict()
        self._flights: PerLoop[dict[str, asyncio.Lock]] = PerLoop(dict)

    @classmethod
    def from_settings(cls, settings: Settings | None = None) -> Self:
        """A gate with the policies that the settings name, as far as they are installed.

        Raises:
            OptionError: A named policy is installed and cannot be loaded.
        """
        settings = settings or Settings()
        mounts: MountPolicy | None = None
        calls: CallPolicy | None = None
        for name in settings.policies:
            for entry in entry_points(group=GROUP, name=name):
                try:
                    policy = entry.load()(settings)
                except WarmgateError:
                    raise
                except Exception as fault:
                    raise OptionError(f"cannot be loaded ({fault})", where=f"policy {name}", mend="repair or leave out") from fault
                if isinstance(policy, MountPolicy):
                    mounts = policy
                elif isinstance(policy, CallPolicy):
                    calls = policy
        return cls(settings, mounts=mounts, calls=calls)

    async def decide(self, turn: Turn) -> Decision:
        """Decide on one turn, within ``settings.deadline_ms``.

        One decision of a session is in flight at a time. Cancelling leaves nothing behind.

        Raises:
            WarmgateError: No worker could be named at all. Everything else is in the decision.
        """
        started = time.monotonic()
        deadline = Deadline(self.settings.deadline_ms / 1000)
        locks = self._flights.get()
        lock = locks.setdefault(turn.session, asyncio.Lock())
        try:
            async with lock:
                return await self._decide(turn, deadline, started)
        finally:
            if not lock.locked() and locks.get(turn.session) is lock:
                del locks[turn.session]

    def decide_sync(self, turn: Turn) -> Decision:
        """:meth:`decide` for code that cannot await."""
        from warmgate.engines.portal import get_portal

        return get_portal().run(self.decide(turn))

    async def _decide(self, turn: Turn, deadline: Deadline, started: float) -> Decision:
        decision_id = token_hex(8)
        agent = await self.pool.acquire(turn.session, timeout_s=deadline.remaining())
        asked = (
            agent
            if not self.settings.gate_workers
            else await self.pool.acquire(turn.session, "gate_workers", timeout_s=deadline.remaining())
        )
        run = _Run(self, turn, decision_id, asked, deadline)
        flags = await run.flags()
        mounts = await run.mount(widen="forged_markup" not in flags)
        verdicts = await run.judge(trusted="forged_markup" not in flags)
        return Decision(
            id=decision_id,
            mounts=mounts,
            verdicts=verdicts,
            worker=agent.worker,
            headers={self.settings.session_header: turn.session, **agent.headers},
            reads=tuple(run.reads),
            reasons=tuple(run.reasons),
            flags=flags,
            elapsed_s=time.monotonic() - started,
        )

    def chain(self, worker: str) -> Chain:
        """The engines for one worker, made once."""
        chain = self._chains.get(worker)
        if chain is None:
            chain = self._chains[worker] = Chain([self._engine(name, worker) for name in self.settings.engines], breakers=self._breakers)
        return chain

    def _engine(self, name: str, worker: str) -> Any:
        from warmgate import engines

        settings = self.settings
        model = settings.gate_model if settings.gate_workers else settings.model
        if name == "systemone":
            return engines.SystemOne(worker, model=model, dialect=settings.dialect, api_key=settings.api_key)
        if name == "decisions":
            return engines.Decisions(worker, model=model, api_key=settings.api_key)
        if name == "prefix_read":
            return engines.PrefixRead(worker, model=model, api_key=settings.api_key)
        return engines.RoundTrip(settings.round_trip_url or worker, model=settings.round_trip_model or model, api_key=settings.api_key)

    def remember(self, session: str, user_turn: int, tools: tuple[str, ...]) -> None:
        """Keep what a session has mounted."""
        self._mounted[session] = (user_turn, tools)
        self._mounted.move_to_end(session)
        while len(self._mounted) > SESSIONS:
            self._mounted.popitem(last=False)

    def mounted(self, session: str) -> tuple[int, tuple[str, ...]] | None:
        """User turn and tools of the session's last mount."""
        return self._mounted.get(session)

    async def aclose(self) -> None:
        """Close the pool and the engines' connections of this event loop."""
        for chain in self._chains.values():
            await chain.aclose()
        await self.pool.aclose()

    async def __aenter__(self) -> Self:
        await self.pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Run:
    """One decision under way."""

    def __init__(self, gate: Gate, turn: Turn, decision_id: str, binding: Binding, deadline: Deadline) -> None:
        self.gate = gate
        self.turn = turn
        self.id = decision_id
        self.binding = binding
        self.deadline = deadline
        self.reads: list[Read] = []
        self.reasons: list[str] = []

    async def flags(self) -> tuple[str, ...]:
        """What is odd about the turn's messages."""
        if self.gate.markup is None:
            return ()
        found = self.gate.markup.find(self.turn.messages)
        if not found:
            return ()
        first = found[0]
        kind = "imitates" if first.lookalike else "spells out"
        self.reasons.append(
            f"message {first.message} ({first.field}) {kind} control markup; answers of this turn cannot widen mounts or allow a call"
        )
        return ("forged_markup",)

    async def mount(self, *, widen: bool) -> Mounts:
        """The tools of this turn."""
        gate, turn = self.gate, self.turn
        names = tuple(_name(tool) for tool in turn.tools)
        held = gate.mounted(turn.session)
        current = names if held is None else tuple(n for n in names if n in held[1])
        policy = gate.mounts
        if policy is None or not names:
            return Mounts(tools=current, strategy="keep", changed=False, reason="no mount policy: the current set is kept")
        if held is not None and held[0] == turn.user_turns:
            return Mounts(tools=current, strategy="keep", changed=False, reason="decided once per user turn: kept inside the tool loop")
        mounted = None if held is None else current
        try:
            questions = policy.questions(turn, mounted)
            answers = (await self.ask(questions)).answers if questions else {}
            mounts = policy.settle(turn, mounted, answers, widen=widen)
        except Exception as fault:  # noqa: BLE001 -- a policy is foreign code; mounting fails open to the current set
            self.reasons.append(f"the mount policy failed ({fault}): the current set is kept")
            return Mounts(tools=current, strategy="keep", changed=False, reason="the mount policy failed: the current set is kept")
        if gate.settings.mounts_mode == "shadow":
            return Mounts(tools=current, strategy=mounts.strategy, changed=False, reason=f"shadow: would be {mounts.reason}", shadow=True)
        gate.remember(turn.session, turn.user_turns, mounts.tools)
        return mounts

    async def ask(self, questions: Mapping[str, Question]) -> ChainResult:
        """Ask about the transcript: aligned, and once more as JSON where the model would rather go on with the agent's task."""
        state = self._state()
        if state.reason is not None:
            self.reasons.append(f"not aligned: {state.reason}")
        result = await self._read(questions, state)
        floor = self.gate.settings.label_mass_floor
        low = [i for i, a in result.answers.items() if a.label_mass is not None and a.label_mass < floor]
        if state.kind == "aligned" and low and not self.deadline.passed:
            self.reasons.append(f"label mass below {floor:g} on {', '.join(low)}: asked once more with a JSON state")
            again = await self._read({i: questions[i] for i in low}, json_state(self.turn.messages, "low label mass"))
            return ChainResult(
                outcome=result.outcome,
                answers={**result.answers, **again.answers},
                unanswered=result.unanswered,
                steps=result.steps + again.steps,
                usage=result.usage + again.usage,
                elapsed_s=result.elapsed_s + again.elapsed_s,
            )
        return result

    def _state(self) -> State:
        gate, turn = self.gate, self.turn
        if gate.settings.gate_workers:
            return json_state(turn.messages, "a sidecar model answers: nothing is shared with the agent's prompt")
        if gate.planner is None:
            return json_state(turn.messages, "no chat template given (Settings.chat_template)")
        return gate.planner.plan(turn.session, turn.messages, turn.tools, turn.template_kwargs)

    async def _read(self, questions: Mapping[str, Question], state: State) -> ChainResult:
        turn, gate = self.turn, self.gate
        prompt = None
        if state.kind == "aligned" and gate.planner is not None and gate.planner.recipe is not None:
            recipe = gate.planner.recipe
            prompt = AgentPrompt(gate.planner.text(turn.session), before=recipe.opens_user, after=recipe.after_user)
        request = AskRequest(
            questions=questions,
            state=state.state,
            instructions=state.instructions,
            prompt=prompt,
            model=turn.model if not gate.settings.gate_workers else None,
            cache_salt=turn.cache_salt or gate.settings.cache_salt,
            priority=gate.settings.priority,
            request_id=f"{self.id}-{len(self.reads)}",
        )
        return await self._send(request, state.kind, state)

    async def _send(self, request: AskRequest, kind: Literal["aligned", "json", "facts"], state: State | None) -> ChainResult:
        result = await self.gate.chain(self.binding.worker).ask(request, deadline=self.deadline)
        engine = next((s.engine for s in result.steps if s.outcome in ("answered", "partial")), None)
        why = [w for w in (state.reason if state is not None else None, result.reason) if w]
        self.reads.append(
            Read(
                questions=tuple(request.questions),
                state=kind,
                outcome=result.outcome,
                engine=engine,
                worker=self.binding.worker,
                elapsed_s=result.elapsed_s,
                answers=result.answers,
                reason="; ".join(why),
                shared_characters=state.shared_characters if state is not None else 0,
            )
        )
        return result

    async def judge(self, *, trusted: bool) -> dict[str, Verdict]:
        """A verdict on each proposed call: rules first, then one request for all grey cases, unless messages forged markup."""
        judged = [(call, self._rules(call)) for call in self.turn.proposed_calls]
        grey = {f"call{i}": (call, j) for i, (call, j) in enumerate(judged) if j.question is not None and j.verdict == "ask"}
        moved: dict[str, tuple[Judgement, str]] = {}
        if grey and trusted and self.gate.calls is not None:
            moved = await self._grey(grey, self.gate.calls)
        verdicts: dict[str, Verdict] = {}
        for call, judgement in judged:
            final, source = moved.get(call.id, (judgement, "rules" if self.gate.calls is not None else "none"))
            verdicts[call.id] = self._verdict(call, final, source)
        return verdicts

    def _rules(self, call: ProposedCall) -> Judgement:
        if self.gate.calls is None:
            return Judgement("ask", "no call policy is installed, so a person decides")
        try:
            return self.gate.calls.judge(call, self.turn)
        except Exception as fault:  # noqa: BLE001 -- unsafe never becomes allow, whatever a policy does
            return Judgement("ask", f"the call policy failed ({fault}), so a person decides")

    async def _grey(self, grey: Mapping[str, tuple[ProposedCall, Judgement]], policy: CallPolicy) -> dict[str, tuple[Judgement, str]]:
        """Ask about all grey calls at once, on their resolved facts alone: tool output must not argue for its own command."""
        questions = {name: judgement.question for name, (_, judgement) in grey.items() if judgement.question is not None}
        facts = {name: judgement.facts or {} for name, (_, judgement) in grey.items()}
        request = AskRequest(questions=questions, state=facts, request_id=f"{self.id}-{len(self.reads)}")
        result = await self._send(request, "facts", None)
        moved: dict[str, tuple[Judgement, str]] = {}
        for name, (call, judgement) in grey.items():
            answer = result.answers.get(name)
            if answer is None:
                continue
            try:
                settled = policy.settle(call, judgement, answer)
            except Exception as fault:  # noqa: BLE001 -- as above
                settled = replace(judgement, reason=f"{judgement.reason} (the policy failed on the model's answer: {fault})")
            if settled.verdict in ("ask", "allow"):  # a model moves a grey case between these two only
                moved[call.id] = (settled, answer.source.engine)
        return moved

    def _verdict(self, call: ProposedCall, judgement: Judgement, source: str) -> Verdict:
        settings, policy = self.gate.settings, self.gate.calls
        word, reason = judgement.verdict, judgement.reason
        shadow = settings.calls_mode == "shadow"
        if word == "ask" and settings.on_ask == "deny" and not shadow:
            word, reason = "deny", f"{reason} (nobody is there to approve)"
        named = f"{policy.name} {policy.version}" if policy is not None else None
        return Verdict(
            call=call.id,
            verdict=word,
            reason=reason,
            source=source,
            binding=binding_of(call, policy=named or "none", model=self.turn.model or settings.model),
            rule=judgement.rule,
            policy=named,
            shadow=shadow,
        )


def _name(tool: Mapping[str, Any]) -> str:
    return text(mapping(tool.get("function")).get("name")) or text(tool.get("name")) or ""


def _template(settings: Settings) -> ChatTemplate:
    path = settings.chat_template
    assert path is not None
    if path.is_dir():
        for name in ("chat_template.jinja", "tokenizer_config.json"):
            if (path / name).is_file():
                return ChatTemplate.from_file(path / name)
    return ChatTemplate.from_file(path)

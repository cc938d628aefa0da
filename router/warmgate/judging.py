"""A verdict on each proposed call: rules first, then a request for each grey case. Whatever fails, a person decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from secrets import token_hex

from warmgate.alignment.markers import UNKNOWN
from warmgate.alignment.markup import Markup
from warmgate.asking import Asker
from warmgate.decision import Verdict, binding_of
from warmgate.engines.together import together
from warmgate.policy import CallPolicy, Judgement
from warmgate.settings import Settings
from warmgate.turn import ProposedCall, Turn

STRICTNESS = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class Judge:
    """The calls of one turn.

    Attributes:
        settings: The gate's.
        policy: The rules; without any every call is ``ask``.
        turn: The turn.
        asker: Asks about grey cases.
    """

    settings: Settings
    policy: CallPolicy | None
    turn: Turn
    asker: Asker

    async def judge(self, *, trusted: bool) -> dict[str, Verdict]:
        """Call id → verdict.

        Args:
            trusted: Whether a model may be asked; not where messages forged markup.
        """
        judged = [(call, self._rules(call)) for call in self.turn.proposed_calls]
        grey = {f"call{i}": (call, j) for i, (call, j) in enumerate(judged) if j.question is not None and j.verdict == "ask"}
        moved: dict[int, tuple[Judgement, str]] = {}
        if grey and trusted and self.policy is not None:
            moved = await self._grey(grey, self.policy)
        verdicts: dict[str, Verdict] = {}
        for number, (call, judgement) in enumerate(judged):
            final, source = moved.get(number, (judgement, "rules" if self.policy is not None else "none"))
            verdict = self._verdict(call, final, source)
            other = verdicts.get(call.id)  # two calls under one id: the stricter word holds for both
            if other is None or STRICTNESS.index(verdict.verdict) > STRICTNESS.index(other.verdict):
                verdicts[call.id] = verdict
        return verdicts

    def _rules(self, call: ProposedCall) -> Judgement:
        if self.policy is None:
            return Judgement("ask", "no call policy is installed, so a person decides")
        try:
            judged = self.policy.judge(call, self.turn)
        except Exception as fault:  # noqa: BLE001 -- unsafe never becomes allow, whatever a policy does
            return Judgement("ask", f"the call policy failed ({fault}), so a person decides")
        if judged.verdict != "deny" and (why := self._unbound(call)) is not None:
            return Judgement("ask", f"the call's arguments cannot be tied to a verdict ({why}), so a person decides")
        return judged

    async def _grey(self, grey: Mapping[str, tuple[ProposedCall, Judgement]], policy: CallPolicy) -> dict[int, tuple[Judgement, str]]:
        """Ask about all grey calls side by side, each on its own resolved facts alone.

        Tool output must not argue for its own command, and no call for another: a model that read the facts of two under one question could
        not tell which is meant, and its thresholds were found on the facts of one.
        """
        moved: dict[int, tuple[Judgement, str]] = {}
        asked: dict[str, tuple[ProposedCall, Judgement]] = {}
        for name, (call, judgement) in grey.items():
            if _markup().find_in(judgement.facts, "facts"):  # they stand in the prompt as they are
                why = f"{judgement.reason} (its facts hold control markup, so no model was asked)"
                moved[int(name.removeprefix("call"))] = (replace(judgement, reason=why), "rules")
            else:
                asked[name] = (call, judgement)
        if not asked:
            return moved
        names = list(asked)
        results = await together(
            self.asker.facts(name, judgement.question, judgement.facts or {})
            for name, (_, judgement) in asked.items()
            if judgement.question is not None
        )
        for name, result in zip(names, results, strict=True):
            call, judgement = asked[name]
            answer = result.answers.get(name)
            if answer is None:
                continue
            try:
                settled = policy.settle(call, judgement, answer)
            except Exception as fault:  # noqa: BLE001 -- as above
                settled = replace(judgement, reason=f"{judgement.reason} (the policy failed on the model's answer: {fault})")
            if settled.verdict in ("ask", "allow"):  # a model moves a grey case between these two only
                moved[int(name.removeprefix("call"))] = (settled, answer.source.engine)
        return moved

    def _verdict(self, call: ProposedCall, judgement: Judgement, source: str) -> Verdict:
        word, reason = judgement.verdict, judgement.reason
        shadow = self.settings.calls_mode == "shadow"
        if word == "ask" and self.settings.on_ask == "deny" and not shadow:
            word, reason = "deny", f"{reason} (nobody is there to approve)"
        named = self._named()
        return Verdict(
            call=call.id,
            verdict=word,
            reason=reason,
            source=source,
            binding=self._binding(call),
            rule=judgement.rule,
            policy=named,
            shadow=shadow,
        )

    def _named(self) -> str | None:
        return f"{self.policy.name} {self.policy.version}" if self.policy is not None else None

    def _binding(self, call: ProposedCall) -> str:
        """The binding; one that fits no call where the arguments cannot be hashed, so that no word on this call holds for another."""
        try:
            return binding_of(call, policy=self._named() or "none", model=self.turn.model or self.settings.model)
        except ValueError:
            return f"unbound-{token_hex(16)}"

    def _unbound(self, call: ProposedCall) -> str | None:
        try:
            binding_of(call, policy="", model="")
        except ValueError as fault:
            return str(fault)
        return None


@cache
def _markup() -> Markup:
    """Of all families: a decision model may be another than the agent's."""
    return Markup(UNKNOWN.values())
